// Small inputs behind faults that users of other contrastive losses have met, with the right
// answer. Each stands for a kind of fault. Answers are given to six or more digits: the tolerance
// is half a unit of the last, and what a float has on top.
#include <contrastive/temperature.hpp>

#include "support/build.hpp"
#include "support/catch.hpp"
#include "support/check.hpp"
#include "support/problems.hpp"

using namespace contrastive_tests;

namespace {

template <class T>
constexpr Real six_digits = std::max(Real(0.51e-6L), 8 * epsilon<T>);

/// For answers that are simple numbers, off by roundings alone.
template <class T>
constexpr Real exact = 16 * epsilon<T>;

/// For a mean over a batch of such: sums in double round once a term, 2^-53.
template <class T>
Real exact_mean(Index batch) {
  return exact<T> + static_cast<Real>(batch) * epsilon<double> / 2;
}

bool is_near(Real got, Real expected, Real tolerance) {
  return std::abs(got - expected) <= tolerance;
}

bool is_near(const Matrix& got, const Matrix& expected, Real tolerance) {
  return got.rows() == expected.rows() && got.cols() == expected.cols()
         && (got - expected).cwiseAbs().maxCoeff() <= tolerance;
}

bool is_zero(const Answer& answer) {
  for (const Matrix& gradient : answer.gradients)
    if (!(largest(gradient) == 0)) return false;
  return answer.value == 0;
}

const Matrix swapped = matrix({{0, 1}, {1, 0}});

constexpr Loss softmax_losses[] = {Loss::info_nce, Loss::clip, Loss::hard_negative};

Problem pairs(Loss loss, const Matrix& q, const Matrix& p, double temperature) {
  Problem problem = dot_problem(loss, {q, p}, temperature);
  if (loss == Loss::hard_negative) problem.inputs.push_back(Matrix(0, q.cols()));
  return problem;
}

}  // namespace

TEMPLATE_TEST_CASE("field 1: a low temperature neither gives NaN nor caps the loss", "[field]",
                   float, double) {
  for (const Loss loss : softmax_losses) {
    CAPTURE(describe(loss).function);
    const Matrix slope = matrix({{-50, 50}, {50, -50}});
    const Answer cold = evaluate<TestType>(pairs(loss, identity(2), swapped, 0.01));
    CHECK(relative_error(cold.value, 100) <= exact<TestType>);
    CHECK(relative_error(cold.gradients[1], slope) <= exact<TestType>);
    const Answer colder = evaluate<TestType>(pairs(loss, identity(2), swapped, 1e-4));
    CHECK(relative_error(colder.value, 1e4L) <= exact<TestType>);
    CHECK(relative_error(colder.gradients[1], 100 * slope) <= exact<TestType>);

    const Answer right = evaluate<TestType>(pairs(loss, identity(2), identity(2), 0.01));
    CHECK(right.value >= 0);
    CHECK(right.value <= 4e-44L);
    CHECK(largest(right.gradients[1]) <= 4e-42L);
    CHECK_FALSE(right.gradients[0].hasNaN());
    CHECK(is_zero(evaluate<TestType>(pairs(loss, identity(2), identity(2), 1e-4))));
  }
}

TEMPLATE_TEST_CASE("field 2: no small constant caps the loss", "[field]", float, double) {
  const Problem problem = dot_problem(
      Loss::hard_negative, {matrix({{1, 0}}), matrix({{-1, 0}}), matrix({{1, 0}})}, 0.01);
  const Answer got = evaluate<TestType>(problem);
  CHECK(relative_error(got.value, 200) <= exact<TestType>);
  CHECK(relative_error(got.gradients[0], matrix({{200, 0}})) <= exact<TestType>);
  CHECK(relative_error(got.gradients[1], matrix({{-100, 0}})) <= exact<TestType>);
  CHECK(relative_error(got.gradients[2], matrix({{100, 0}})) <= exact<TestType>);
}

TEMPLATE_TEST_CASE("field 3: a row without a positive is no anchor", "[field]", float, double) {
  const Matrix c = matrix({{1, .1, .2, .3}, {.1, 1, .8, .4}, {.2, .8, 1, .5}, {.3, .4, .5, 1}});
  Matrix root = Matrix::Zero(4, 4);  // Cholesky's: c = root root^T
  for (Index i = 0; i < 4; ++i)
    for (Index j = 0; j <= i; ++j) {
      const Real rest = c(i, j) - root.row(i).head(j).dot(root.row(j).head(j));
      root(i, j) = i == j ? std::sqrt(rest) : rest / root(j, j);
    }
  Problem problem = dot_problem(Loss::sup_con, {root}, 0.5);
  problem.labels = {0, 1, 1, 3};
  const Answer got = evaluate<TestType>(problem);
  CHECK(is_near(got.value, .571709L, six_digits<TestType>));
  CHECK(is_near(evaluate_rows<TestType>(problem), matrix({{0}, {.528229}, {.615189}, {0}}),
                six_digits<TestType>));
  CHECK(largest(got.gradients[0].row(0)) > 0.01L);  // still a negative of the others
  problem.labels = {0, 1, 2, 3};
  CHECK(is_zero(evaluate<TestType>(problem)));
}

