// Finite differences of a function of a matrix, to hold a gradient derived by hand against.
#ifndef CONTRASTIVE_GRADIENT_CHECK_HPP
#define CONTRASTIVE_GRADIENT_CHECK_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "detail/checks.hpp"
#include "detail/view.hpp"

namespace contrastive {

/// How far a gradient is from the differences, and where it is farthest.
struct GradientCheck {
  /// max_ij |analytic_ij - numeric_ij| / the largest entry in magnitude of the two gradients; 0
  /// where both are all zero, infinite where an entry is not finite.
  double max_error = 0;
  Eigen::Index row = 0;  ///< where the maximum is, counted from 0; the first of equals
  Eigen::Index col = 0;
  double analytic = 0;  ///< the two entries there
  double numeric = 0;
};

struct GradientCheckOptions {
  /// h of (f(x + h) - f(x - h)) / 2h for every entry, with two calls of f. 0 chooses: the power of
  /// two at or below cbrt(eps) max(|x_ij|, geometric mean of |x|), with eps that of the type that f
  /// returns; and h/2 too, to cancel the error in h^2.
  double step = 0;
};

namespace detail {

/// The derivative of f at one entry x of a matrix, by central differences. The true difference of
/// the two points divides, as x + h and x - h are rounded to T.
template <class T, class Function>
long double central_difference(const Function& f, T& x, T h) {
  const T centre = x, above = centre + h, below = centre - h;
  x = above;
  const long double f_above = f();
  x = below;
  const long double f_below = f();
  x = centre;
  return (f_above - f_below) / (static_cast<long double>(above) - static_cast<long double>(below));
}

/// The same with two steps, h and h/2, of whose errors, c h^2 + O(h^4), the first term cancels.
template <class T, class Function>
long double extrapolated_difference(const Function& f, T& x, T h) {
  const long double wide = central_difference(f, x, h);
  const long double narrow = central_difference(f, x, h / 2);
  return narrow + (narrow - wide) / 3;
}

/// The power of two at or below cbrt(eps) size: a power of two, so that x + h and x - h are exact
/// for most x. eps is that of f. Rounding then makes an error of about eps^(2/3), and steps are
/// short enough for f that bend sharply and for most kinks.
template <class Value>
long double difference_step(long double size) {
  const auto eps = static_cast<long double>(std::numeric_limits<Value>::epsilon());
  return std::ldexp(1.0L, std::ilogb(std::cbrt(eps) * size));
}

/// The geometric mean of the entries' sizes, without those that are 0; 1 where all are. It stands
/// in for the size of an entry near 0, which says nothing about f.
template <class T>
long double typical_size(const View<const T>& x) {
  long double sum = 0;
  Index count = 0;
  for (Index i = 0; i < x.rows; ++i)
    for (Index j = 0; j < x.cols; ++j)
      if (x(i, j) != 0) {
        sum += std::log(std::fabs(static_cast<long double>(x(i, j))));
        ++count;
      }
  return count == 0 ? 1 : std::exp(sum / static_cast<long double>(count));
}

template <class T, class G>
void check_arguments_of_differences(const char* function, const View<const T>& x,
                                    const View<const G>& gradient, double step) {
  check_not_empty(function, "x", x);
  if (x.rows != gradient.rows || x.cols != gradient.cols)
    refuse(function, "x is %lld x %lld but gradient is %lld x %lld, they must have the same shape",
           number(x.rows), number(x.cols), number(gradient.rows), number(gradient.cols));
  check_finite(function, "x", x);
  if (!(step >= 0) || !std::isfinite(step))
    refuse(function, "step is %.9g, it must be finite and not negative", step);
  for (Index i = 0; i < x.rows && step > 0; ++i)
    for (Index j = 0; j < x.cols; ++j)
      if (!(x(i, j) - T(step) < x(i, j) && x(i, j) < x(i, j) + T(step)))
        refuse(function, "step is %.9g, which does not change %.9g at row %lld, column %lld", step,
               double(x(i, j)), number(i), number(j));
}

}  // namespace detail

/// Compares a gradient with differences of the function that it is the gradient of.
///
///     auto f = [&](const MatrixXd& W) { return info_nce_loss(X * W, Y * W, scale); };
///     GradientCheck c = check_gradient(f, W, dW);
///     if (c.max_error > 1e-8) ...          // c.row, c.col, c.analytic, c.numeric say where
///
/// What to expect of a right gradient: errors of about 1e-9 where f returns a double and computes
/// in double, 1e-3 where it returns a float, times the ratio of f to the gradient where that is
/// large. At a kink the differences give the mean of the slopes on both sides. Where the gradient
/// vanishes altogether nothing but rounding is compared.
///
/// @param f         takes a matrix of the type of x and returns a floating-point number, of the
///                  type in which it computes; for an x in float that is better double.
/// @param x         where; any Eigen matrix or vector, finite. It is copied, and f is called with
///                  the copy, one entry of it changed.
/// @param gradient  of the shape of x, of any floating-point type.
/// @param options   a step.
/// @throws std::invalid_argument if shapes differ or are empty, x is not finite, the step is
///     negative, not finite or too small to change an entry of x, or f(x) is not finite.
/// @par Complexity
/// 4 calls of f an entry (2 with a step), and one.
template <class Function, class DX, class DG>
[[nodiscard]] GradientCheck check_gradient(Function&& f, const Eigen::MatrixBase<DX>& x,
                                           const Eigen::MatrixBase<DG>& gradient,
                                           const GradientCheckOptions& options = {}) {
  using Matrix = typename DX::PlainObject;
  using T = typename Matrix::Scalar;
  using Value = std::decay_t<decltype(f(std::declval<const Matrix&>()))>;
  static_assert(std::is_floating_point_v<Value>,
                "contrastive: check_gradient takes a function of a matrix that returns a "
                "floating-point number");
  detail::require_same_scalar<Matrix>();
  detail::require_same_scalar<DG>();
  Matrix point = x;
  const detail::Bound<DG> given(gradient);
  const char* function = "check_gradient";
  detail::check_arguments_of_differences(function, detail::strided_view(std::as_const(point)),
                                         given.view(), options.step);
  const auto value = [&] { return static_cast<long double>(f(std::as_const(point))); };
  const long double at_x = value();
  if (!std::isfinite(at_x)) detail::refuse(function, "f(x) is %.9g", static_cast<double>(at_x));

  const long double typical = detail::typical_size(detail::strided_view(std::as_const(point)));
  GradientCheck worst;
  long double worst_difference = -1, largest = 0;
  for (Eigen::Index i = 0; i < point.rows(); ++i)
    for (Eigen::Index j = 0; j < point.cols(); ++j) {
      T& x_ij = point.coeffRef(i, j);
      const long double size = (std::max)(std::fabs(static_cast<long double>(x_ij)), typical);
      const auto h = T(detail::difference_step<Value>(size));
      const long double numeric = options.step > 0
                                      ? detail::central_difference(value, x_ij, T(options.step))
                                      : detail::extrapolated_difference(value, x_ij, h);
      const auto analytic = static_cast<long double>(given.view()(i, j));
      long double difference = std::fabs(analytic - numeric);
      if (std::isfinite(difference))
        largest = (std::max)({largest, std::fabs(analytic), std::fabs(numeric)});
      else
        difference = std::numeric_limits<long double>::infinity();
      if (difference > worst_difference) {
        worst_difference = difference;
        worst = {0, i, j, static_cast<double>(analytic), static_cast<double>(numeric)};
      }
    }
  if (worst_difference > 0) worst.max_error = static_cast<double>(worst_difference / largest);
  return worst;
}

}  // namespace contrastive

#endif  // CONTRASTIVE_GRADIENT_CHECK_HPP
