// What a row's loss is made of: smoothed labels, margins, decoupling, priors and false negatives.
#include "support/build.hpp"
#include "support/catch.hpp"
#include "support/check.hpp"
#include "support/problems.hpp"

using namespace contrastive_tests;

namespace {

constexpr Loss softmax_losses[] = {Loss::info_nce, Loss::hard_negative,   Loss::clip,
                                   Loss::nt_xent,  Loss::info_nce_logits, Loss::clip_logits};
constexpr Loss embedding_losses[] = {Loss::info_nce, Loss::hard_negative, Loss::clip,
                                     Loss::nt_xent};

/// Equal but for the order of sums.
constexpr Real reordered = 256 * epsilon<double>;

/// Everything at once, with ids on both sides.
Problem with_everything(Loss loss, Index batch, Index d, bool own, Random& random) {
  Problem problem = plain_problem(loss, batch, d, random, 2 * batch);
  problem.query_ids = random_ids(batch, batch, random);
  problem.pos_ids = random_ids(batch, batch, random);
  if (loss == Loss::hard_negative) problem.neg_ids = random_ids(2 * batch, batch, random);
  problem.own_scope = own;
  problem.weights = random_weights(batch, random);
  problem.label_smoothing = 0.2;
  if (has_prior(loss)) problem.log_prior = random_prior(batch, random);
  if (takes_logits(loss)) return problem;
  problem.positive_margin = 0.15;
  problem.false_negative_margin = 0.02;
  return without_ties(problem);
}

}  // namespace

TEST_CASE("targets: everything at once around the edges of chunks and strips", "[targets]") {
  for (const Loss loss : softmax_losses)
    for (const bool own : {false, true}) {
      if (own && loss != Loss::hard_negative) continue;
      Random random(101);
      for (const Index batch : {2, 3, 47, 48, 49, 96, 97, 239, 240, 241}) {
        Problem problem = with_everything(loss, batch, 5, own, random);
        check_loss(problem);
        problem.decoupled = has_negatives(problem);
        check_loss(problem);
        if (!has_scale(loss)) continue;
        check_loss(cold_problem(problem, batch % 2 == 1));
      }
    }
}

TEST_CASE("targets: each option by itself", "[targets]") {
  for (const Loss loss : softmax_losses) {
    Random random(102);
    for (const Index batch : {2, 13, 50, 97}) {
      const Problem plain = plain_problem(loss, batch, 7, random, batch);
      for (const double e : {0.1, 1.0}) {
        Problem smoothed = plain;
        smoothed.label_smoothing = e;
        check_loss(smoothed);
      }
      Problem decoupled = plain;
      decoupled.decoupled = true;
      check_loss(decoupled);
      if (has_prior(loss)) {
        Problem prior = plain;
        prior.log_prior = random_prior(batch, random);
        check_loss(prior);
      }
      if (takes_logits(loss)) continue;
      for (const double margin : {0.3, -0.3, 40.0}) {
        Problem with_margin = plain;
        with_margin.positive_margin = margin;
        check_loss(with_margin);
        Problem without_false = plain;
        without_false.false_negative_margin = margin / 4;
        check_loss(without_ties(without_false));
      }
    }
  }
}

TEMPLATE_TEST_CASE("targets: what equals the positive is no false negative at margin 0",
                   "[targets]", float, double, long double) {
  // Every row of P comes twice, the copies in other chunks and strips, and again in N. A duplicate
  // has the positive's similarity to the last bit, so it is a candidate like any other; what is
  // more similar is left out. So leaving out the others leaves log of the number of copies.
  for (const bool cosine : {true, false})
    for (const bool own : {false, true})
      for (const Loss loss : embedding_losses) {
        if (own && loss != Loss::hard_negative) continue;
        for (const Index d : {3, 300}) {
          Random random(103);
          const Index half = 130, batch = 2 * half;
          Problem problem;
          problem.loss = loss;
          problem.cosine = cosine;
          problem.temperature = cosine ? 0.07 : 3;
          const Matrix q = random.normal_matrix(half, d), p = random.normal_matrix(half, d);
          problem.inputs = {Matrix(batch, d), Matrix(batch, d)};
          problem.inputs[0] << q, q;
          problem.inputs[1] << p, p;
          if (loss == Loss::hard_negative) problem.inputs.push_back(problem.inputs[1]);
          problem.own_scope = own;
          problem.false_negative_margin = 0;
          CAPTURE(describe(loss).function, cosine, own, d);
          const Answer got = evaluate<TestType>(problem);
          const Answer expected = oracle_answer(problem);
          CHECK(relative_error(got.value, expected.value) <= tolerance_by_size<TestType>(problem));
          // The least similar of its row leaves itself, its copy, and those in N.
          CHECK(expected.value > std::log(Real(2)));
        }
      }
}

