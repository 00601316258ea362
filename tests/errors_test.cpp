// What bad input gets: a message that names the function, the argument and the numbers, from every
// form of the call, before anything is written.
#include <contrastive/alignment_uniformity.hpp>
#include <contrastive/temperature.hpp>
#include <limits>
#include <string>
#include <utility>

#include "support/build.hpp"
#include "support/catch.hpp"
#include "support/check.hpp"
#include "support/problems.hpp"
#include "support/refused.hpp"

using namespace contrastive_tests;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// 3 pairs of 4 numbers, 6 extra negatives, no options.
Problem good(Loss loss) {
  Random random(5);
  return plain_problem(loss, 3, 4, random, 6);
}

Problem good_fixed(Loss loss) {
  Problem problem = good(loss);
  problem.learned = false;
  problem.temperature = 0.5;
  return problem;
}

}  // namespace

TEST_CASE("the problems that are made bad below are good", "[errors]") {
  for (const Loss loss : all_losses) {
    check_accepted<float>(good(loss));
    check_accepted<double>(good(loss));
    check_accepted<double>(good_fixed(loss));
  }
}

TEST_CASE("matrices whose shapes do not fit", "[errors]") {
  for (const Loss loss : all_losses) {
    const auto names = describe(loss).inputs;
    for (std::size_t k = 1; k < names.size(); ++k) {
      Problem problem = good(loss);
      if (loss == Loss::hard_negative && k == 2) {
        problem.inputs[k] = Matrix::Ones(6, 5);  // any number of rows will do
        check_refused(problem, {names[0], names[k], "3 x 4", "6 x 5"});
        continue;
      }
      problem.inputs[k] = Matrix::Ones(2, 4);
      check_refused(problem, {names[0], names[k], "3 x 4", "2 x 4"});
      problem.inputs[k] = Matrix::Ones(3, 5);
      check_refused(problem, {names[0], names[k], "3 x 4", "3 x 5"});
    }
  }
}

TEST_CASE("logits that are not square", "[errors]") {
  for (const Loss loss : all_losses) {
    if (!takes_logits(loss)) continue;
    Problem problem = good(loss);
    problem.inputs = {Matrix::Ones(3, 2)};
    check_refused(problem, {"S", "3 x 2"});
    problem.inputs = {Matrix::Ones(2, 3)};
    check_refused(problem, {"S", "2 x 3"});
  }
}

TEST_CASE("an empty batch", "[errors]") {
  for (const Loss loss : all_losses) {
    const std::string name = describe(loss).inputs.front();
    Problem problem = good(loss);
    for (Matrix& x : problem.inputs) x.resize(0, takes_logits(loss) ? 0 : 4);
    check_refused(problem, {name, takes_logits(loss) ? "0 x 0" : "0 x 4"});
    if (takes_logits(loss)) continue;
    problem = good(loss);
    for (Matrix& x : problem.inputs) x.resize(x.rows(), 0);
    check_refused(problem, {name, "3 x 0"});
  }
}

TEST_CASE("uniformity of a single row", "[errors]") {
  for (const bool cosine : {true, false}) {
    Problem problem = good(Loss::uniformity);
    problem.cosine = cosine;
    problem.inputs = {Matrix::Ones(1, 4)};
    check_refused(problem, {"Z", "1"});
  }
}

TEMPLATE_TEST_CASE("a matrix that is not finite", "[errors]", float, double, long double) {
  for (const Loss loss : all_losses) {
    const auto names = describe(loss).inputs;
    for (std::size_t k = 0; k < names.size(); ++k)
      for (const double bad : {not_a_number, infinity, -infinity}) {
        Problem problem = good(loss);
        CAPTURE(names[k], bad);
        problem.inputs[k](2, 0) = not_a_number;  // later, row by row
        problem.inputs[k](1, 2) = bad;
        check_refused<TestType>(problem, {names[k], "row 1", "column 2"});
        if (!has_similarity(loss)) continue;
        problem.cosine = false;
        check_refused<TestType>(problem, {names[k], "row 1", "column 2"});
      }
  }
}

