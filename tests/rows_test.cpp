// The losses of single rows.
#include <algorithm>

#include "support/build.hpp"
#include "support/catch.hpp"
#include "support/check.hpp"
#include "support/problems.hpp"
#include "support/refused.hpp"

using namespace contrastive_tests;

namespace {

constexpr Loss losses_with_rows[] = {Loss::info_nce, Loss::hard_negative, Loss::clip,
                                     Loss::siglip,   Loss::nt_xent,       Loss::sup_con};

Problem without_weights(Problem problem) {
  problem.weights.clear();
  return problem;
}

/// Each row by its own size, but for losses that cancel: those by 1, see oracle::value_size.
Real rows_error(const Matrix& got, const Answer& expected) {
  REQUIRE(got.cols() == 1);
  REQUIRE(got.rows() == expected.rows.rows());
  Real worst = 0;
  for (Index i = 0; i < got.rows(); ++i) {
    const Real size = std::max(std::abs(expected.rows(i, 0)), expected.value_size);
    const Real off = std::abs(got(i, 0) - expected.rows(i, 0));
    if (!(off <= underflow<float>)) worst = std::max(worst, off / size);
  }
  return got.hasNaN() ? std::numeric_limits<Real>::infinity() : worst;
}

template <class T>
void check_rows(const Problem& problem, const Answer& expected) {
  const Matrix got = evaluate_rows<T>(problem);
  CAPTURE(describe(problem.loss).function, problem.batch(), sizeof(T));
  // The error of a mean, twice: a row's is that of both its logits, and nothing averages it.
  CHECK(rows_error(got, expected) <= 2 * tolerance_by_size<T>(problem));
  // The mean over rows is the loss; a row that is no anchor is 0, and left out of the mean.
  Real rows = static_cast<Real>(got.rows());
  if (problem.loss == Loss::sup_con) {
    const Ids& labels = problem.labels;
    rows = 0;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const bool anchor = std::count(labels.begin(), labels.end(), labels[i]) > 1;
      if (!anchor) CHECK(got(static_cast<Index>(i), 0) == 0);
      rows += anchor ? 1 : 0;
    }
    if (rows == 0) rows = 1;
  }
  const Real size = std::max(got.cwiseAbs().sum() / rows, expected.value_size);
  CHECK(std::abs(evaluate_value<T>(problem) - got.sum() / rows) <= 16 * epsilon<T> * size);
}

void check_rows(const Problem& problem) {
  const Answer expected = oracle_answer(problem);
  check_rows<float>(problem, expected);
  check_rows<double>(problem, expected);
}

}  // namespace

TEST_CASE("rows: every batch against the plain loop", "[rows]") {
  for (const Loss loss : losses_with_rows) {
    Random random(121);
    for (const Index batch : {1, 2, 3, 13, 47, 48, 49, 97, 240, 241})
      check_rows(plain_problem(loss, batch, 5, random, batch / 2 + 1));
  }
}

TEST_CASE("rows: random combinations of options", "[rows]") {
  for (const Loss loss : losses_with_rows) {
    Random random(122);
    for (const Index batch : {1, 2, 5, 13, 31, 49, 97})
      for (int repetition = 0; repetition < 8; ++repetition) {
        const Problem problem = without_weights(random_problem(loss, batch, 5, random, 2 * batch));
        check_rows(problem);
        check_rows(cold_problem(problem, repetition % 2 == 1));
      }
  }
}

TEST_CASE("rows: a row's loss is the loss with all weight on it", "[rows]") {
  for (const Loss loss : losses_with_rows) {
    Random random(123);
    const Problem problem = without_weights(random_problem(loss, 7, 5, random, 14));
    const Matrix rows = evaluate_rows<double>(problem);
    for (Index i = 0; i < 7; ++i) {  // both of an item's, in NT-Xent
      const Real expected = loss == Loss::nt_xent ? (rows(i, 0) + rows(i + 7, 0)) / 2 : rows(i, 0);
      CHECK(relative_error(evaluate_value<double>(only_row(problem, i)), expected)
            <= 4 * epsilon<double>);
    }
  }
}

