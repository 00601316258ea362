// Ids, weights and scopes: all combinations at once against the plain loop, and what must agree.
#include "support/build.hpp"
#include "support/catch.hpp"
#include "support/check.hpp"
#include "support/problems.hpp"

using namespace contrastive_tests;

namespace {

constexpr Loss losses_with_ids[] = {Loss::info_nce,    Loss::clip,         Loss::hard_negative,
                                    Loss::siglip,      Loss::nt_xent,      Loss::info_nce_logits,
                                    Loss::clip_logits, Loss::siglip_logits};

/// Equal but for the order of sums.
template <class T>
void check_equal(const Problem& a, const Problem& b) {
  const Answer expected = evaluate<T>(b);
  CAPTURE(describe(a.loss).function, describe(b.loss).function);
  check_answer(evaluate<T>(a), expected, 64 * epsilon<T>);
}

void check_equal(const Problem& a, const Problem& b) {
  check_equal<float>(a, b);
  check_equal<double>(a, b);
}

}  // namespace

TEST_CASE("options: random combinations", "[options]") {
  for (const Loss loss : losses_with_ids) {
    Random random(21);
    for (const Index batch : {1, 2, 5, 13, 31})
      for (int repetition = 0; repetition < 12; ++repetition)
        check_loss(random_problem(loss, batch, 5, random, 2 * batch));
    for (const Index batch : {49, 97, 250})
      for (int repetition = 0; repetition < 3; ++repetition)
        check_loss(random_problem(loss, batch, 5, random, batch == 97 ? 100 : 2 * batch));
  }
}

TEST_CASE("options: random combinations at a low temperature", "[options]") {
  for (const Loss loss : losses_with_ids) {
    if (!has_scale(loss)) continue;
    for (const bool outliers : {false, true}) {
      Random random(30);
      for (const Index batch : {2, 5, 13, 49, 97, 250})
        for (int repetition = 0; repetition < 3; ++repetition)
          check_loss(cold_problem(random_problem(loss, batch, 5, random, 2 * batch), outliers));
    }
  }
}

TEST_CASE("options: a row without a candidate in a block, far below the block's reference",
          "[options]") {
  // Rows 48 and 49 are one item, so that they have no candidate in the last block of columns. Their
  // candidates elsewhere lie 50 below what other rows have there, and that lies 50 below the last
  // block's largest: both at once would overflow a float's factor, and 0 * infinity is nan.
  const Index batch = 50;
  for (const Real unit : {50, 400}) {
    Matrix l = Matrix::Zero(batch, batch);
    l.topRightCorner(48, 2).setConstant(unit);
    l.bottomLeftCorner(2, 48).setConstant(-unit);
    l.bottomRightCorner(2, 2).setConstant(-1.5L * unit);
    Problem problem = logits_problem(Loss::clip_logits, l);
    for (Index i = 0; i < batch; ++i) problem.pos_ids.push_back(i < 48 ? i : 48);
    check_loss(problem);
  }
}

TEST_CASE("options: everything at once", "[options]") {
  for (const Loss loss : losses_with_ids) {
    for (const bool own : {false, true}) {
      if (own && loss != Loss::hard_negative) continue;
      for (const bool ragged : {false, true}) {
        if (ragged && !own) continue;
        Random random(22);
        Problem problem = plain_problem(loss, 50, 6, random, 150);
        problem.query_ids = random_ids(50, 20, random);
        problem.pos_ids = random_ids(50, 20, random);
        problem.weights = random_weights(50, random);
        if (loss == Loss::hard_negative) problem.neg_ids = random_ids(150, 20, random);
        problem.own_scope = own;
        if (ragged) problem.offsets = random_offsets(50, 150, random);
        check_loss(problem);
      }
    }
  }
}

TEST_CASE("options: no extra negatives at all", "[options]") {
  Random random(23);
  for (const Index batch : {1, 2, 13, 50}) {
    Problem plain = plain_problem(Loss::info_nce, batch, 6, random);
    plain.weights = random_weights(batch, random);
    plain.pos_ids = random_ids(batch, 30, random);
    Problem none = plain;
    none.loss = Loss::hard_negative;
    none.inputs.push_back(Matrix(0, 6));
    for (const bool own : {false, true}) {
      none.own_scope = own;
      none.offsets = own ? Ids(static_cast<std::size_t>(batch) + 1, 0) : Ids{};
      Answer got = evaluate<double>(none);
      REQUIRE(got.gradients.size() == 3);
      CHECK(got.gradients[2].rows() == 0);
      CHECK(got.gradients[2].cols() == 6);
      got.gradients.pop_back();
      check_answer(got, evaluate<double>(plain), 64 * epsilon<double>);
    }
  }
}

