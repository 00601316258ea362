// Central differences of a loss's value along random directions, in long double.
#ifndef CONTRASTIVE_TESTS_SUPPORT_DIFFERENCES_HPP
#define CONTRASTIVE_TESTS_SUPPORT_DIFFERENCES_HPP

#include <cmath>
#include <limits>

#include "catch.hpp"
#include "problem.hpp"
#include "random.hpp"

namespace contrastive_tests {

/// (f(h) - f(-h)) / 2h, Richardson-extrapolated once, so that the error is O(h^4).
template <class Function>
Real central_difference(const Function& f, Real h) {
  const Real wide = (f(h) - f(-h)) / (2 * h);
  const Real narrow = (f(h / 2) - f(-h / 2)) / h;
  return (4 * narrow - wide) / 3;
}

/// Holds every gradient in `answer` to the differences of `evaluate(problem).value`: each matrix
/// along two random directions, and the scalars.
///
/// The step is eps^(1/5), where truncation, h^4, and rounding, eps / h, balance; both are then
/// eps^(4/5), times the size of the value and of its fifth derivative, about (scale |v|)^5 / 5!.
/// With the scales below 8 and the directions of length 1 of the problems here 2000 bounds that.
template <class Evaluate>
void check_against_differences(const Problem& problem, const Answer& answer,
                               const Evaluate& evaluate, Random& random) {
  const Real eps = std::numeric_limits<Real>::epsilon();
  const Real h = std::pow(eps, Real(0.2));
  const Real tolerance = 2000 * std::pow(eps, Real(0.8)) * (1 + std::abs(answer.value));
  for (std::size_t k = 0; k < problem.inputs.size(); ++k) {
    if (problem.inputs[k].size() == 0) continue;
    for (int repetition = 0; repetition < 2; ++repetition) {
      Matrix direction = random.normal_matrix(problem.inputs[k].rows(), problem.inputs[k].cols());
      direction /= direction.norm();
      const auto value = [&](Real step) {
        Problem moved = problem;
        moved.inputs[k] += step * direction;
        return evaluate(moved).value;
      };
      const Real expected = central_difference(value, h);
      const Real got = answer.gradients[k].cwiseProduct(direction).sum();
      CAPTURE(k, repetition, expected, got);
      CHECK(std::abs(got - expected) <= tolerance);
    }
  }
  const auto check_scalar = [&](Real got, double Problem::*parameter) {
    // The parameter is a double, so the step has to be exact in double: a power of two.
    const Real step = std::exp2(std::round(std::log2(h)));
    const auto value = [&](Real x) {
      Problem moved = problem;
      moved.*parameter += static_cast<double>(x);
      return evaluate(moved).value;
    };
    const Real expected = central_difference(value, step);
    CAPTURE(expected, got);
    CHECK(std::abs(got - expected) <= tolerance);
  };
  if (answer.d_log_scale) check_scalar(*answer.d_log_scale, &Problem::log_scale);
  if (answer.d_bias) check_scalar(*answer.d_bias, &Problem::bias);
}

}  // namespace contrastive_tests

#endif
