// NT-Xent and SupCon, whose rows are each other's candidates: corners, ties, labels, and what
// random options leave of a batch. What holds of every loss is tested with the others.
#include <algorithm>
#include <contrastive/detail/strips.hpp>

#include "support/build.hpp"
#include "support/catch.hpp"
#include "support/check.hpp"
#include "support/problems.hpp"
#include "support/refused.hpp"

using namespace contrastive_tests;

namespace {

constexpr Loss both_losses[] = {Loss::nt_xent, Loss::sup_con};

/// Rows below, at and above a chunk of columns (16 to 48) and a strip of rows (at most 240).
constexpr Index sizes[] = {2,  3,  12, 23,  24,  25,  47,  48,  49,
                           63, 64, 65, 119, 120, 121, 239, 240, 241};

void check_zero(const Problem& problem) {
  CAPTURE(describe(problem.loss).function, problem.batch());
  const auto check = [&](const Answer& got, const Matrix& rows) {
    CHECK(got.value == 0);
    for (const Matrix& gradient : got.gradients) CHECK(largest(gradient) == 0);
    CHECK(got.d_log_scale.value_or(0) == 0);
    CHECK(largest(rows) == 0);
  };
  const bool rows = problem.weights.empty();
  check(evaluate<float>(problem), rows ? evaluate_rows<float>(problem) : Matrix());
  check(evaluate<double>(problem), rows ? evaluate_rows<double>(problem) : Matrix());
}

/// NT-Xent's L_i where a candidate more similar than the positive is none.
Real row_loss_without_more_similar(const Problem& problem, Index i) {
  const Index batch = problem.batch();
  Matrix z(2 * batch, problem.inputs[0].cols());
  z << problem.inputs[0], problem.inputs[1];
  if (problem.cosine) z.rowwise().normalize();
  const Index p = (i + batch) % (2 * batch);
  const oracle::Rows rows = oracle::to_rows(z);
  const auto similarity = [&](Index j) {
    return oracle::dot(rows[static_cast<std::size_t>(i)], rows[static_cast<std::size_t>(j)]);
  };
  const Real own = similarity(p);
  Real others = 0;
  for (Index j = 0; j < 2 * batch; ++j)
    if (j != i && j != p && similarity(j) <= own)
      others += std::exp(oracle::scale_of(problem) * (similarity(j) - own));
  return std::log1p(others);
}

/// The answer does not depend on what labels are called.
Problem relabelled(Problem problem, const Ids& names) {
  for (std::int64_t& label : problem.labels) label = names[static_cast<std::size_t>(label)];
  return problem;
}

}  // namespace

TEST_CASE("views: random combinations of options", "[views]") {
  for (const Loss loss : both_losses) {
    Random random(201);
    for (const Index batch : sizes)
      for (int repetition = 0; repetition < 2; ++repetition) {
        const Problem problem = random_problem(loss, batch, 5, random);
        CAPTURE(repetition);
        check_loss(problem);
        check_loss(cold_problem(problem, repetition == 1));
      }
  }
}

TEST_CASE("views: a single item has no other candidate than its positive", "[views]") {
  Random random(202);
  for (const bool cosine : {true, false}) {
    Problem problem = plain_problem(Loss::nt_xent, 1, 5, random);
    problem.cosine = cosine;
    check_zero(problem);
    problem.label_smoothing = 0.1;
    problem.positive_margin = 0.25;
    problem.false_negative_margin = 0.1;
    check_zero(problem);
    problem.decoupled = true;  // an empty sum
    check_refused(problem, {"row 0", "decoupled"});
    problem = plain_problem(Loss::sup_con, 1, 5, random);
    problem.cosine = cosine;
    check_zero(problem);
  }
}

TEST_CASE("views: items that are all the same", "[views]") {
  Random random(203);
  for (const Index batch : {2, 24, 25, 121}) {
    Problem problem = plain_problem(Loss::nt_xent, batch, 5, random);
    problem.pos_ids.assign(static_cast<std::size_t>(batch), 7);
    check_zero(problem);
    problem.query_ids = problem.pos_ids;
    problem.label_smoothing = 0.5;
    check_zero(problem);
  }
}

TEMPLATE_TEST_CASE("views: equal rows give the log of the number of candidates", "[views][field]",
                   float, double) {
  for (const Index batch : {2, 4, 24, 25, 60, 121}) {
    Problem problem = dot_problem(Loss::nt_xent, {}, 0.05);
    problem.inputs = {Matrix::Constant(batch, 3, 0.3L), Matrix::Constant(batch, 3, 0.3L)};
    problem.cosine = true;
    for (const Loss loss : both_losses) {
      problem.loss = loss;
      if (loss == Loss::sup_con) {
        Matrix z(2 * batch, 3);
        z << problem.inputs[0], problem.inputs[1];
        problem.inputs = {z};
        for (Index i = 0; i < 2 * batch; ++i) problem.labels.push_back(i / 2);
      }
      const Answer got = evaluate<TestType>(problem);
      CAPTURE(describe(loss).function, batch);
      const Real tolerance = 16 * epsilon<TestType>;
      CHECK(relative_error(got.value, std::log(static_cast<Real>(2 * batch - 1)))
            <= tolerance + static_cast<Real>(batch) * epsilon<double>);
      for (const Matrix& gradient : got.gradients) CHECK(largest(gradient) <= 20 * tolerance);
    }
  }
}

