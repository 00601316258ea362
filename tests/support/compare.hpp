// Errors as the tests measure them: relative to the largest entry of a matrix, to a scalar's value.
#ifndef CONTRASTIVE_TESTS_SUPPORT_COMPARE_HPP
#define CONTRASTIVE_TESTS_SUPPORT_COMPARE_HPP

#include <algorithm>
#include <cmath>
#include <limits>

#include "problem.hpp"

namespace contrastive_tests {

/// |got - expected| / |expected|. Where zero is expected only zero will do, and NaN never does.
inline Real relative_error(Real got, Real expected) {
  if (got == expected) return 0;
  const Real error = std::abs(got - expected) / std::abs(expected);
  return std::isnan(error) ? std::numeric_limits<Real>::infinity() : error;
}

inline Real largest(const Matrix& m) {
  return m.size() == 0 ? 0 : m.cwiseAbs().maxCoeff();
}

/// Largest |got - expected| over the entries, divided by the largest |expected|. Infinite for
/// matrices of different shapes, and where an entry that is expected to be zero is not. Differences
/// of at most `resolution` are none.
inline Real relative_error(const Matrix& got, const Matrix& expected, Real resolution = 0) {
  constexpr Real infinity = std::numeric_limits<Real>::infinity();
  if (got.rows() != expected.rows() || got.cols() != expected.cols()) return infinity;
  const Real size = largest(expected);
  Real worst = 0;
  for (Index i = 0; i < got.rows(); ++i) {
    for (Index j = 0; j < got.cols(); ++j) {
      if (std::abs(got(i, j) - expected(i, j)) <= resolution) continue;
      const Real error = std::abs(got(i, j) - expected(i, j)) / size;
      if (expected(i, j) == 0 || std::isnan(error)) return infinity;
      worst = std::max(worst, error);
    }
  }
  return worst;
}

/// Against a reference value: 1e-40 is the noise of its differencing. A matrix that is zero there,
/// all of it, is to be zero exactly.
inline Real reference_error(const Matrix& got, const Matrix& expected) {
  return relative_error(got, expected, largest(expected) == 0 ? 0 : 1e-40L);
}

/// Every row measured by its own largest entry; rows whose largest is below `floor` are left out.
inline Real relative_error_by_row(const Matrix& got, const Matrix& expected, Real floor = 0) {
  if (got.rows() != expected.rows()) return std::numeric_limits<Real>::infinity();
  Real worst = 0;
  for (Index i = 0; i < got.rows(); ++i)
    if (largest(expected.row(i)) >= floor)
      worst = std::max(worst, relative_error(Matrix(got.row(i)), Matrix(expected.row(i))));
  return worst;
}

inline bool same_bits(Real a, Real b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

inline bool same_bits(const std::optional<Real>& a, const std::optional<Real>& b) {
  return a.has_value() == b.has_value() && (!a.has_value() || same_bits(*a, *b));
}

inline bool same_bits(const Matrix& a, const Matrix& b) {
  if (a.rows() != b.rows() || a.cols() != b.cols()) return false;
  for (Index i = 0; i < a.rows(); ++i)
    for (Index j = 0; j < a.cols(); ++j)
      if (!same_bits(a(i, j), b(i, j))) return false;
  return true;
}

inline bool same_bits(const Answer& a, const Answer& b) {
  if (a.gradients.size() != b.gradients.size()) return false;
  for (std::size_t k = 0; k < a.gradients.size(); ++k)
    if (!same_bits(a.gradients[k], b.gradients[k])) return false;
  return same_bits(a.value, b.value) && same_bits(a.d_log_scale, b.d_log_scale)
         && same_bits(a.d_bias, b.d_bias);
}

}  // namespace contrastive_tests

#endif