TEMPLATE_TEST_CASE("rows: every storage and form gives the same bits", "[rows][bits]", float,
                   double, long double) {
  contrastive::Workspace workspace;
  for (const Loss loss : losses_with_rows) {
    Random random(124);
    for (const Index batch : {97, 5, 50}) {
      const Problem problem = without_weights(random_problem(loss, batch, 9, random, 2 * batch));
      const Matrix expected = evaluate_rows<TestType>(problem);
      for (const Layout layout : {Layout::column_major, Layout::row_major, Layout::inner_stride}) {
        CHECK(same_bits(evaluate_rows<TestType>(problem, layout), expected));
        CHECK(same_bits(evaluate_rows_into<TestType>(problem, layout, workspace), expected));
      }
    }
  }
}

TEMPLATE_TEST_CASE("rows: field 6 and field 10, row by row", "[rows][field]", float, double) {
  const Real tolerance = std::max(Real(0.51e-6L), 8 * epsilon<TestType>);
  const auto is_near = [&](const Matrix& got, const Matrix& expected) {
    return got.rows() == expected.rows() && largest(got - expected) <= tolerance;
  };
  Problem problem = similarities_problem(
      Loss::info_nce, matrix({{1, .2, .3, .1}, {.2, 1, .1, .4}, {.5, .6, 1, .3}, {.1, .2, .3, 1}}),
      0.5);
  problem.pos_ids = {7, 7, 7, 9};
  CHECK(is_near(evaluate_rows<TestType>(problem),
                matrix({{.152978}, {.263282}, {.220417}, {.478587}})));
  problem =
      similarities_problem(Loss::info_nce, matrix({{.9, .8, .1}, {.7, .6, .2}, {.3, .2, .5}}), 0.5);
  problem.pos_ids = {1, 1, 2};
  CHECK(is_near(evaluate_rows<TestType>(problem), matrix({{.183901}, {.371101}, {.797116}})));
}

TEST_CASE("rows: what is refused", "[rows][errors]") {
  for (const Loss loss : losses_with_rows) {
    Random random(125);
    const auto check = [&](const Problem& problem, const std::string& kind,
                           const std::vector<std::string>& words) {
      const Refusals got = row_refusals<float>(problem);
      std::string name = describe(loss).function;
      name.replace(name.rfind("_loss"), 5, "_rows");
      check_message(got.value, kind, name, words);
      check_message(got.into, kind, name, words);
      CHECK(got.result_is_untouched);
    };
    const Problem good = plain_problem(loss, 3, 4, random, 6);
    CHECK(row_refusals<float>(good).into.kind.empty());
    Problem bad = good;
    bad.weights = {1, 1, 1};
    check(bad, "invalid_argument", {"weights", "unweighted"});
    bad = good;
    const std::size_t k = loss == Loss::sup_con ? 0 : 1;
    bad.inputs[k](1, 2) = std::numeric_limits<Real>::quiet_NaN();
    check(bad, "invalid_argument", {describe(loss).inputs[k], "row 1", "column 2"});
    bad = good;
    if (loss == Loss::sup_con) {
      bad.labels = {1, 1};
      check(bad, "invalid_argument", {"labels", "2", "3"});
    } else {
      bad.inputs[1] = Matrix::Ones(2, 4);
      check(bad, "invalid_argument", {"3 x 4", "2 x 4"});
    }
    bad = good;
    bad.cosine = false;
    bad.inputs[k].setConstant(1);
    bad.inputs[0].row(1).setConstant(1e38L);
    if (is_symmetric(loss)) bad.inputs[0].row(0).setZero();
    check(bad, "overflow_error", {"row 1"});
  }
}