TEMPLATE_TEST_CASE("targets: what equals the positive is a false negative at any margin above 0",
                   "[targets]", float, double) {
  // 1 > 1 - 2^-30, which a float rounds to 1.
  for (const bool own : {false, true})
    for (const Loss loss : embedding_losses) {
      if (own && loss != Loss::hard_negative) continue;
      Problem problem = dot_problem(loss, {Matrix::Ones(2, 1), Matrix::Ones(2, 1)}, 1);
      if (loss == Loss::hard_negative) problem.inputs.push_back(Matrix::Ones(4, 1));
      problem.own_scope = own;
      problem.false_negative_margin = 0x1p-30;
      CHECK(evaluate_value<TestType>(problem) == 0);
      problem.false_negative_margin = 0;
      CHECK(evaluate_value<TestType>(problem) > 0.69L);
      problem.false_negative_margin = -0x1p-30;
      CHECK(evaluate_value<TestType>(problem) > 0.69L);
    }
}

TEST_CASE("targets: false negatives left out by similarity are those left out by id", "[targets]") {
  // One false negative for each of the losses' directions: rows 0 and 1 are nearly one item.
  for (const Loss loss : embedding_losses) {
    Random random(104);
    Problem by_id = plain_problem(loss, 6, 5, random, 0);
    by_id.inputs[1].row(1) = by_id.inputs[1].row(0) = by_id.inputs[0].row(0);
    by_id.inputs[0].row(1) = by_id.inputs[0].row(0) + by_id.inputs[0].row(2) / 64;
    Problem by_similarity = by_id;
    by_id.pos_ids = {1, 1, 2, 3, 4, 5};
    by_similarity.false_negative_margin = 0.01;
    by_similarity.weights = by_id.weights = {1, 1, 0, 0, 0, 0};
    CAPTURE(describe(loss).function);
    check_answer(evaluate<double>(by_similarity), evaluate<double>(by_id), reordered);
  }
}

TEST_CASE("targets: a row and a column may differ about who is a false negative", "[targets]") {
  // c_00 is low and c_11 high: 01 is too similar for row 0 and not for column 1.
  const Matrix c = matrix({{0.1, 0.5, 0}, {0, 0.9, 0}, {0, 0.2, 0.8}});
  Problem problem = similarities_problem(Loss::clip, c, 0.5);
  problem.false_negative_margin = 0.2;
  check_loss(problem);
  const double rows = std::log1p(std::exp(-0.2)) + std::log1p(2 * std::exp(-1.8))
                      + std::log1p(std::exp(-1.6) + std::exp(-1.2));
  // Column 0: 0.1 against 0 and 0, both above 0.1 - 0.2, so none; column 1: .9, .5, .2.
  const double columns =
      0 + std::log1p(std::exp(-0.8) + std::exp(-1.4)) + std::log1p(2 * std::exp(-1.6));
  // Row 0: 0.1 against 0.5 (out) and 0 (out too, above -0.1).
  const double row_0 = std::log1p(std::exp(-0.2));
  CHECK(relative_error(evaluate_value<double>(problem), (rows - row_0 + columns) / 6)
        <= 16 * epsilon<double>);
}

TEST_CASE("targets: rows that false negatives leave nothing", "[targets]") {
  // Decoupled or not, with smoothed labels or not: 0 and zero gradients.
  for (const Loss loss : embedding_losses)
    for (const bool own : {false, true})
      for (const bool decoupled : {false, true})
        for (const double e : {0.0, 0.3}) {
          if (own && loss != Loss::hard_negative) continue;
          Random random(105);
          Problem problem = plain_problem(loss, 50, 5, random, 100);
          problem.own_scope = own;
          problem.false_negative_margin = 3;
          problem.decoupled = decoupled;
          problem.label_smoothing = e;
          problem.positive_margin = 0.25;
          const Answer got = evaluate<float>(problem);
          CAPTURE(describe(loss).function, own, decoupled, e);
          CHECK(got.value == 0);
          CHECK(*got.d_log_scale == 0);
          for (const Matrix& gradient : got.gradients) CHECK(largest(gradient) == 0);
        }
}

TEST_CASE("targets: a constant prior is none", "[targets]") {
  for (const Loss loss : softmax_losses) {
    // The rows of N have no prior.
    if (loss == Loss::hard_negative || !has_prior(loss)) continue;
    Random random(106);
    const Problem plain = plain_problem(loss, 50, 5, random);
    Problem prior = plain;
    prior.log_prior.assign(50, -6.5);
    CAPTURE(describe(loss).function);
    check_answer(evaluate<double>(prior), evaluate<double>(plain), reordered);
  }
}

