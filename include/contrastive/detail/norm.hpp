// The length of a row, without overflow or underflow.
#ifndef CONTRASTIVE_DETAIL_NORM_HPP
#define CONTRASTIVE_DETAIL_NORM_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "view.hpp"

namespace contrastive::detail {

/// |x| = length 2^-exponent. The exponent is 0 but for rows whose squares would leave the range of
/// W, so that any finite row that is not zero can be divided by its length.
template <class W>
struct Norm {
  W length = 0;
  int exponent = 0;

  /// x / |x|, and 0 for a zero row. A true division: a row with one entry becomes exactly 1 or -1.
  [[nodiscard]] W divide(W x) const {
    if (length == 0) return 0;
    if (exponent == 0) return x / length;
    const int half = exponent / 2;  // in two steps, so that neither leaves the range early
    return std::ldexp(std::ldexp(x, half) / length, exponent - half);
  }
  /// May overflow to infinity.
  [[nodiscard]] W value() const { return std::ldexp(length, -exponent); }
};

template <class T>
Norm<Wide<T>> row_norm(const T* x, Index stride, Index d) {
  using W = Wide<T>;
  constexpr Index kLanes = 8;  // sums side by side: fast, and nearly as good as pairwise
  const auto sum_squares = [&](int exponent) {
    W lanes[kLanes] = {};
    for (Index k = 0; k < d; k += kLanes) {
      W values[kLanes] = {};
      const Index count = (std::min)(kLanes, d - k);
      if (stride == 1 && count == kLanes)
        for (Index l = 0; l < kLanes; ++l) values[l] = W(x[k + l]);
      else
        for (Index l = 0; l < count; ++l) values[l] = W(x[(k + l) * stride]);
      if (exponent != 0)
        for (W& value : values) value = std::ldexp(value, exponent);
      for (Index l = 0; l < kLanes; ++l) lanes[l] += values[l] * values[l];
    }
    W sum = 0;
    for (const W lane : lanes) sum += lane;
    return sum;
  };
  const W sum = sum_squares(0);
  // Between these bounds no square that matters has left the range of normal numbers.
  if (sum > W(1e-240) && sum < W(1e300)) return {std::sqrt(sum), 0};
  W largest = 0;
  for (Index k = 0; k < d; ++k) largest = (std::max)(largest, std::fabs(W(x[k * stride])));
  if (largest == 0) return {};
  const int exponent = -std::ilogb(largest);
  return {std::sqrt(sum_squares(exponent)), exponent};
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_NORM_HPP
