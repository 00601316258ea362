// The plain path of small batches, on both sides of where it ends (32 rows, 256 columns, 2048
// entries), and what it leaves to the engine.
#include "support/build.hpp"
#include "support/catch.hpp"
#include "support/check.hpp"
#include "support/problems.hpp"
#include "support/refused.hpp"

using namespace contrastive_tests;

namespace {

constexpr Loss losses[] = {Loss::info_nce, Loss::clip, Loss::siglip};

constexpr std::pair<Index, Index> shapes[] = {
    {1, 1},   {1, 7},   {2, 1},   {2, 3},    {2, 256},  {3, 8},   {7, 9},
    {8, 32},  {9, 33},  {15, 16}, {16, 128}, {16, 129}, {31, 64}, {32, 64},
    {32, 65}, {33, 64}, {33, 5},  {1, 256},  {8, 256},  {8, 257}, {2, 257}};

Problem at_shape(Loss loss, Index batch, Index d, bool cosine, Random& random) {
  Problem problem = plain_problem(loss, batch, d, random);
  problem.cosine = cosine;
  if (!cosine) problem.log_scale = -std::log(static_cast<double>(d)) / 2;
  return problem;
}

/// Equal weights change nothing, but an option is left to the engine.
Problem for_engine(Problem problem) {
  problem.weights.assign(static_cast<std::size_t>(problem.batch()), 1.0);
  return problem;
}

}  // namespace

TEST_CASE("small batches: against the oracle on both sides of the limits", "[small]") {
  for (const Loss loss : losses)
    for (const auto& [batch, d] : shapes)
      for (const bool cosine : {true, false}) {
        Random random(81);
        Problem problem = at_shape(loss, batch, d, cosine, random);
        CAPTURE(describe(loss).function, batch, d, cosine);
        check_loss(problem);
        problem.learned = false;
        problem.temperature = std::exp(-problem.log_scale);
        check_loss(problem);
      }
}

TEST_CASE("small batches: the same as the engine", "[small]") {
  for (const Loss loss : losses)
    for (const Index batch : {1, 2, 6, 8, 13, 32})
      for (const double log_scale : {0.0, 1.6, 3.0, 4.6}) {
        Random random(82);
        Problem problem = at_shape(loss, batch, 24, true, random);
        problem.log_scale = log_scale;
        Answer engine = evaluate<double>(for_engine(problem));
        const Answer sizes = oracle_answer(problem);
        engine.value_size = sizes.value_size;
        engine.d_log_scale_size = sizes.d_log_scale_size;
        engine.d_bias_size = sizes.d_bias_size;
        CAPTURE(describe(loss).function, batch, log_scale);
        check_answer(evaluate<double>(problem), engine, tolerance_of<double>(problem),
                     epsilon<double> * epsilon<double>);
      }
}

TEST_CASE("small batches: each row of a nearly separable batch keeps its own size", "[small]") {
  for (const Loss loss : {Loss::info_nce, Loss::clip})
    for (const Index batch : {2, 5, 8, 24, 32})
      for (const double noise : {0.05, 0.3}) {
        Random random(83);
        Problem problem = plain_problem(loss, batch, 32, random);
        problem.learned = false;
        problem.temperature = 0.01;
        problem.inputs[1] =
            problem.inputs[0] + static_cast<Real>(noise) * random.normal_matrix(batch, 32);
        for (Matrix& x : problem.inputs)  // exact in float, so that one oracle serves both
          x = x.unaryExpr([](Real v) { return static_cast<Real>(static_cast<float>(v)); });
        const Answer expected = oracle_answer(problem);
        const Answer single = evaluate<float>(problem);
        const Answer twice = evaluate<double>(problem);
        CAPTURE(describe(loss).function, batch, noise, expected.value);
        // As in exactness_test.cpp: float logits at scale 100 are uncertain by 100 2^-24 each.
        if (expected.value > underflow<float>)
          CHECK(relative_error(single.value, expected.value) <= 1e-4L);
        CHECK(relative_error(twice.value, expected.value) <= 1e-12L);
        for (std::size_t k = 0; k < 2; ++k) {
          CHECK(relative_error_by_row(single.gradients[k], expected.gradients[k], 1e-30L) <= 1e-4L);
          CHECK(relative_error_by_row(twice.gradients[k], expected.gradients[k]) <= 1e-11L);
        }
      }
}

