// One helper that holds a loss to everything that is known about it.
#ifndef CONTRASTIVE_TESTS_SUPPORT_CHECK_HPP
#define CONTRASTIVE_TESTS_SUPPORT_CHECK_HPP

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "catch.hpp"
#include "compare.hpp"
#include "evaluate.hpp"
#include "oracle.hpp"
#include "problem.hpp"

namespace contrastive_tests {

template <class T>
constexpr Real epsilon = static_cast<Real>(std::numeric_limits<T>::epsilon());

/// What a result may be off by, relative to the largest entry of a matrix or to a scalar.
///
/// A logit is scale times a number whose last bit is 2^-24 (float), so it is uncertain by a few
/// times scale 2^-24 whatever the method, and a probability by as much relative to itself: hence
/// 4 scale 2^-24. For small scales the sums over up to a few hundred terms count instead, 1e-5 is
/// about 170 units in the last place. Double at the scales of the tests, up to 100: 1e-12, the same
/// with room. Long double: the scalar arguments are doubles, and 1/tau and exp(alpha) are theirs,
/// but every step after that has 2^-64: the rule of float with that number, and 1e-17 below.
template <class T>
Real tolerance_of(const Problem& problem) {
  const Real scale = has_scale(problem.loss) ? oracle::scale_of(problem) : 1;
  if (std::is_same_v<T, float>) return std::max(Real(1e-5L), 2 * scale * epsilon<float>);
  if (std::is_same_v<T, double>) return 1e-12L;
  return std::max(Real(1e-17L), 100 * scale * epsilon<Real>);
}

/// The same for inputs that are no unit vectors: what is 1 above is then the largest similarity
/// that the norms allow, and of uniformity the largest exponent.
template <class T>
Real tolerance_by_size(const Problem& problem) {
  const auto longest = [](const Matrix& x) {
    return x.rows() == 0 ? Real(0) : x.rowwise().norm().maxCoeff();
  };
  Real size = 1;
  if (problem.loss == Loss::uniformity) {
    // The gradient of a row is what normalisation leaves of a sum of B vectors, of random ones
    // about 1 / sqrt(B) of it.
    size = 4 * problem.t * std::sqrt(static_cast<Real>(problem.batch()));
    if (!problem.cosine) size *= std::pow(longest(problem.inputs[0]), Real(2));
  } else if (is_symmetric(problem.loss) && !problem.cosine) {
    for (const Matrix& x : problem.inputs) size = std::max(size, std::pow(longest(x), Real(2)));
  } else if (has_scale(problem.loss) && !problem.cosine) {
    for (std::size_t k = 1; k < problem.inputs.size(); ++k)
      size = std::max(size, longest(problem.inputs[0]) * longest(problem.inputs[k]));
  }
  const Real growth = size * (has_scale(problem.loss) ? oracle::scale_of(problem) : 1);
  return std::max(tolerance_of<T>(problem), 2 * growth * epsilon<T>);
}

/// In one dimension normalisation leaves nothing of a gradient.
inline bool has_no_gradient(const Problem& problem) {
  return has_similarity(problem.loss) && problem.cosine && problem.inputs[0].cols() == 1;
}

/// |got - expected| relative to the size of the terms of expected.
inline Real relative_error(Real got, Real expected, Real size) {
  if (size <= std::abs(expected)) return relative_error(got, expected);
  const Real error = std::abs(got - expected) / size;
  return std::isnan(error) ? std::numeric_limits<Real>::infinity() : error;
}

/// Below this the terms of a result lose digits by underflow: 2^27 times the smallest normal
/// number.
template <class T>
constexpr Real underflow = static_cast<Real>(std::numeric_limits<T>::min()) * 0x1p27L;

/// Differences of at most `resolution` are none.
inline void check_answer(const Answer& got, const Answer& expected, Real tolerance,
                         Real resolution = 0) {
  if (!(std::abs(got.value - expected.value) <= resolution))
    CHECK(relative_error(got.value, expected.value, expected.value_size) <= tolerance);
  REQUIRE(got.gradients.size() == expected.gradients.size());
  for (std::size_t k = 0; k < got.gradients.size(); ++k) {
    CAPTURE(k);
    CHECK(relative_error(got.gradients[k], expected.gradients[k], resolution) <= tolerance);
  }
  REQUIRE(got.d_log_scale.has_value() == expected.d_log_scale.has_value());
  if (got.d_log_scale && !(std::abs(*got.d_log_scale - *expected.d_log_scale) <= 100 * resolution))
    CHECK(relative_error(*got.d_log_scale, *expected.d_log_scale, expected.d_log_scale_size)
          <= tolerance);
  REQUIRE(got.d_bias.has_value() == expected.d_bias.has_value());
  if (got.d_bias)
    CHECK(relative_error(*got.d_bias, *expected.d_bias, expected.d_bias_size) <= tolerance);
}

/// The largest |x_i . dx_i|, relative to the largest |x_i| |dx_i|: zero but for rounding, as a
/// cosine does not change with the length of a row.
inline Real along_rows(const Matrix& x, const Matrix& dx) {
  Real along = 0, size = 0;
  for (Index i = 0; i < x.rows(); ++i) {
    along = std::max(along, std::abs(x.row(i).dot(dx.row(i))));
    size = std::max(size, x.row(i).norm() * dx.row(i).norm());
  }
  return along == 0 ? 0 : along / size;
}

/// <x, dx> and the sum of the sizes of its terms.
struct InnerProduct {
  Real value = 0;
  Real size = 0;
};

inline InnerProduct inner_product(const Matrix& x, const Matrix& dx) {
  const auto terms = x.cwiseProduct(dx).eval();
  return {terms.sum(), terms.cwiseAbs().sum()};
}

/// Cosine: the rows of every gradient are perpendicular to the rows of the input.
/// Dot: of losses over Z, <Z, dZ> = 2 d_log_scale, as they see Z through scale Z Z^T; of others
/// <Q, dQ> = <P, dP> + <N, dN>, as the loss sees Q and P through scale Q P^T; and without a
/// margin, which the scale multiplies too, that is d_log_scale.
inline void check_identities(const Problem& problem, const Answer& got, Real tolerance) {
  if (!has_scale(problem.loss)) return;
  if (problem.cosine) {
    for (std::size_t k = 0; k < got.gradients.size(); ++k) {
      CAPTURE(k);
      CHECK(along_rows(problem.inputs[k], got.gradients[k]) <= tolerance);
    }
    return;
  }
  if (is_symmetric(problem.loss)) {
    InnerProduct all;
    for (std::size_t k = 0; k < got.gradients.size(); ++k) {
      const InnerProduct one = inner_product(problem.inputs[k], got.gradients[k]);
      all.value += one.value;
      all.size += one.size;
    }
    if (got.d_log_scale && problem.positive_margin == 0 && !oracle::is_beyond_limit(problem))
      CHECK(std::abs(all.value - 2 * *got.d_log_scale) <= tolerance * all.size);
    return;
  }
  const InnerProduct queries = inner_product(problem.inputs[0], got.gradients[0]);
  InnerProduct candidates = inner_product(problem.inputs[1], got.gradients[1]);
  if (got.gradients.size() > 2) {
    const InnerProduct extra = inner_product(problem.inputs[2], got.gradients[2]);
    candidates.value += extra.value;
    candidates.size += extra.size;
  }
  const Real allowed = tolerance * std::max(queries.size, candidates.size);
  CHECK(std::abs(queries.value - candidates.value) <= allowed);
  if (got.d_log_scale && problem.positive_margin == 0 && !oracle::is_beyond_limit(problem))
    CHECK(std::abs(queries.value - *got.d_log_scale) <= allowed);
}

/// The value alone is the gradient's value to the bit; both are the oracle's; the identities hold.
template <class T>
void check_against(const Problem& problem, const Answer& expected) {
  const Real tolerance = tolerance_by_size<T>(problem);
  const Answer got = evaluate<T>(problem);
  CAPTURE(describe(problem.loss).function, problem.batch(), sizeof(T));
  CHECK(same_bits(evaluate_value<T>(problem), got.value));
  if (has_no_gradient(problem)) {
    CHECK(std::abs(got.value - expected.value) <= tolerance * std::max(Real(1), expected.value));
    for (const Matrix& gradient : got.gradients) CHECK(largest(gradient) <= tolerance);
    return;
  }
  // In one dimension the unit vectors of a triplet are equal or opposite, and may cancel.
  const Real resolution = problem.loss == Loss::triplet ? epsilon<double> : underflow<T>;
  check_answer(got, expected, tolerance, resolution);
  if (std::abs(expected.value) > underflow<T>) check_identities(problem, got, tolerance);
}

/// In float and double against the oracle.
inline void check_loss(const Problem& problem) {
  const Answer expected = oracle_answer(problem);
  check_against<float>(problem, expected);
  check_against<double>(problem, expected);
}

}  // namespace contrastive_tests

#endif
