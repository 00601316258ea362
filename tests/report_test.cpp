// The report on a batch, against plain loops over all similarities.
#include "support/build.hpp"
#include "support/catch.hpp"
#include "support/check.hpp"
#include "support/problems.hpp"
#include "support/refused.hpp"

using namespace contrastive_tests;

namespace {

constexpr Loss losses_with_report[] = {Loss::info_nce, Loss::hard_negative};

bool is_plain(const Problem& p) {
  return p.loss == Loss::info_nce && p.weights.empty() && p.label_smoothing == 0
         && p.positive_margin == 0 && !p.decoupled && p.log_prior.empty();
}

Report oracle_report(const Problem& problem) {
  using namespace oracle;
  Rows candidates = normalised(problem, to_rows(problem.inputs[1]));
  if (problem.inputs.size() > 2)
    for (const Row& row : normalised(problem, to_rows(problem.inputs[2])))
      candidates.push_back(row);
  const Rows c = products(normalised(problem, to_rows(problem.inputs[0])), candidates);
  const std::size_t batch = c.size(), cols = candidates.size();
  const Candidates by_id = candidates_of(problem, batch, cols - batch);
  Candidates is = by_id;
  drop_false_negatives(problem, c, is);
  const Row w = shares(problem, batch);

  Report report;
  report.loss = oracle_answer(problem).value;
  Real negatives = 0;
  for (std::size_t i = 0; i < batch; ++i) {
    bool first_in_row = true, first_in_column = true;
    Real count = problem.decoupled ? 0 : 1;
    for (std::size_t j = 0; j < cols; ++j) {
      if (j == i) continue;
      const bool offered = j < batch || belongs(problem, i, j - batch, batch, cols - batch);
      if (offered && !is[i][j]) report.masked += 1;
      if (by_id[i][j] && c[i][j] >= c[i][i]) first_in_row = false;
      if (j < batch && by_id[j][i] && c[j][i] >= c[i][i]) first_in_column = false;
      if (!is[i][j]) continue;
      count += 1;
      negatives += 1;
      report.mean_negative += c[i][j];
    }
    if (count > 0) report.log_candidates += w[i] * std::log(count);
    report.top1_rows += (first_in_row ? 1 : 0) / static_cast<Real>(batch);
    report.top1_columns += (first_in_column ? 1 : 0) / static_cast<Real>(batch);
    report.mean_positive += c[i][i] / static_cast<Real>(batch);
  }
  if (negatives > 0) report.mean_negative /= negatives;
  if (is_plain(problem) && report.masked == 0)
    report.mutual_information = std::log(static_cast<Real>(batch)) - report.loss;
  return report;
}

/// Shares and counts exactly, similarities to their size.
template <class T>
void check_report(const Problem& problem) {
  const Report expected = oracle_report(problem);
  const Report got = evaluate_report<T>(problem);
  const Real tolerance = tolerance_by_size<T>(problem);
  const Real size = std::max(Real(1), std::abs(expected.mean_positive));
  CAPTURE(describe(problem.loss).function, problem.batch(), sizeof(T));
  CHECK(std::abs(got.loss - expected.loss) <= tolerance * std::max(Real(1), expected.loss));
  CHECK(std::abs(got.log_candidates - expected.log_candidates) <= 64 * epsilon<double> * 6);
  CHECK(std::abs(got.top1_rows - expected.top1_rows) <= 64 * epsilon<double>);
  CHECK(std::abs(got.top1_columns - expected.top1_columns) <= 64 * epsilon<double>);
  CHECK(std::abs(got.mean_positive - expected.mean_positive) <= tolerance * size);
  CHECK(std::abs(got.mean_negative - expected.mean_negative) <= tolerance * size);
  CHECK(got.masked == expected.masked);
  REQUIRE(got.mutual_information.has_value() == expected.mutual_information.has_value());
  if (got.mutual_information)
    CHECK(std::abs(*got.mutual_information - *expected.mutual_information)
          <= tolerance * std::max(Real(1), expected.loss));
  // The same but for roundings, as a small batch of InfoNCE has a path of its own: a few units of
  // a logit's last place, of which the losses here are differences.
  const Real alone = evaluate_value<T>(problem);
  const Real unit = static_cast<Real>(std::numeric_limits<T>::epsilon());
  CHECK(std::abs(static_cast<Real>(got.loss) - alone) <= 64 * unit * (1 + std::abs(alone)));
}

void check_report(const Problem& problem) {
  check_report<float>(problem);
  check_report<double>(problem);
}

}  // namespace

TEST_CASE("report: every batch against plain loops", "[report]") {
  for (const Loss loss : losses_with_report) {
    Random random(131);
    for (const Index batch : {1, 2, 3, 13, 47, 48, 49, 97, 240, 241})
      check_report(plain_problem(loss, batch, 5, random, batch / 2 + 1));
  }
}

TEST_CASE("report: random combinations of options", "[report]") {
  for (const Loss loss : losses_with_report) {
    Random random(132);
    for (const Index batch : {1, 2, 5, 13, 31, 49, 97})
      for (int repetition = 0; repetition < 10; ++repetition)
        check_report(random_problem(loss, batch, 5, random, 2 * batch));
  }
}