TEMPLATE_TEST_CASE("field 4: equal rows give the log of the number of candidates", "[field]", float,
                   double) {
  for (const Loss loss : softmax_losses)
    for (const Index batch : {2, 4, 7, 48, 97, 250}) {
      Problem problem =
          pairs(loss, Matrix::Constant(batch, 3, 0.3L), Matrix::Constant(batch, 3, 0.3L), 0.05);
      problem.cosine = true;
      const Answer got = evaluate<TestType>(problem);
      CAPTURE(describe(loss).function, batch);
      CHECK(relative_error(got.value, std::log(static_cast<Real>(batch)))
            <= exact_mean<TestType>(batch));
      // Up to the rounding of scale (1 - 1/B) / B, which the other terms of a sum cancel.
      CHECK(largest(got.gradients[0]) <= 20 * exact<TestType>);
      CHECK(largest(got.gradients[1]) <= 20 * exact<TestType>);
    }
  CHECK(is_near(
      evaluate_value<TestType>(pairs(Loss::info_nce, Matrix::Ones(4, 2), Matrix::Ones(4, 2), 1)),
      1.386294, six_digits<TestType>));
}

TEMPLATE_TEST_CASE("field 5: a row with every candidate masked", "[field]", float, double) {
  for (const Loss loss : softmax_losses) {
    CAPTURE(describe(loss).function);
    Problem problem = pairs(loss, identity(2), swapped, 0.01);
    problem.pos_ids = {7, 7};
    CHECK(is_zero(evaluate<TestType>(problem)));
    problem.pos_ids = {};
    problem.query_ids = {7, 7};
    CHECK(is_zero(evaluate<TestType>(problem)));
  }
}

TEMPLATE_TEST_CASE("field 6: a first tile that is all masked", "[field]", float, double) {
  const Matrix l = matrix({{1, .2, .3, .1}, {.2, 1, .1, .4}, {.5, .6, 1, .3}, {.1, .2, .3, 1}});
  Problem problem = similarities_problem(Loss::info_nce, l, 0.5);
  problem.pos_ids = {7, 7, 7, 9};
  const Real tolerance = six_digits<TestType>;
  const double rows[] = {.152978, .263282, .220417, .478587};
  for (Index i = 0; i < 4; ++i)
    CHECK(is_near(evaluate_value<TestType>(only_row(problem, i)), rows[i], tolerance));
  CHECK(is_near(evaluate_value<TestType>(problem), .278816, tolerance));
  problem.loss = Loss::clip;
  CHECK(is_near(evaluate_value<TestType>(problem), (.278816 + .273899) / 2, tolerance));
  problem = similarities_problem(Loss::info_nce, l.transpose(), 0.5);
  problem.pos_ids = {7, 7, 7, 9};
  CHECK(is_near(evaluate_value<TestType>(problem), .273899, tolerance));
}

TEMPLATE_TEST_CASE("field 6 at size: whole tiles of masked candidates", "[field]", float, double) {
  Random random(6);
  for (const Loss loss : {Loss::info_nce, Loss::clip, Loss::hard_negative, Loss::siglip}) {
    Problem problem = plain_problem(loss, 500, 3, random, 300);
    problem.pos_ids = random_ids(500, 1000000, random);
    // All but the last query share one item, and the first 260 extra negatives are that item too.
    std::fill(problem.pos_ids.begin(), problem.pos_ids.begin() + 499, -1);
    if (loss == Loss::hard_negative) {
      problem.neg_ids = random_ids(300, 1000000, random);
      std::fill(problem.neg_ids.begin(), problem.neg_ids.begin() + 260, -1);
    }
    check_against<TestType>(problem, oracle_answer(problem));
  }
}