TEST_CASE("the first bad entry is found wherever it is", "[errors]") {
  Random random(3);
  Problem problem = plain_problem(Loss::info_nce, 300, 70, random);
  const std::pair<Index, Index> places[] = {{0, 0},   {0, 69},  {7, 16},  {150, 33},
                                            {255, 1}, {299, 0}, {299, 69}};
  for (const auto& [i, j] : places)
    for (const Layout layout : {Layout::column_major, Layout::row_major, Layout::inner_stride}) {
      Problem bad = problem;
      bad.inputs[1](i, j) = not_a_number;
      const Refusal got = refusals<float>(bad, layout).into;
      CAPTURE(got.message);
      CHECK(has_word(got.message, "P"));
      CHECK(has_word(got.message, "row " + std::to_string(i)));
      CHECK(has_word(got.message, "column " + std::to_string(j)));
    }
}

TEMPLATE_TEST_CASE("a zero row under cosine", "[errors]", float, double, long double) {
  for (const Loss loss : all_losses) {
    if (!has_similarity(loss)) continue;
    const auto names = describe(loss).inputs;
    for (std::size_t k = 0; k < names.size(); ++k) {
      Problem problem = good(loss);
      problem.inputs[k].row(1).setZero();
      problem.inputs[k].row(2).setZero();
      check_refused<TestType>(problem, {names[k], "row 1"});
      problem.cosine = false;
      check_accepted<TestType>(problem);
    }
  }
}

TEST_CASE("a temperature that is none", "[errors]") {
  for (const Loss loss : all_losses) {
    if (!has_scale(loss)) continue;
    Problem problem = good_fixed(loss);
    problem.temperature = 0;
    check_refused(problem, {"temperature", "0"});
    problem.temperature = -0.25;
    check_refused(problem, {"temperature", "-0.25"});
    problem.temperature = not_a_number;
    check_refused(problem, {"temperature", "nan"});
    problem.temperature = infinity;
    check_refused(problem, {"temperature", "inf"});
    problem.temperature = 1e-320;  // its inverse overflows
    check_refused(problem, {"temperature"});
    problem.temperature = 1e-40;
    check_refused<float>(problem, {"scale"});
  }
}

TEST_CASE("a learned scale that is none", "[errors]") {
  for (const Loss loss : all_losses) {
    if (!has_scale(loss)) continue;
    Problem problem = good(loss);
    for (const double alpha : {not_a_number, infinity, -infinity}) {
      problem.log_scale = alpha;
      check_refused(problem, {"alpha"});
    }
    problem = good(loss);
    problem.max_scale = 0;
    check_refused(problem, {"max_scale", "0"});
    problem.max_scale = -2.5;
    check_refused(problem, {"max_scale", "-2.5"});
    problem.max_scale = not_a_number;
    check_refused(problem, {"max_scale", "nan"});
    problem.max_scale = infinity;
    check_accepted(problem);
    problem.log_scale = 1000;
    check_refused(problem, {"alpha", "1000"});
    problem.log_scale = 100;  // 2.7e43, too much for a float
    check_refused<float>(problem, {"scale"});
    problem.log_scale = 1000;
    problem.max_scale = 100;
    check_accepted(problem);
  }
}

TEST_CASE("a bias, a margin or an exponent that is none", "[errors]") {
  for (const Loss loss : {Loss::siglip, Loss::siglip_logits})
    for (const double bias : {not_a_number, infinity, -infinity}) {
      Problem problem = good(loss);
      problem.bias = bias;
      check_refused(problem, {"bias"});
    }
  for (const double margin : {not_a_number, infinity, -infinity}) {
    Problem problem = good(Loss::triplet);
    problem.margin = margin;
    check_refused(problem, {"margin"});
  }
  for (const double exponent : {0.0, -1.5, not_a_number, infinity}) {
    Problem problem = good(Loss::alignment);
    problem.alpha = exponent;
    check_refused(problem, {"alpha"});
    problem = good(Loss::uniformity);
    problem.t = exponent;
    check_refused(problem, {"t"});
  }
  Problem problem = good(Loss::alignment);
  problem.alpha = -1.5;
  check_refused(problem, {"alpha", "-1.5"});
  problem = good(Loss::uniformity);
  problem.t = -1.5;
  check_refused(problem, {"t", "-1.5"});
}

