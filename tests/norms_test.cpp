// Rows of any length that a number can have are normalised without overflow and underflow.
#include "support/build.hpp"
#include "support/catch.hpp"
#include "support/check.hpp"
#include "support/problems.hpp"

using namespace contrastive_tests;

namespace {

constexpr Loss cosine_losses[] = {Loss::info_nce,  Loss::hard_negative, Loss::clip,
                                  Loss::siglip,    Loss::nt_xent,       Loss::sup_con,
                                  Loss::alignment, Loss::uniformity};

/// Lengths from the smallest number that is not zero to nearly the largest.
template <class T>
std::vector<Real> lengths() {
  const auto least = static_cast<Real>(std::numeric_limits<T>::denorm_min());
  const auto normal = static_cast<Real>(std::numeric_limits<T>::min());
  const auto most = static_cast<Real>(std::numeric_limits<T>::max());
  return {least, 64 * least, normal, std::sqrt(normal) / 8, 1, std::sqrt(most) * 8, most / 8};
}

/// Small integers, which any of those lengths times is exact.
Matrix directions(Index rows, Index d, Random& random) {
  Matrix x(rows, d);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < d; ++j) x(i, j) = static_cast<Real>(1 + random.integer(7));
  for (Index i = 0; i < rows; ++i) x(i, i % d) *= -1;
  return x;
}

}  // namespace

TEMPLATE_TEST_CASE("norms: rows of all lengths", "[norms]", float, double) {
  for (const Loss loss : cosine_losses) {
    const std::vector<Real> sizes = lengths<TestType>();
    const auto rows = static_cast<Index>(sizes.size());
    Random random(61);
    Problem unit = plain_problem(loss, rows, 5, random, rows);
    for (Matrix& x : unit.inputs) x = directions(rows, 5, random);
    Problem problem = unit;
    for (Matrix& x : problem.inputs)
      for (Index i = 0; i < rows; ++i) {
        const Real power_of_two =
            std::exp2(std::floor(std::log2(sizes[static_cast<std::size_t>(i)])));
        x.row(i) *= power_of_two;
      }
    const Answer expected = oracle_answer(unit);
    const Answer got = evaluate<TestType>(problem);
    const Answer same = evaluate<TestType>(unit);
    const Real tolerance = tolerance_of<TestType>(unit);
    CAPTURE(describe(loss).function);
    CHECK(relative_error(got.value, expected.value) <= tolerance);
    CHECK(same_bits(got.value, evaluate_value<TestType>(problem)));
    for (std::size_t k = 0; k < got.gradients.size(); ++k)
      for (Index i = 0; i < rows; ++i) {
        CAPTURE(k, i, sizes[static_cast<std::size_t>(i)]);
        CHECK_FALSE(got.gradients[k].row(i).hasNaN());
        // The gradient of a tiny row may overflow, and that of a huge one underflow.
        const Real length = std::exp2(std::floor(std::log2(sizes[static_cast<std::size_t>(i)])));
        const Matrix back = got.gradients[k].row(i) * length;
        const Real bound = 1 / length;
        if (bound > static_cast<Real>(std::numeric_limits<TestType>::max()) / 1e4L) continue;
        if (bound < static_cast<Real>(std::numeric_limits<TestType>::min()) * 1e8L) continue;
        CHECK(relative_error(back, Matrix(same.gradients[k].row(i))) <= 16 * tolerance);
      }
  }
}

TEST_CASE("norms: the extremes by name", "[norms]") {
  for (const Loss loss : cosine_losses) {
    Random random(62);
    const Problem problem = plain_problem(loss, 4, 3, random, 4);
    const auto value_at = [&](double length, auto scalar) {
      Problem moved = problem;
      for (Matrix& x : moved.inputs)
        for (Index i = 0; i < x.rows(); ++i) x.row(i) *= length / x.row(i).norm();
      return evaluate_value<decltype(scalar)>(moved);
    };
    const Real expected = oracle_answer(problem).value;
    CAPTURE(describe(loss).function);
    // A subnormal 1e-310 has 12 digits, so that its direction is uncertain by 1e-12.
    CHECK(relative_error(value_at(1e-300, 0.0), expected) <= 1e-12L);
    CHECK(relative_error(value_at(1e-310, 0.0), expected) <= 1e-10L);
    CHECK(relative_error(value_at(1e308, 0.0), expected) <= 1e-12L);
    CHECK(relative_error(value_at(1e-36, 0.0F), expected) <= 1e-5L);
    CHECK(relative_error(value_at(1e38, 0.0F), expected) <= 1e-5L);
    CHECK(std::isfinite(value_at(1e-44, 0.0F)));
  }
}

TEST_CASE("norms: one dimension leaves nothing of a gradient", "[norms]") {
  for (const Loss loss : cosine_losses) {
    Random random(63);
    Problem problem = plain_problem(loss, 6, 1, random, 6);
    for (Matrix& x : problem.inputs)
      x = x.unaryExpr([](Real v) { return v < 0 ? v - 1 : v + 1; }) * 1e-3L;
    const Answer got = evaluate<float>(problem);
    CAPTURE(describe(loss).function);
    // A row is divided by its length to +1 or -1 exactly in the losses over pairs. Rows that are
    // both sides are packed as no such number, and projected in double; distances are taken in
    // double, of numbers a rounding away from it. Both are then divided by the length of 1e-3.
    const bool exact = has_scale(loss) && !is_symmetric(loss);
    const Real allowed = exact ? 0 : 1000 * 16 * epsilon<double>;
    for (const Matrix& gradient : got.gradients) CHECK(largest(gradient) <= allowed);
  }
}

TEMPLATE_TEST_CASE("norms: length moves from one side to the other under dot", "[norms]", float,
                   double) {
  // Rows of Q of 1e30 (double: 1e300) and of P of 1e-30: their products are ordinary, though
  // neither times the scale is. Powers of two change no digit.
  const int power = std::is_same_v<TestType, float> ? 100 : 996;
  for (const Loss loss : {Loss::info_nce, Loss::clip, Loss::siglip, Loss::hard_negative})
    for (const int sign : {1, -1})
      for (const bool own : {false, true}) {
        if (own && loss != Loss::hard_negative) continue;
        Random random(64);
        Problem problem = plain_problem(loss, 7, 5, random, 7);
        problem.cosine = false;
        problem.own_scope = own;
        const Real factor = std::exp2(static_cast<Real>(sign * power));
        Answer expected = oracle_answer(problem);
        for (std::size_t k = 0; k < problem.inputs.size(); ++k) {
          problem.inputs[k] *= k == 0 ? factor : 1 / factor;
          expected.gradients[k] /= k == 0 ? factor : 1 / factor;
        }
        CAPTURE(describe(loss).function, sign, own);
        check_answer(evaluate<TestType>(problem), expected,
                     std::max(Real(1e-12L), 1000 * epsilon<TestType>));
      }
}