TEMPLATE_TEST_CASE("report: field 4, an encoder that has collapsed", "[report][field]", float,
                   double, long double) {
  for (const Loss loss : losses_with_report)
    for (const bool own : {false, true})
      for (const Index batch : {4, 50, 241}) {
        if (own && loss != Loss::hard_negative) continue;
        Random random(133);
        Problem problem = plain_problem(loss, batch, 7, random, 2 * batch);
        for (Matrix& x : problem.inputs) x = problem.inputs[0].row(0).replicate(x.rows(), 1).eval();
        problem.own_scope = own;
        const Report got = evaluate_report<TestType>(problem);
        const Index candidates = loss == Loss::info_nce ? batch : own ? batch + 2 : 3 * batch;
        CAPTURE(describe(loss).function, own, batch);
        CHECK(got.top1_rows == 0);
        CHECK(got.top1_columns == 0);
        CHECK(std::abs(got.log_candidates - std::log(static_cast<Real>(candidates))) <= 1e-13L);
        CHECK(std::abs(got.loss - got.log_candidates) <= 1e-6L);
        CHECK(std::abs(got.mean_positive - 1) <= 1e-6L);
        CHECK(std::abs(got.mean_negative - 1) <= 1e-6L);
        if (loss == Loss::info_nce) CHECK(std::abs(got.mutual_information.value()) <= 1e-6L);
      }
}

TEMPLATE_TEST_CASE("report: an own negative that equals the positive ties with it", "[report]",
                   float, double) {
  Random random(134);
  for (const Index d : {3, 300}) {
    Problem problem = plain_problem(Loss::hard_negative, 60, d, random, 60);
    problem.inputs[2] = problem.inputs[1];
    for (const bool own : {false, true}) {
      problem.own_scope = own;
      CHECK(evaluate_report<TestType>(problem).top1_rows == 0);
      CHECK(evaluate_report<TestType>(problem).top1_columns > 0);
    }
  }
}

TEST_CASE("report: by hand", "[report]") {
  const Matrix c = matrix({{.9, .1, .2}, {.5, .4, .3}, {.2, .4, .8}});
  Problem problem = similarities_problem(Loss::info_nce, c, 0.1);
  const Report plain = evaluate_report<double>(problem);
  CHECK(std::abs(plain.top1_rows - 2 / 3.0L) < 1e-15L);
  CHECK(std::abs(plain.top1_columns - 2 / 3.0L) < 1e-15L);  // .4 ties in the second
  CHECK(std::abs(plain.mean_positive - .7L) < 1e-15L);
  CHECK(std::abs(plain.mean_negative - 1.7L / 6) < 1e-15L);
  CHECK(plain.masked == 0);
  CHECK(plain.mutual_information.has_value());
  // What the loss leaves out as a false negative does not make the encoder's rank better.
  problem.false_negative_margin = 0;
  const Report without = evaluate_report<double>(problem);
  CHECK(without.masked == 1);  // .5 above .4; the tie stays
  CHECK(without.top1_rows == plain.top1_rows);
  CHECK(std::abs(without.mean_negative - 1.2L / 5) < 1e-15L);
  CHECK(std::abs(without.log_candidates - (2 * std::log(3.0L) + std::log(2.0L)) / 3) < 1e-15L);
  CHECK_FALSE(without.mutual_information.has_value());
  // What ids leave out is no competitor.
  problem.false_negative_margin.reset();
  problem.pos_ids = {1, 1, 2};
  const Report masked = evaluate_report<double>(problem);
  CHECK(masked.masked == 2);
  CHECK(std::abs(masked.top1_rows - 1) < 1e-15L);
  CHECK_FALSE(masked.mutual_information.has_value());
  problem.pos_ids = {1, 3, 2};
  CHECK(evaluate_report<double>(problem).mutual_information == plain.mutual_information);
}

TEST_CASE("report: where there is no information bound", "[report]") {
  Random random(135);
  const Problem plain = plain_problem(Loss::info_nce, 5, 4, random);
  const auto has_bound = [](const Problem& problem) {
    return evaluate_report<double>(problem).mutual_information.has_value();
  };
  CHECK(has_bound(plain));
  Problem problem = plain;
  problem.weights.assign(5, 1);
  CHECK_FALSE(has_bound(problem));
  problem = plain;
  problem.label_smoothing = 0.1;
  CHECK_FALSE(has_bound(problem));
  problem = plain;
  problem.positive_margin = 0.1;
  CHECK_FALSE(has_bound(problem));
  problem = plain;
  problem.decoupled = true;
  CHECK_FALSE(has_bound(problem));
  problem = plain;
  problem.log_prior.assign(5, 0);
  CHECK_FALSE(has_bound(problem));
  CHECK_FALSE(has_bound(plain_problem(Loss::hard_negative, 5, 4, random, 1)));
  CHECK(has_bound(plain_problem(Loss::hard_negative, 5, 4, random, 0)));
}

TEMPLATE_TEST_CASE("report: every storage gives the same", "[report][bits]", float, double) {
  for (const Loss loss : losses_with_report) {
    Random random(136);
    const Problem problem = random_problem(loss, 97, 9, random, 194);
    const Report expected = evaluate_report<TestType>(problem);
    for (const Layout layout : {Layout::row_major, Layout::inner_stride}) {
      const Report got = evaluate_report<TestType>(problem, layout);
      CHECK(same_bits(got.loss, expected.loss));
      CHECK(same_bits(got.mean_negative, expected.mean_negative));
      CHECK(got.top1_rows == expected.top1_rows);
      CHECK(got.masked == expected.masked);
    }
  }
}

TEST_CASE("report: what is refused", "[report][errors]") {
  for (const Loss loss : losses_with_report) {
    Random random(137);
    const Problem good = plain_problem(loss, 3, 4, random, 6);
    CHECK(report_refusal<float>(good).kind.empty());
    Problem bad = good;
    bad.label_smoothing = 2;
    check_message(report_refusal<float>(bad), "invalid_argument", "batch_report",
                  {"label_smoothing", "2"});
    bad = good;
    bad.inputs[0].row(2).setZero();
    check_message(report_refusal<float>(bad), "invalid_argument", "batch_report", {"Q", "row 2"});
  }
}