TEST_CASE("targets: priors beyond what exponentials with one reference hold", "[targets]") {
  for (const Loss loss : softmax_losses) {
    if (!has_prior(loss)) continue;
    for (const double unit : {20.0, 100.0, -100.0, 1000.0})
      for (const bool decoupled : {false, true}) {
        Random random(115);
        Problem problem = plain_problem(loss, 53, 5, random, 20);
        problem.log_prior.assign(53, 0);
        for (double& p : problem.log_prior) p = unit * static_cast<double>(random.integer(3));
        problem.decoupled = decoupled;
        // Logits of up to 2000 round in their differences.
        const Answer expected = oracle_answer(problem);
        const Real size = std::abs(unit) * 2;
        CAPTURE(describe(loss).function, unit, decoupled);
        check_answer(evaluate<float>(problem), expected,
                     std::max(tolerance_of<float>(problem), 4 * size * epsilon<float>),
                     underflow<float>);
        check_answer(evaluate<double>(problem), expected,
                     std::max(tolerance_of<double>(problem), 4 * size * epsilon<double>),
                     underflow<double>);
      }
  }
}

TEST_CASE("targets: in CLIP's columns a prior cancels", "[targets]") {
  Random random(107);
  Problem problem = plain_problem(Loss::clip, 50, 5, random);
  Problem columns = problem;
  columns.loss = Loss::info_nce;
  std::swap(columns.inputs[0], columns.inputs[1]);
  Problem rows = problem;
  rows.loss = Loss::info_nce;
  rows.log_prior = problem.log_prior = random_prior(50, random);
  CHECK(relative_error(evaluate_value<double>(problem),
                       (evaluate_value<double>(rows) + evaluate_value<double>(columns)) / 2)
        <= reordered);
}

TEST_CASE("targets: CLIP is half of InfoNCE over rows and half over columns", "[targets]") {
  // Without a prior, which belongs to columns. Smoothing, margins and decoupling are of both.
  for (const bool decoupled : {false, true})
    for (const bool cold : {false, true}) {
      Random random(108);
      Problem both = with_everything(Loss::clip, 53, 6, false, random);
      both.log_prior.clear();
      both.decoupled = decoupled && has_negatives(both);
      REQUIRE(both.decoupled == decoupled);
      if (cold) both = cold_problem(both, true);
      Problem rows = both;
      rows.loss = Loss::info_nce;
      Problem columns = rows;
      std::swap(columns.inputs[0], columns.inputs[1]);
      const Answer by_rows = evaluate<double>(rows);
      const Answer by_columns = evaluate<double>(columns);
      Answer expected;
      expected.value = (by_rows.value + by_columns.value) / 2;
      expected.value_size = 1;
      expected.gradients = {Matrix((by_rows.gradients[0] + by_columns.gradients[1]) / 2),
                            Matrix((by_rows.gradients[1] + by_columns.gradients[0]) / 2)};
      expected.d_log_scale = (*by_rows.d_log_scale + *by_columns.d_log_scale) / 2;
      expected.d_log_scale_size =
          std::abs(*by_rows.d_log_scale) + std::abs(*by_columns.d_log_scale);
      check_answer(evaluate<double>(both), expected, cold ? 64 * reordered : reordered);
    }
}

TEST_CASE("targets: sums of G over a row", "[targets]") {
  // A row's loss is the same for logits that are all shifted by one number.
  for (const Loss loss : {Loss::info_nce_logits, Loss::clip_logits})
    for (const bool decoupled : {false, true})
      for (const double e : {0.0, 0.4, 1.0}) {
        Random random(109);
        Problem problem = plain_problem(loss, 53, 1, random);
        problem.pos_ids = random_ids(53, 40, random);
        problem.log_prior = random_prior(53, random);
        problem.decoupled = decoupled;
        problem.label_smoothing = e;
        const Matrix G = evaluate<double>(problem).gradients[0];
        CAPTURE(describe(loss).function, decoupled, e);
        if (loss == Loss::info_nce_logits)
          CHECK(largest(G.rowwise().sum()) <= 4 * epsilon<double>);
        else
          CHECK(std::abs(G.sum()) <= 53 * epsilon<double>);
        for (Index i = 0; i < 53; ++i)
          for (Index j = 0; j < 53; ++j)
            if (j != i && problem.pos_ids[std::size_t(i)] == problem.pos_ids[std::size_t(j)])
              CHECK(G(i, j) == 0);
      }
}