TEMPLATE_TEST_CASE("field 7: nothing that pads a row enters its maximum", "[field]", float,
                   double) {
  for (const Index batch : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 17, 31, 47, 49, 241}) {
    CAPTURE(batch);
    const Real expected = std::log(static_cast<Real>(batch));
    const Matrix l = Matrix::Constant(batch, batch, -200);
    for (const Loss loss : {Loss::info_nce_logits, Loss::clip_logits}) {
      const Answer got = evaluate<TestType>(logits_problem(loss, l));
      CHECK(relative_error(got.value, expected) <= exact_mean<TestType>(batch));
    }
    const Matrix q = Matrix::Ones(batch, 1);
    const Matrix p = Matrix::Constant(batch, 1, -200);
    for (const Loss loss : softmax_losses)
      CHECK(relative_error(evaluate_value<TestType>(pairs(loss, q, p, 1)), expected)
            <= exact_mean<TestType>(batch));
  }
  CHECK(is_near(
      evaluate_value<TestType>(logits_problem(Loss::info_nce_logits, Matrix::Constant(3, 3, -200))),
      1.098612, six_digits<TestType>));
}

TEMPLATE_TEST_CASE("field 8: a masked negative stays out of the temperature's gradient", "[field]",
                   float, double) {
  const Matrix one = matrix({{1, 0}});
  // Of the masked negative the second one is so large that its logit alone would give infinity.
  for (const double masked : {1.0, 1e30}) {
    Problem problem = learned_dot_problem(Loss::hard_negative,
                                          {one, one, matrix({{0, 1}, {masked, 0}})}, std::log(2.0));
    problem.pos_ids = {7};
    problem.neg_ids = {1, 7};
    const Answer got = evaluate<TestType>(problem);
    CAPTURE(masked);
    CHECK(is_near(got.value, .126928, six_digits<TestType>));
    CHECK(is_near(*got.d_log_scale, -.238406, six_digits<TestType>));
    CHECK(largest(got.gradients[2].row(1)) == 0);
    CHECK_FALSE(got.gradients[0].hasNaN());
  }
}

TEMPLATE_TEST_CASE("field 9: a mask is a mask, whatever the logit", "[field]", float, double) {
  Problem problem =
      dot_problem(Loss::hard_negative, {matrix({{1}}), matrix({{3}}), matrix({{1}, {2}, {4}})}, 1);
  problem.pos_ids = {7};
  problem.neg_ids = {7, 5, 8};
  CHECK(is_near(evaluate_value<TestType>(problem), 1.407606, six_digits<TestType>));
  problem.inputs[2](0, 0) = 1e6L;
  CHECK(is_near(evaluate_value<TestType>(problem), 1.407606, six_digits<TestType>));
}

TEMPLATE_TEST_CASE("field 10: duplicates are no negatives", "[field]", float, double) {
  const Matrix l = matrix({{.9, .8, .1}, {.7, .6, .2}, {.3, .2, .5}}) / 0.5L;
  const Real tolerance = six_digits<TestType>;
  Problem problem = logits_problem(Loss::info_nce_logits, l);
  problem.pos_ids = {1, 1, 2};
  const double rows[] = {.183901, .371101, .797116};
  for (Index i = 0; i < 3; ++i)
    CHECK(is_near(evaluate_value<TestType>(only_row(problem, i)), rows[i], tolerance));
  const Answer got = evaluate<TestType>(problem);
  CHECK(is_near(got.value, .450706, tolerance));
  CHECK(is_near(got.gradients[0].diagonal(), matrix({{-.055994}, {-.103342}, {-.183124}}),
                tolerance));
  CHECK(got.gradients[0](0, 1) == 0);
  CHECK(got.gradients[0](1, 0) == 0);
  problem.loss = Loss::clip_logits;
  CHECK(is_near(evaluate_value<TestType>(problem), .446453, tolerance));
  problem = logits_problem(Loss::info_nce_logits, l.transpose());
  problem.pos_ids = {1, 1, 2};
  CHECK(is_near(evaluate_value<TestType>(problem), .442200, tolerance));
}

TEMPLATE_TEST_CASE("field 11: a positive of negative similarity", "[field]", float, double) {
  Problem problem = dot_problem(Loss::hard_negative,
                                {matrix({{1}}), matrix({{-.5}}), matrix({{-.49}, {-.8}})}, 0.1);
  problem.pos_ids = {1};
  problem.neg_ids = {1, 2};
  CHECK(is_near(evaluate_value<TestType>(problem), .048587, six_digits<TestType>));
  // The same left out by similarity: a margin is taken off, it is no factor of the positive's.
  problem.pos_ids = problem.neg_ids = {};
  for (const double margin : {0.0, 0.005, -0.005})
    for (const bool own : {false, true}) {
      problem.false_negative_margin = margin;
      problem.own_scope = own;
      CHECK(is_near(evaluate_value<TestType>(problem), .048587, six_digits<TestType>));
    }
  problem =
      similarities_problem(Loss::info_nce, matrix({{-.5, -.49, -.8}, {0, 1, 0}, {0, 0, 1}}), 0.1);
  problem.false_negative_margin = 0;
  CHECK(is_near(evaluate_value<TestType>(only_row(problem, 0)), .048587, six_digits<TestType>));
}