TEST_CASE("lists of the wrong length", "[errors]") {
  for (const Loss loss : all_losses) {
    if (!has_weights(loss)) continue;
    for (const std::size_t length : {std::size_t(2), std::size_t(4)}) {
      const std::string number = std::to_string(length);
      Problem problem = good(loss);
      problem.weights.assign(length, 1.0);
      check_refused(problem, {"weights", number, "3"});
      if (!has_ids(loss)) continue;
      problem = good(loss);
      problem.query_ids.assign(length, 1);
      check_refused(problem, {"query_ids", number, "3"});
      problem = good(loss);
      problem.pos_ids.assign(length, 1);
      check_refused(problem, {"pos_ids", number, "3"});
    }
  }
  Problem problem = good(Loss::sup_con);
  for (const std::size_t length : {std::size_t(0), std::size_t(2), std::size_t(4)}) {
    problem.labels.assign(length, 1);
    check_refused(problem, {"labels", std::to_string(length), "Z", "3"});
  }
  problem = good(Loss::hard_negative);
  problem.pos_ids = {1, 2, 3};
  problem.neg_ids = {1, 2, 3};
  check_refused(problem, {"neg_ids", "3", "6"});
  problem = good(Loss::hard_negative);
  problem.own_scope = true;
  problem.offsets = {0, 6, 6};
  check_refused(problem, {"neg_offsets", "3", "4"});
}

TEST_CASE("weights that are none", "[errors]") {
  for (const Loss loss : all_losses) {
    if (!has_weights(loss)) continue;
    Problem problem = good(loss);
    problem.weights = {1, 2, -0.5};
    check_refused(problem, {"weights", "-0.5"});
    problem.weights = {0, 0, 0};
    check_refused(problem, {"weights", "0"});
    for (const double bad : {not_a_number, infinity}) {
      problem.weights = {1, bad, bad};
      check_refused(problem, {"weights", "1"});
    }
  }
}

TEST_CASE("targets that are none", "[errors]") {
  for (const Loss loss : all_losses) {
    if (!is_softmax(loss)) continue;
    const std::string what = describe(loss).inputs.front();
    Problem problem = good(loss);
    problem.label_smoothing = 1.25;
    check_refused(problem, {"label_smoothing", "1.25"});
    problem.label_smoothing = -0.5;
    check_refused(problem, {"label_smoothing", "-0.5"});
    problem.label_smoothing = not_a_number;
    check_refused(problem, {"label_smoothing", "nan"});
    problem.label_smoothing = 1;
    check_accepted(problem);

    if (has_prior(loss)) {
      problem = good(loss);
      problem.log_prior = {-1, -2};
      check_refused(problem, {"log_prior", "2", what, "3"});
      problem.log_prior = {-1, -2, -3, -4};
      check_refused(problem, {"log_prior", "4", what, "3"});
      for (const double bad : {not_a_number, infinity, -infinity}) {
        problem.log_prior = {-1, bad, bad};
        check_refused(problem, {"log_prior", "1"});
      }
      problem.log_prior = {-1, -1e300, 0};
      check_throws<float>("overflow_error", problem, {"log_prior", "1"});
      check_accepted<double>(problem);
    }
    if (takes_logits(loss)) continue;

    for (const double bad : {not_a_number, infinity, -infinity}) {
      problem = good(loss);
      problem.positive_margin = bad;
      check_refused(problem, {"positive_margin"});
      problem = good(loss);
      problem.false_negative_margin = bad;
      check_refused(problem, {"false_negative_margin"});
    }
    problem = good(loss);
    problem.positive_margin = -1e38;  // times a scale of 5
    check_throws<float>("overflow_error", problem, {"positive_margin", "-1e+38"});
    check_accepted<double>(problem);
    problem.positive_margin = 1e308;
    check_throws<double>("overflow_error", problem, {"positive_margin"});
    problem.positive_margin = 0;
    problem.false_negative_margin = 1e308;  // leaves out all
    check_accepted<double>(problem);
    check_accepted<float>(problem);
  }
}