TEST_CASE("options: own scope by k is own scope by offsets", "[options]") {
  Random random(24);
  for (const Index k : {1, 3, 7}) {
    Problem by_k = plain_problem(Loss::hard_negative, 13, 6, random, 13 * k);
    by_k.own_scope = true;
    Problem by_offsets = by_k;
    for (Index i = 0; i <= 13; ++i) by_offsets.offsets.push_back(i * k);
    CHECK(same_bits(evaluate<float>(by_k), evaluate<float>(by_offsets)));
    CHECK(same_bits(evaluate<double>(by_k), evaluate<double>(by_offsets)));
  }
}

TEST_CASE("options: other rows as extra negatives in place of the batch's", "[options]") {
  // One query whose negatives are N is a row of InfoNCE with N as the other rows.
  Random random(25);
  const Problem batch = plain_problem(Loss::info_nce, 13, 6, random);
  Problem row = batch;
  row.loss = Loss::hard_negative;
  row.inputs = {batch.inputs[0].topRows(1), batch.inputs[1].topRows(1),
                batch.inputs[1].bottomRows(12)};
  const Answer whole = evaluate<double>(only_row(batch, 0));
  const Answer got = evaluate<double>(row);
  const Real tolerance = 64 * epsilon<double>;
  CHECK(relative_error(got.value, whole.value) <= tolerance);
  CHECK(relative_error(got.gradients[0], Matrix(whole.gradients[0].topRows(1))) <= tolerance);
  CHECK(relative_error(got.gradients[1], Matrix(whole.gradients[1].topRows(1))) <= tolerance);
  CHECK(relative_error(got.gradients[2], Matrix(whole.gradients[1].bottomRows(12))) <= tolerance);
  CHECK(relative_error(*got.d_log_scale, *whole.d_log_scale) <= tolerance);
}

TEST_CASE("options: equal weights and distinct ids are none", "[options]") {
  for (const Loss loss : losses_with_ids) {
    Random random(26);
    for (const Index batch : {1, 6, 49}) {
      const Problem plain = plain_problem(loss, batch, 6, random, 2 * batch);
      Problem weighted = plain;
      weighted.weights.assign(static_cast<std::size_t>(batch), 0.7);
      check_equal(weighted, plain);
      Problem labelled = plain;
      for (Index i = 0; i < batch; ++i) {
        labelled.query_ids.push_back(-i);
        labelled.pos_ids.push_back(std::int64_t{1} << (i % 60));
        if (i >= 60) labelled.pos_ids.back() += 1;
      }
      check_equal(labelled, plain);
      if (loss != Loss::hard_negative) continue;
      for (Index m = 0; m < 2 * batch; ++m) labelled.neg_ids.push_back(-5 - m);
      check_equal(labelled, plain);
    }
  }
}

TEST_CASE("options: weights count relative to each other alone", "[options]") {
  for (const Loss loss : losses_with_ids) {
    Random random(27);
    Problem problem = plain_problem(loss, 7, 6, random, 7);
    problem.weights = random_weights(7, random);
    Problem scaled = problem;
    for (double& w : scaled.weights) w *= 0x1p300;  // more than a float can hold
    check_equal(scaled, problem);
    for (double& w : scaled.weights) w *= 0x1p-700;
    check_equal(scaled, problem);
  }
}

TEST_CASE("options: a row of weight 0 is still a negative of the others", "[options]") {
  for (const Loss loss :
       {Loss::info_nce, Loss::clip, Loss::hard_negative, Loss::siglip, Loss::nt_xent}) {
    Random random(28);
    Problem problem = plain_problem(loss, 5, 6, random, 5);
    problem.weights = {1, 0, 2, 1, 1};
    const Answer got = evaluate<double>(problem);
    CAPTURE(describe(loss).function);
    CHECK(largest(got.gradients[1].row(1)) > 1e-6L);
    if (loss != Loss::clip && loss != Loss::nt_xent) CHECK(largest(got.gradients[0].row(1)) == 0);
    Problem without = problem;
    without.inputs[1].row(1) *= -1;
    CHECK(evaluate_value<double>(without) != got.value);
    problem.inputs[0].row(1).setZero();  // and is still checked
    CHECK(refusals<double>(problem).value.kind == "invalid_argument");
  }
}

TEST_CASE("options: ids of any size are compared whole", "[options]") {
  Random random(29);
  Problem problem = plain_problem(Loss::info_nce, 4, 6, random);
  const Problem plain = problem;
  const std::int64_t high = std::int64_t{1} << 62;
  problem.pos_ids = {high, high + 1, -high, 1};  // different, if only in one bit
  check_equal(problem, plain);
  problem.pos_ids = {std::numeric_limits<std::int64_t>::min(), 5,
                     std::numeric_limits<std::int64_t>::min(), 5};
  check_loss(problem);
}