TEMPLATE_TEST_CASE("field 12: different numbers of negatives a query", "[field]", float, double) {
  Problem problem = dot_problem(
      Loss::hard_negative, {matrix({{1}, {1}}), matrix({{1}, {1}}), matrix({{.5}, {.2}})}, 0.1);
  problem.pos_ids = {7, 7};
  problem.own_scope = true;
  problem.offsets = {0, 2, 2};
  CHECK(is_near(evaluate_value<TestType>(only_row(problem, 0)), .007049, six_digits<TestType>));
  CHECK(evaluate_value<TestType>(only_row(problem, 1)) == 0);
  CHECK(is_near(evaluate_value<TestType>(problem), .003524, six_digits<TestType>));
}

TEMPLATE_TEST_CASE("field 13: the gradient flows to both sides", "[field]", float, double) {
  const Matrix p = matrix({{.6, .8}, {.8, .6}});
  for (const Loss loss : softmax_losses) {
    const Answer got = evaluate<TestType>(pairs(loss, identity(2), p, 1));
    CAPTURE(describe(loss).function);
    CHECK(is_near(got.value, .798139, six_digits<TestType>));
    CHECK(is_near(got.gradients[1].row(0), matrix({{-.274917, .274917}}), six_digits<TestType>));
    CHECK(is_near(got.gradients[0].row(0), matrix({{.054983, -.054983}}), six_digits<TestType>));
  }
}

TEMPLATE_TEST_CASE("field 14: four pairs, rows and columns", "[field]", float, double) {
  const Matrix l = matrix({{2, 0, 0, 1}, {0, 1, 0, 0}, {1, 0, 0, 2}, {0, 3, 0, 1}});
  const Real tolerance = six_digits<TestType>;
  const auto value = [](Loss loss, const Matrix& s) {
    return evaluate_value<TestType>(logits_problem(loss, s));
  };
  CHECK(is_near(value(Loss::info_nce_logits, l), 1.485572, tolerance));
  CHECK(is_near(value(Loss::info_nce_logits, l.transpose()), 1.429407, tolerance));
  CHECK(is_near(value(Loss::clip_logits, l), 1.457490, tolerance));
  CHECK(is_near(evaluate_value<TestType>(similarities_problem(Loss::clip, l, 1)), 1.457490,
                tolerance));
}

TEMPLATE_TEST_CASE("field 15: the sigmoid loss is divided by B, not by B^2", "[field]", float,
                   double) {
  Problem problem =
      learned_dot_problem(Loss::siglip, {identity(2), identity(2)}, std::log(10.0), unlimited);
  problem.bias = -10;
  const Answer got = evaluate<TestType>(problem);
  CHECK(is_near(got.value, .693193, six_digits<TestType>));
  CHECK(is_near(*got.d_bias, -.499955, six_digits<TestType>));
  CHECK(relative_error(*got.d_log_scale, -5) <= exact<TestType>);
  Problem on_logits = logits_problem(Loss::siglip_logits, 10 * identity(2));
  on_logits.bias = -10;
  const Answer logits = evaluate<TestType>(on_logits);
  CHECK(is_near(logits.value, .693193, six_digits<TestType>));
  CHECK(is_near(logits.gradients[0], matrix({{-.25, .0000227}, {.0000227, -.25}}), 0.5e-7L));
}

TEMPLATE_TEST_CASE("field 16: the log of the sigmoid does not overflow", "[field]", float, double) {
  const auto value = [](const Matrix& similarities) {
    Problem problem = learned_dot_problem(
        Loss::siglip, {identity(similarities.rows()), Matrix(similarities.transpose())}, 0);
    return evaluate_value<TestType>(problem);
  };
  CHECK(value(matrix({{-900}})) == 900);
  CHECK(value(matrix({{900}})) <= 1e-300L);
  CHECK(value(matrix({{900}})) >= 0);
  CHECK(relative_error(value(matrix({{0, 900}, {-900, 0}})), 450.693147L)
        <= std::max(Real(1e-9L), epsilon<TestType>));
}