TEST_CASE("a decoupled row without a negative", "[errors]") {
  for (const Loss loss : all_losses) {
    if (!is_softmax(loss)) continue;
    Problem problem = good(loss);
    problem.decoupled = true;
    check_accepted(problem);
    if (loss == Loss::hard_negative) {
      problem.query_ids = {1, 1, 2};
      problem.pos_ids = {4, 5, 5};
      problem.neg_ids = {5, 5, 5, 5, 5, 5};
      check_refused(problem, {"row 1", "decoupled"});
      problem.neg_ids[3] = 6;
      check_accepted(problem);
      problem.own_scope = true;  // of which the third is row 1's
      check_accepted(problem);
      problem.offsets = {0, 3, 3, 6};
      check_refused(problem, {"row 1", "decoupled"});
      problem.offsets = {0, 3, 4, 6};
      check_accepted(problem);
      problem.neg_ids[3] = 5;
      check_refused(problem, {"row 1", "decoupled"});
      problem = good(loss);
      problem.decoupled = true;
      for (std::size_t k = 0; k < 2; ++k) problem.inputs[k] = Matrix::Ones(1, 4);
      check_accepted(problem);
      problem.inputs[2] = Matrix(0, 4);
    } else {
      problem.query_ids = {1, 1, 2};
      check_accepted(problem);
      problem.pos_ids = {4, 5, 5};
      check_refused(problem, {"row 1", "decoupled"});
      problem.weights = {1, 0, 1};
      check_refused(problem, {"row 1", "decoupled"});
      problem = good(loss);
      problem.decoupled = true;
      for (Matrix& x : problem.inputs) x = Matrix::Ones(1, takes_logits(loss) ? 1 : 4);
    }
    check_refused(problem, {"row 0", "decoupled"});
  }
}

TEST_CASE("smoothed labels whose sum of logits would overflow", "[errors]") {
  // Within what a plain loss takes, an eighth of the largest number, but three of them are summed.
  for (const Loss loss : {Loss::info_nce_logits, Loss::clip_logits}) {
    Problem problem = good(loss);
    problem.inputs[0](1, 1) = -std::numeric_limits<double>::max() / 16;
    check_accepted(problem);
    problem.label_smoothing = 0.5;
    check_throws("overflow_error", problem, {"row 1"});
  }
}

TEST_CASE("offsets that are none", "[errors]") {
  Problem problem = good(Loss::hard_negative);
  problem.own_scope = true;
  problem.offsets = {0, 4, 2, 6};
  check_refused(problem, {"neg_offsets", "4", "2"});
  problem.offsets = {0, 2, 4, 5};
  check_refused(problem, {"neg_offsets", "5", "6"});
  problem.offsets = {0, 2, 4, 7};
  check_refused(problem, {"neg_offsets", "7", "6"});
  problem.offsets = {1, 2, 4, 6};
  check_refused(problem, {"neg_offsets", "1"});
  problem.offsets = {-1, 2, 4, 6};
  check_refused(problem, {"neg_offsets", "-1"});
  problem.offsets = {0, 9, 9, 6};
  check_refused(problem, {"neg_offsets", "9", "6"});
  problem.offsets = {0, 0, 6, 6};
  check_accepted(problem);
  problem.offsets = {};
  problem.inputs[2] = Matrix::Ones(7, 4);
  check_refused(problem, {"N", "3", "7"});
}

TEST_CASE("options that a loss has no use for", "[errors]") {
  for (const Loss loss : all_losses) {
    if (is_softmax(loss) && loss != Loss::hard_negative) {
      Problem problem = good(loss);
      problem.pos_ids = {1, 2, 3};
      problem.neg_ids = {1, 2, 3};
      check_refused(problem, {"neg_ids"});
      problem = good(loss);
      problem.own_scope = true;
      check_refused(problem, {"scope"});
      problem = good(loss);
      problem.offsets = {0, 0, 0, 0};
      check_refused(problem, {"neg_offsets"});
    }
    if (takes_logits(loss) && has_ids(loss)) {
      Problem problem = good(loss);
      problem.cosine = false;
      check_refused(problem, {"similarity"});
    }
    if (takes_logits(loss) && is_softmax(loss)) {
      Problem problem = good(loss);
      problem.positive_margin = 0.1;
      check_refused(problem, {"positive_margin", "logits"});
      problem = good(loss);
      problem.false_negative_margin = 0;
      check_refused(problem, {"false_negative_margin", "logits"});
    }
  }
  Problem problem = good(Loss::nt_xent);
  for (const std::size_t length : {std::size_t(1), std::size_t(3), std::size_t(6)}) {
    problem.log_prior.assign(length, 0.0);
    check_refused(problem, {"log_prior"});
  }
  problem = good(Loss::hard_negative);
  problem.neg_ids = {1, 2, 3, 4, 5, 6};
  check_refused(problem, {"neg_ids", "pos_ids"});
  problem = good(Loss::hard_negative);
  problem.offsets = {0, 2, 4, 6};
  check_refused(problem, {"neg_offsets", "shared"});
}