TEST_CASE("small batches: lines that lie far below all others", "[small]") {
  for (const Loss loss : losses)
    for (const Index batch : {3, 8, 20, 32}) {
      Random random(84);
      check_loss(cold_problem(plain_problem(loss, batch, 12, random), true));
    }
}

TEMPLATE_TEST_CASE("small batches: ties", "[small]", float, double) {
  // All rows equal: each of the B candidates has probability 1 / B, and nothing pulls.
  for (const Index batch : {2, 8, 32}) {
    const Matrix ones = Matrix::Ones(batch, 4);
    for (const Loss loss : {Loss::info_nce, Loss::clip}) {
      const Answer got = evaluate<TestType>(dot_problem(loss, {ones, ones}, 1));
      CHECK(relative_error(got.value, std::log(static_cast<Real>(batch))) <= 4 * epsilon<TestType>);
      for (const Matrix& gradient : got.gradients)
        CHECK(largest(gradient) <= 4 * epsilon<TestType>);
    }
  }
}

TEMPLATE_TEST_CASE("small batches: one pair is certain", "[small]", float, double) {
  for (const Loss loss : {Loss::info_nce, Loss::clip}) {
    Random random(85);
    const Answer got = evaluate<TestType>(plain_problem(loss, 1, 20, random));
    CHECK(got.value == 0);
    for (const Matrix& gradient : got.gradients) CHECK(largest(gradient) == 0);
    CHECK(*got.d_log_scale == 0);
  }
}

TEMPLATE_TEST_CASE("small batches: the same bits in any layout, and of the value", "[small]", float,
                   double) {
  for (const Loss loss : losses)
    for (const auto& [batch, d] : shapes) {
      Random random(86);
      const Problem problem = at_shape(loss, batch, d, batch % 2 == 0, random);
      const Answer expected = evaluate<TestType>(problem);
      for (const Layout layout : all_layouts) {
        CAPTURE(describe(loss).function, batch, d, static_cast<int>(layout));
        CHECK(same_bits(evaluate<TestType>(problem, layout), expected));
        CHECK(same_bits(evaluate_value<TestType>(problem, layout), expected.value));
      }
    }
}

TEST_CASE("small batches: a scale at its limit and beyond", "[small]") {
  for (const Loss loss : losses) {
    Random random(87);
    Problem problem = plain_problem(loss, 8, 16, random);
    problem.max_scale = 20;
    for (const double log_scale : {2.9, std::log(20.0), 3.5}) {
      problem.log_scale = log_scale;
      check_loss(problem);
      CHECK((*evaluate<double>(problem).d_log_scale == 0) == (log_scale == 3.5));
    }
  }
}

TEST_CASE("small batches: rows that are not ordinary", "[small]") {
  for (const Loss loss : losses) {
    Random random(88);
    const Problem plain = plain_problem(loss, 6, 10, random);
    const Answer expected = evaluate<double>(plain);
    for (const Real factor : {1e-300L, 1e-200L, 1e200L, 1e300L}) {  // a cosine has no length
      Problem problem = plain;
      problem.inputs[1].row(3) *= factor;
      const Answer got = evaluate<double>(problem);
      CHECK(relative_error(got.value, expected.value) <= 1e-12L);
      CHECK(relative_error(got.gradients[0], expected.gradients[0]) <= 1e-12L);
    }
    Problem zero = plain;
    zero.inputs[1].row(2).setZero();
    check_refused(zero, {"P", "row 2"});
    zero.cosine = false;
    check_loss(zero);
    Problem nan = plain;
    nan.inputs[0](4, 7) = std::numeric_limits<Real>::quiet_NaN();
    check_refused(nan, {"Q", "row 4", "column 7"});
    // Dot products of huge and of tiny rows, and logits beyond the scalar type.
    Problem dot = plain;
    dot.cosine = false;
    dot.log_scale = 0;
    dot.max_scale = unlimited;
    dot.inputs[0] *= 1e15L;
    dot.inputs[1] *= 1e-15L;
    check_loss(dot);
    dot.inputs[1] *= 1e38L;
    check_throws<float>("overflow_error", dot, {"row 0"});
    Problem hot = plain;
    hot.max_scale = unlimited;
    hot.log_scale = 88;  // of a largest float e^88.7, of which logits may use an eighth
    check_throws<float>("overflow_error", hot, {"row 0"});
  }
}