TEMPLATE_TEST_CASE("field 17: the scale does not run away", "[field]", float, double) {
  for (const Loss loss : softmax_losses)
    for (const double log_scale : {10.0, 4.6052}) {
      Problem problem = pairs(loss, identity(2), swapped, 1);
      problem.learned = true;
      problem.log_scale = log_scale;
      const Answer got = evaluate<TestType>(problem);
      CAPTURE(describe(loss).function, log_scale);
      CHECK(relative_error(got.value, 100) <= exact<TestType>);
      CHECK(*got.d_log_scale == 0);
      // The guard brings alpha back to where the derivative passes: a loss of the scale itself.
      problem.log_scale =
          static_cast<double>(contrastive::limit_log_scale(static_cast<TestType>(log_scale), 100));
      CHECK(relative_error(problem.log_scale, std::log(Real(100))) <= epsilon<TestType>);
      const Answer guarded = evaluate<TestType>(problem);
      CHECK(relative_error(guarded.value, 100) <= 8 * exact<TestType>);
      CHECK(relative_error(*guarded.d_log_scale, 100) <= 8 * exact<TestType>);
    }
}

TEMPLATE_TEST_CASE("field 18: the log of the scale is not the scale", "[field]", float, double) {
  Problem problem = similarities_problem(Loss::clip, matrix({{.9, .1}, {.4, .7}}), 1);
  problem.learned = true;
  problem.log_scale = std::log(1 / 0.07);
  const Answer got = evaluate<TestType>(problem);
  // Seven and eight digits; a float logit of 12.9 is uncertain by 1e-6, relative to the small loss.
  const Real tolerance = std::max(Real(1e-7L), 16 * epsilon<TestType>);
  CHECK(relative_error(got.value, .003665102L) <= 2 * tolerance);
  CHECK(relative_error(*got.d_log_scale, -.016394127L) <= 2 * tolerance);
}

TEMPLATE_TEST_CASE("field 19: a triplet that is far enough apart costs nothing", "[field]", float,
                   double) {
  Problem problem;
  problem.loss = Loss::triplet;
  problem.inputs = {matrix({{0, 0}}), matrix({{1, 0}}), matrix({{3, 0}})};
  problem.margin = 1;
  CHECK(is_zero(evaluate<TestType>(problem)));
  problem.margin = 2;  // the kink: 1 - 3 + 2
  CHECK(is_zero(evaluate<TestType>(problem)));
  problem.margin = 1;
  std::swap(problem.inputs[1], problem.inputs[2]);
  CHECK(evaluate<TestType>(problem).value == 3);
}

TEMPLATE_TEST_CASE("field 20: a distance of zero has the derivative zero", "[field]", float,
                   double) {
  Problem problem;
  problem.loss = Loss::triplet;
  problem.inputs = {matrix({{1, 0}}), matrix({{1, 0}}), matrix({{0, 1}})};
  problem.margin = 2;
  const Answer got = evaluate<TestType>(problem);
  CHECK(is_near(got.value, .585786, six_digits<TestType>));
  CHECK(is_near(got.gradients[0], matrix({{-.7071, .7071}}), 0.5e-4L));
  CHECK(largest(got.gradients[1]) == 0);
  CHECK(is_near(got.gradients[2], matrix({{.7071, -.7071}}), 0.5e-4L));
}

TEMPLATE_TEST_CASE("field 23: alignment and uniformity at their corners", "[field]", float,
                   double) {
  Problem alignment;
  alignment.loss = Loss::alignment;
  alignment.inputs = {matrix({{3, 4}}), matrix({{4, 3}})};
  CHECK(relative_error(evaluate_value<TestType>(alignment), .08L) <= exact<TestType>);
  alignment.cosine = false;
  CHECK(relative_error(evaluate_value<TestType>(alignment), 2) <= exact<TestType>);

  const auto uniformity = [](const Matrix& z, bool cosine) {
    Problem problem;
    problem.loss = Loss::uniformity;
    problem.inputs = {z};
    problem.cosine = cosine;
    return problem;
  };
  CHECK(refusals<TestType>(uniformity(matrix({{1, 0}}), true)).value.kind == "invalid_argument");
  for (const bool cosine : {true, false}) {
    const Problem opposite = uniformity(matrix({{1, 0}, {-1, 0}}), cosine);
    CHECK(relative_error(evaluate_value<TestType>(opposite), -8) <= exact<TestType>);
    const Problem three = uniformity(matrix({{1, 0}, {0, 1}, {-1, 0}}), cosine);
    CHECK(is_near(evaluate_value<TestType>(three), -4.396349, six_digits<TestType>));
  }
  const Problem apart = uniformity(matrix({{0, 0}, {10, 30}}), false);
  CHECK(relative_error(evaluate_value<TestType>(apart), -2000) <= exact<TestType>);
}