TEMPLATE_TEST_CASE("views: what equals the positive is no false negative at margin 0", "[views]",
                   float, double) {
  // Row `copy` of one view repeats row `first`: to row `first` of the other view it is exactly as
  // similar as the positive, hence a candidate, and its loss at least log 2. The copies lie in one
  // block of logits, in two blocks, on both sides of a strip's end.
  const Index batch = 130;
  const std::pair<Index, Index> places[] = {{0, 1}, {3, 100}, {100, 3}, {40, 129}, {109, 110}};
  for (const bool cosine : {true, false})
    for (const Index d : {3, 300})
      for (const double temperature : {1.0, 0.5, 0.07, 0.0123, 0.001}) {
        Random random(204);
        Problem problem = plain_problem(Loss::nt_xent, batch, d, random);
        problem.learned = false;
        problem.cosine = cosine;
        problem.temperature = cosine ? temperature : temperature * static_cast<double>(d);
        problem.false_negative_margin = 0;
        for (const auto& [first, copy] : places)
          for (const std::size_t view : {std::size_t(0), std::size_t(1)}) {
            Problem tied = problem;
            tied.inputs[view].row(copy) = tied.inputs[view].row(first);
            // Row `first` of the other view, which alone is worked out.
            const Index row = view == 0 ? batch + first : first;
            const Real expected = row_loss_without_more_similar(tied, row);
            const Real got = evaluate_rows<TestType>(tied)(row, 0);
            CAPTURE(cosine, d, temperature, first, copy, view);
            CHECK(got >= std::log(Real(2)) * (1 - 4 * epsilon<TestType>));
            CHECK(std::abs(got - expected)
                  <= 4 * tolerance_by_size<TestType>(tied) * (1 + expected));
          }
      }
}

TEMPLATE_TEST_CASE("views: a candidate a hair more similar than the positive is a false negative",
                   "[views]", float, double) {
  // Similarities are integers over 4, 4/4 for the positive, 5/4 and 3/4; the scale is the square of
  // an exact number, so that logits are exact in every type.
  Problem problem = dot_problem(Loss::nt_xent, {}, 0.25);
  problem.inputs = {matrix({{1, 0}, {0, 0}, {0, 0}}), matrix({{1, 3}, {1.25, 1}, {0.75, 2}})};
  problem.weights = {1, 0, 0};
  const auto loss_of_first = [&](double margin) {
    problem.false_negative_margin = margin;
    Problem unweighted = problem;
    unweighted.weights.clear();
    return evaluate_rows<TestType>(unweighted)(0, 0);
  };
  // Logits 4; 5, 3 of Zb and twice 0 of Za.
  const Real below = std::exp(Real(-1)) + 2 * std::exp(Real(-4));
  const Real tolerance = 8 * epsilon<TestType>;
  CHECK(relative_error(loss_of_first(0), std::log1p(below)) <= tolerance);
  CHECK(relative_error(loss_of_first(-0.25), std::log1p(below + std::exp(Real(1)))) <= tolerance);
  CHECK(relative_error(loss_of_first(0.25), std::log1p(below)) <= tolerance);
  CHECK(relative_error(loss_of_first(0.375), std::log1p(2 * std::exp(Real(-4)))) <= tolerance);
  CHECK(relative_error(loss_of_first(1), std::log1p(2 * std::exp(Real(-4)))) <= tolerance);
  CHECK(loss_of_first(1.125) == 0);
}

TEST_CASE("classes: no class with two members", "[views]") {
  Random random(205);
  for (const Index batch : sizes) {
    Problem problem = plain_problem(Loss::sup_con, batch, 5, random);
    for (Index i = 0; i < batch; ++i) problem.labels[static_cast<std::size_t>(i)] = 3 - 2 * i;
    check_zero(problem);
    problem.log_scale = 4.5;
    check_zero(problem);
    problem.weights = random_weights(batch, random);
    check_zero(problem);
  }
}

TEST_CASE("classes: one alone", "[views]") {
  Random random(206);
  for (const Index batch : sizes)
    for (const bool cold : {false, true}) {
      Problem problem = plain_problem(Loss::sup_con, batch, 5, random);
      problem.labels.assign(static_cast<std::size_t>(batch), -3);
      if (cold) problem = cold_problem(problem, batch % 2 == 1);
      if (batch == 2)  // each other's only candidate
        check_zero(problem);
      else
        check_loss(problem);
    }
}