TEST_CASE("options that are for pairs, in a loss of classes", "[errors]") {
  const auto check = [](const std::string& option, const auto& set) {
    Problem problem = good(Loss::sup_con);
    set(problem);
    check_refused(problem, {option});
  };
  check("query_ids", [](Problem& p) { p.query_ids = {1, 2, 3}; });
  check("pos_ids", [](Problem& p) { p.pos_ids = {1, 2, 3}; });
  check("neg_ids", [](Problem& p) { p.neg_ids = {1, 2, 3}; });
  check("scope", [](Problem& p) { p.own_scope = true; });
  check("neg_offsets", [](Problem& p) { p.offsets = {0, 0, 0, 0}; });
  check("label_smoothing", [](Problem& p) { p.label_smoothing = 0.1; });
  check("label_smoothing", [](Problem& p) { p.label_smoothing = not_a_number; });
  check("positive_margin", [](Problem& p) { p.positive_margin = 0.1; });
  check("decoupled", [](Problem& p) { p.decoupled = true; });
  check("log_prior", [](Problem& p) { p.log_prior = {0, 0, 0}; });
  check("false_negative_margin", [](Problem& p) { p.false_negative_margin = 0; });
}

TEST_CASE("what is checked first of classes", "[errors]") {
  Problem problem = good_fixed(Loss::sup_con);
  problem.inputs[0](0, 0) = not_a_number;
  problem.weights = {1};
  problem.decoupled = true;
  problem.temperature = -1;
  problem.labels = {1};
  check_refused(problem, {"labels"});
  problem.labels = {1, 1, 1};
  check_refused(problem, {"temperature"});
  problem.temperature = 1;
  check_refused(problem, {"decoupled"});
  problem.decoupled = false;
  check_refused(problem, {"weights"});
  problem.weights = {};
  check_refused(problem, {"Z", "row 0", "column 0"});
}

TEMPLATE_TEST_CASE("logits of rows with each other that overflow", "[errors]", float, double) {
  const Real root = std::sqrt(std::numeric_limits<TestType>::max() / 4);
  for (const Loss loss : {Loss::nt_xent, Loss::sup_con}) {
    Problem problem = good_fixed(loss);
    problem.cosine = false;
    problem.temperature = 0.125;
    for (const Real sign : {1, -1}) {
      for (Matrix& x : problem.inputs) x.setConstant(1);
      // Two rows that are harmless by themselves; the first of them is named.
      problem.inputs.front().row(1).setConstant(sign * root / 2);
      problem.inputs.back().row(2).setConstant(root / 2);
      check_throws<TestType>("overflow_error", problem, {"row 1"});
    }
  }
}

TEMPLATE_TEST_CASE("logits that overflow", "[errors]", float, double) {
  const Real huge = std::numeric_limits<TestType>::max() / 4;
  const Real root = std::sqrt(huge);
  for (const Loss loss : all_losses) {
    if (!has_scale(loss) || is_symmetric(loss)) continue;
    Problem problem = good_fixed(loss);
    problem.cosine = false;
    problem.temperature = 0.125;
    for (Matrix& x : problem.inputs) x.setConstant(1);
    for (const Real sign : {1, -1}) {
      problem.inputs[0].row(1).setConstant(sign * huge / 4);
      check_throws<TestType>("overflow_error", problem, {"row 1"});
    }
    // Two factors that are harmless by themselves, in the last row.
    problem.inputs[0].setConstant(1);
    problem.inputs[0].row(2).setConstant(2 * root);
    problem.inputs[1].row(0).setConstant(2 * root);
    check_throws<TestType>("overflow_error", problem, {"row 2"});
    // The norms alone say nothing here: no two rows meet.
    for (Matrix& x : problem.inputs) x.setZero();
    problem.inputs[0].col(0).setConstant(2 * root);
    problem.inputs[1].col(1).setConstant(2 * root);
    check_accepted<TestType>(problem);
    const Real expected = loss == Loss::siglip          ? oracle_answer(problem).value
                          : loss == Loss::hard_negative ? std::log(Real(9))
                                                        : std::log(Real(3));
    CHECK(relative_error(evaluate_value<TestType>(problem), expected) <= 8 * epsilon<TestType>);
  }
  Problem problem = good_fixed(Loss::hard_negative);
  problem.cosine = false;
  problem.inputs[0].setConstant(2);
  problem.inputs[2].row(5).setConstant(huge);
  check_throws<TestType>("overflow_error", problem, {"row 0"});
  problem.own_scope = true;  // two negatives a query
  check_throws<TestType>("overflow_error", problem, {"row 2", "N"});
}

