// How similarities become logits: by a fixed temperature, or by a scale that is learned.
#ifndef CONTRASTIVE_TEMPERATURE_HPP
#define CONTRASTIVE_TEMPERATURE_HPP

#include <cmath>
#include <limits>
#include <type_traits>

#include "detail/error.hpp"
#include "detail/view.hpp"

namespace contrastive {

/// No upper limit of a learned scale.
inline constexpr double no_limit = std::numeric_limits<double>::infinity();

/// A constant temperature: scale = 1 / tau.
///
/// Usual values: 0.05 (SimCSE), 0.02 (BGE), 0.01 (E5, GTE), 0.5 (SimCLR).
struct Temperature {
  double tau = 1.0;  ///< positive and finite
};

/// A learned temperature, as CLIP parameterises it:
///
///     scale           = min(exp(alpha), max_scale)
///     d scale/d alpha = scale  where alpha <= log(max_scale), else 0
///
/// A loss that is given a LogScale returns its derivative by alpha as `d_log_scale`. An alpha that
/// is log(max_scale) rounded to float still counts as being at the limit, though rounding may have
/// put it a little above.
/// @see Radford et al., "Learning Transferable Visual Models From Natural Language Supervision",
///      2021, arXiv:2103.00020, section 2.5.
struct LogScale {
  double alpha = std::log(1 / 0.07);  ///< where CLIP starts: tau = 0.07
  double max_scale = 100.0;           ///< positive; `no_limit` for none
};

/// What CLIP's guard leaves of alpha after an optimiser's step: alpha itself up to log(max_scale),
/// and beyond it the largest value of alpha's own type that is not above log(max_scale), so that
/// the derivative passes there and alpha never sticks.
///
/// @param alpha      the log of the scale, any floating-point type, not NaN.
/// @param max_scale  positive; `no_limit` returns alpha as it is.
/// @throws std::invalid_argument if alpha is NaN or max_scale is not positive.
template <class Real>
[[nodiscard]] Real limit_log_scale(Real alpha, double max_scale = 100.0) {
  static_assert(std::is_floating_point_v<Real>,
                "contrastive: limit_log_scale takes alpha as float, double or long double");
  if (std::isnan(alpha)) detail::refuse("limit_log_scale", "alpha is nan");
  if (!(max_scale > 0))
    detail::refuse("limit_log_scale", "max_scale is %.9g, it must be positive", max_scale);
  const double limit = std::log(max_scale);
  if (static_cast<long double>(alpha) <= static_cast<long double>(limit)) return alpha;
  const Real nearest = static_cast<Real>(limit);
  if (static_cast<long double>(nearest) <= static_cast<long double>(limit)) return nearest;
  return std::nextafter(nearest, -std::numeric_limits<Real>::infinity());
}

namespace detail {

/// A Temperature or a LogScale on its way to a core.
struct ScaleArgument {
  bool learned;
  double value;  ///< tau or alpha
  double max_scale;

  template <class S>
  explicit ScaleArgument(const S& scale) : learned(std::is_same_v<S, LogScale>) {
    static_assert(std::is_same_v<S, Temperature> || std::is_same_v<S, LogScale>,
                  "contrastive: the scale is a Temperature{tau} or a LogScale{alpha}");
    if constexpr (std::is_same_v<S, LogScale>) {
      value = scale.alpha;
      max_scale = scale.max_scale;
    } else {
      value = scale.tau;
      max_scale = no_limit;
    }
  }
};

/// A scale as the cores see it.
struct Scale {
  long double value = 1;
  bool passes = true;  ///< whether the derivative by alpha passes (see LogScale)
};

inline Scale resolve_temperature(const char* function, double tau) {
  if (!(tau > 0) || !std::isfinite(tau))
    refuse(function, "temperature is %.9g, it must be positive and finite", tau);
  if (!std::isfinite(1 / tau)) refuse(function, "temperature is %.9g, 1/tau overflows", tau);
  return {1 / static_cast<long double>(tau), true};
}

template <class W>
Scale resolve_log_scale(const char* function, double alpha, double max_scale) {
  if (!std::isfinite(alpha)) refuse(function, "log_scale alpha is %.9g", alpha);
  if (!(max_scale > 0)) refuse(function, "max_scale is %.9g, it must be positive", max_scale);
  const W exp_alpha = std::exp(static_cast<W>(alpha));
  if (!std::isfinite(std::fmin(static_cast<double>(exp_alpha), max_scale)))
    refuse(function, "log_scale alpha is %.9g, exp(alpha) overflows", alpha);
  const double limit = std::log(max_scale);
  // Beyond 1e4 alpha is above any limit that a float could hold.
  const bool was_float =
      std::fabs(alpha) < 1e4 && static_cast<double>(static_cast<float>(alpha)) == alpha;
  const bool at_limit = was_float && alpha <= static_cast<double>(static_cast<float>(limit));
  return {std::fmin(exp_alpha, static_cast<W>(max_scale)), alpha <= limit || at_limit};
}

/// Checks the scale, also that it fits the scalar type T.
template <class T>
Scale resolve(const char* function, const ScaleArgument& argument) {
  const Scale scale = argument.learned
                          ? resolve_log_scale<Wide<T>>(function, argument.value, argument.max_scale)
                          : resolve_temperature(function, argument.value);
  if (!(scale.value <= static_cast<long double>((std::numeric_limits<T>::max)())))
    refuse(function, "the scale %.9g overflows the scalar type", static_cast<double>(scale.value));
  return scale;
}

/// Whether a loss with this scale returns d_log_scale.
template <class S>
inline constexpr bool is_learned = std::is_same_v<S, LogScale>;

}  // namespace detail
}  // namespace contrastive

#endif  // CONTRASTIVE_TEMPERATURE_HPP