TEST_CASE("targets: labels smoothed away altogether leave means", "[targets]") {
  // With e = 1 the loss is lse - mean: 0 + log n for equal logits, and its gradient A - 1/n.
  Random random(110);
  Problem problem = plain_problem(Loss::info_nce_logits, 5, 1, random);
  problem.label_smoothing = 1;
  const Matrix s = problem.inputs[0];
  Real expected = 0;
  for (Index i = 0; i < 5; ++i)
    expected += (std::log(s.row(i).array().exp().sum()) - s.row(i).mean()) / 5;
  CHECK(relative_error(evaluate_value<double>(problem), expected) <= 16 * epsilon<double>);
}

TEST_CASE("targets: a margin moves the positive's logit alone", "[targets]") {
  // On logits a margin is the diagonal lowered by scale m.
  Random random(111);
  for (const auto& [over_rows, over_logits] :
       {std::pair(Loss::info_nce, Loss::info_nce_logits), std::pair(Loss::clip, Loss::clip_logits)})
    for (const bool decoupled : {false, true}) {
      Problem problem = plain_problem(over_rows, 53, 6, random);
      problem.cosine = false;
      problem.log_scale = -1;
      problem.positive_margin = 0.75;
      problem.label_smoothing = 0.1;
      problem.log_prior = random_prior(53, random);
      problem.decoupled = decoupled;
      Problem logits = problem;
      logits.loss = over_logits;
      logits.cosine = true;
      logits.positive_margin = 0;
      const Real scale = oracle::scale_of(problem);
      logits.inputs = {Matrix(scale * problem.inputs[0] * problem.inputs[1].transpose())};
      logits.inputs[0].diagonal().array() -= scale * 0.75L;
      const Answer got = evaluate<Real>(problem);
      const Answer expected = evaluate<Real>(logits);
      const Matrix& G = expected.gradients[0];
      const Real tolerance = 1000 * epsilon<Real>;
      CHECK(relative_error(got.value, expected.value) <= tolerance);
      CHECK(relative_error(got.gradients[0], Matrix(scale * G * problem.inputs[1])) <= tolerance);
      CHECK(relative_error(*got.d_log_scale, G.cwiseProduct(logits.inputs[0]).sum()) <= tolerance);
    }
}

TEMPLATE_TEST_CASE("targets: the scale's gradient stops at its limit", "[targets]", float, double) {
  Random random(112);
  for (const Loss loss : embedding_losses) {
    Problem problem = with_everything(loss, 13, 5, false, random);
    problem.log_scale = 5;
    CHECK(*evaluate<TestType>(problem).d_log_scale == 0);
  }
}

TEMPLATE_TEST_CASE("targets: huge margins neither overflow nor give NaN", "[targets]", float,
                   double) {
  Random random(113);
  for (const Loss loss : embedding_losses)
    for (const double margin : {1e4, -1e4, 1e30, -1e30}) {
      Problem problem = plain_problem(loss, 13, 5, random, 13);
      problem.positive_margin = margin;
      const Answer got = evaluate<TestType>(problem);
      const Answer expected = oracle_answer(problem);
      CAPTURE(describe(loss).function, margin);
      // Below the smallest number a loss is 0.
      check_answer(got, expected, tolerance_of<TestType>(problem), underflow<TestType>);
      problem.positive_margin = 0;
      problem.false_negative_margin = margin;
      const Answer all_or_none = evaluate<TestType>(problem);
      if (margin > 0) CHECK(all_or_none.value == 0);
      problem.false_negative_margin.reset();
      if (margin < 0)
        CHECK(relative_error(all_or_none.value, evaluate_value<TestType>(problem))
              <= tolerance_of<TestType>(problem));
    }
}

TEST_CASE("targets: any storage, form and budget gives the same bits", "[targets][bits]") {
  for (const Loss loss : softmax_losses)
    for (const bool decoupled : {false, true})
      for (const bool cold : {false, true})
        for (const bool tells : {false, true}) {
          Random random(114);
          Problem problem = with_everything(loss, 243, 19, false, random);
          if (!tells) problem.false_negative_margin.reset();
          if (cold && has_scale(loss)) problem = cold_problem(problem, true);
          problem.decoupled = decoupled;
          const Answer expected = evaluate<float>(problem);
          CAPTURE(describe(loss).function, decoupled, cold, tells);
          for (const Layout layout : all_layouts)
            CHECK(same_bits(evaluate<float>(problem, layout), expected));
          CHECK(same_bits(evaluate_value<float>(problem), expected.value));
          for (const std::size_t budget : {std::size_t(0), std::size_t(1) << 18}) {
            contrastive::Workspace workspace{budget};
            for (int repetition = 0; repetition < 2; ++repetition)
              CHECK(
                  same_bits(evaluate_into<float>(problem, Layout::row_major, workspace), expected));
          }
        }
}