TEMPLATE_TEST_CASE("distances and logits whose loss overflows", "[errors]", float, double) {
  const Real most = std::numeric_limits<TestType>::max();
  Problem problem = good(Loss::triplet);
  problem.inputs[0].row(1).setConstant(most);
  problem.inputs[1].row(1).setConstant(-most);
  check_throws<TestType>("overflow_error", problem, {"row 1"});
  problem = good(Loss::alignment);
  problem.cosine = false;
  problem.inputs[0].row(2).setConstant(std::sqrt(most) * 2);
  check_throws<TestType>("overflow_error", problem, {"row 2"});
  problem = good(Loss::uniformity);
  problem.cosine = false;
  problem.inputs[0].row(2).setConstant(std::sqrt(most) * 2);
  check_throws<TestType>("overflow_error", problem, {"row 0"});
  for (const Loss loss :
       {Loss::info_nce_logits, Loss::clip_logits, Loss::siglip_logits, Loss::mutual_information}) {
    problem = good(loss);
    problem.inputs[0](1, 1) = -most;
    check_throws<TestType>("overflow_error", problem, {"row 1"});
  }
  // Distances whose squares alone would overflow are none of them.
  problem = good(Loss::triplet);
  const Real factor = std::exp2(std::floor(std::log2(most)) - 10);
  for (Matrix& x : problem.inputs) x *= factor;
  problem.margin = 0;
  Problem small = good(Loss::triplet);
  small.margin = 0;
  CHECK(relative_error(evaluate_value<TestType>(problem) / factor, oracle_answer(small).value)
        <= 1e-5L);
}

TEST_CASE("alignment_uniformity checks both sides", "[errors]") {
  const Eigen::MatrixXd x = Eigen::MatrixXd::Ones(3, 2);
  const auto refusal = [&](const Eigen::MatrixXd& za, const Eigen::MatrixXd& zb, double alpha,
                           double t) -> std::string {
    try {
      (void)contrastive::alignment_uniformity(za, zb, alpha, t);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refusal(x, x, 2, 2).empty());
  CHECK(refusal(x, x, 0, 2).rfind("alignment_uniformity: ", 0) == 0);
  CHECK(has_word(refusal(x, x, 0, 2), "alpha"));
  CHECK(has_word(refusal(x, x, 2, -1), "t"));
  CHECK(has_word(refusal(x, x.topRows(2), 2, 2), "2 x 2"));
  CHECK(has_word(refusal(x.topRows(1), x.topRows(1), 2, 2), "Za"));
  Eigen::MatrixXd bad = x;
  bad.row(1).setZero();
  CHECK(has_word(refusal(x, bad, 2, 2), "Zb"));
  CHECK(has_word(refusal(x, bad, 2, 2), "row 1"));
  bad(1, 1) = not_a_number;
  CHECK(has_word(refusal(bad, x, 2, 2), "Za"));
}

TEST_CASE("what is checked first", "[errors]") {
  Problem problem = good_fixed(Loss::hard_negative);
  problem.cosine = true;
  problem.inputs[0](0, 0) = not_a_number;
  problem.inputs[1].row(0).setZero();
  problem.weights = {1};
  problem.temperature = -1;
  Problem worse = problem;
  worse.inputs[1] = Matrix::Ones(2, 4);
  check_refused(worse, {"2 x 4"});
  check_refused(problem, {"temperature"});
  problem.temperature = 1;
  check_refused(problem, {"weights"});
  problem.weights = {};
  check_refused(problem, {"Q", "row 0", "column 0"});
  problem.inputs[0](0, 0) = 1;
  check_refused(problem, {"P", "row 0"});
}

TEST_CASE("limit_log_scale refuses what is no scale", "[errors]") {
  const auto refusal = [](double alpha, double max_scale) -> std::string {
    try {
      (void)contrastive::limit_log_scale(alpha, max_scale);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  CHECK(has_word(refusal(1, 0), "max_scale"));
  CHECK(has_word(refusal(1, -1), "-1"));
  CHECK(has_word(refusal(1, not_a_number), "max_scale"));
  CHECK(has_word(refusal(not_a_number, 100), "alpha"));
  CHECK(refusal(not_a_number, 100).rfind("limit_log_scale:", 0) == 0);
}