TEST_CASE("classes: all weight on rows that are no anchors", "[views]") {
  Random random(207);
  Problem problem = plain_problem(Loss::sup_con, 5, 4, random);
  problem.labels = {1, 2, 1, 3, 4};
  problem.weights = {0, 1, 0, 0, 2};
  check_zero(problem);
  problem.weights = {0, 0, 0, 0, 0};
  check_refused(problem, {"weights", "0"});
  // Beside weight on anchors that on others does not count.
  problem.weights = {1, 0, 0.5, 0, 0};
  const Answer expected = evaluate<double>(problem);
  CHECK(expected.value > 0.1L);
  problem.weights = {1, 1e300, 0.5, 3, 0};
  CHECK(same_bits(evaluate<double>(problem), expected));
  check_loss(problem);
  for (double& w : problem.weights) w *= 0x1p-900;
  CHECK(same_bits(evaluate<double>(problem), expected));
}

TEST_CASE("classes: weights are none where they are equal", "[views]") {
  Random random(208);
  for (const Index batch : {3, 49, 121}) {
    Problem problem = plain_problem(Loss::sup_con, batch, 4, random);
    const Answer expected = evaluate<double>(problem);
    problem.weights.assign(static_cast<std::size_t>(batch), 0.7);
    check_answer(evaluate<double>(problem), expected, 64 * epsilon<double>);
  }
}

TEST_CASE("classes: labels of any type and place in memory", "[views][lists]") {
  Random random(209);
  Problem problem = plain_problem(Loss::sup_con, 60, 5, random);
  REQUIRE(*std::max_element(problem.labels.begin(), problem.labels.end()) < 21);
  const Answer expected = evaluate<double>(problem);
  Ids names;  // each fits all types
  for (std::int64_t k = 0; k < 21; ++k) names.push_back(107 + (k * 8) % 21);
  Ids signed_names;
  for (std::int64_t k = 0; k < 21; ++k) signed_names.push_back((k % 2 == 0 ? 1 : -1) * 1000 * k);
  for (const LabelType type : all_label_types) {
    Problem named = relabelled(problem, names);
    named.label_type = type;
    CAPTURE(static_cast<int>(type));
    CHECK(same_bits(evaluate<double>(named), expected));
    CHECK(same_bits(evaluate_value<double>(named), expected.value));
    CHECK(same_bits(evaluate_rows<double>(named), evaluate_rows<double>(problem)));
    if (type == LabelType::uint8) continue;
    named = relabelled(problem, signed_names);
    named.label_type = type;
    CHECK(same_bits(evaluate<double>(named), expected));
    named.labels.pop_back();
    check_refused(named, {"labels", "59", "60"});
  }
}

TEST_CASE("classes: labels of any size are compared whole", "[views][lists]") {
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const Ids extremes[] = {
      {least, most, 0, -1},                                       // differ by more than an int64
      {most, most - 1, most - 2, most - 3},                       // the same as a double
      {least, least + 1, least + 2, least + 3},                   // and
      {std::int64_t{1} << 32, std::int64_t{1} << 33, 0, 1},       // the same as 32 bits, in part
      {std::int64_t{1} << 24, (std::int64_t{1} << 24) + 1, 0, 1}  // the same as a float
  };
  Random random(210);
  Problem problem = plain_problem(Loss::sup_con, 9, 5, random);
  problem.labels = {0, 1, 2, 3, 0, 1, 2, 0, 0};
  for (const Ids& names : extremes) {
    check_loss(relabelled(problem, names));
    CHECK(same_bits(evaluate<float>(relabelled(problem, names)), evaluate<float>(problem)));
  }
}

TEST_CASE("classes: hundreds of pairs", "[views]") {
  // 600 classes of two rows that lie half a batch apart.
  Random random(211);
  Problem problem = plain_problem(Loss::sup_con, 600, 4, random);
  for (Index i = 0; i < 600; ++i) problem.labels[static_cast<std::size_t>(i)] = i % 300;
  check_loss(problem);
}

TEMPLATE_TEST_CASE("views: strips of symmetric logits have each pair of rows once", "[views]",
                   float, double, long double) {
  // As an entry and its mirror in the strip's own chunks, else as one entry that stands for both.
  using Plan = contrastive::detail::StripPlan<TestType>;
  for (const Index n :
       {1, 2, 47, 48, 49, 240, 241, 5000, 100000, 200000, 400000, 1000000, 9000000}) {
    const Plan plan = Plan::of_symmetric(n);
    CAPTURE(n, plan.strip_rows);
    bool good = plan.strips() * plan.strip_rows >= n && (plan.strips() - 1) * plan.strip_rows < n;
    Index covered = 0;  // rows whose pairs with all rows before their strip's chunks are covered
    for (Index index = 0; index < plan.strips(); ++index) {
      const Index first = index * plan.strip_rows;
      const Index last = std::min(first + plan.strip_rows, n);
      const Index begin = plan.first_chunk(index) * Plan::chunk;
      const Index beyond = std::min(plan.first_beyond(index) * Plan::chunk, n);
      good = good && begin == first && covered == begin && last <= beyond;
      covered = beyond;
    }
    CHECK(good);
    CHECK(covered == n);
  }
}
