// The length of a row, without overflow or underflow.
#ifndef CONTRASTIVE_DETAIL_NORM_HPP
#define CONTRASTIVE_DETAIL_NORM_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "view.hpp"

namespace contrastive::detail {

/// |x| = 2^-exponent / inverse. The exponent is 0 but for rows whose squares would leave the range
/// of W, so that any finite row that is not zero can be divided by its length.
template <class W>
struct Norm {
  W inverse = 0;  ///< 0 for a zero row
  int exponent = 0;

  [[nodiscard]] W divide(W x) const {
    if (exponent == 0) return x * inverse;
    const int half = exponent / 2;  // in two steps, so that neither leaves the range early
    return std::ldexp(std::ldexp(x, half) * inverse, exponent - half);
  }
  /// May overflow to infinity.
  [[nodiscard]] W value() const { return inverse == 0 ? W(0) : std::ldexp(1 / inverse, -exponent); }
};

template <class T>
Norm<Wide<T>> row_norm(const T* x, Index stride, Index d) {
  using W = Wide<T>;
  constexpr Index kLanes = 8;  // sums side by side: fast, and nearly as good as pairwise
  W largest[kLanes] = {};
  W squares[kLanes] = {};
  for (Index k = 0; k < d; ++k) {
    const W value = W(x[k * stride]);
    largest[k % kLanes] = (std::max)(largest[k % kLanes], std::fabs(value));
    squares[k % kLanes] += value * value;
  }
  W most = 0;
  for (const W lane : largest) most = (std::max)(most, lane);
  if (most == 0) return {};
  int exponent = 0;
  if (!(most > W(1e-120) && most < W(1e120))) {
    exponent = -std::ilogb(most);
    for (W& lane : squares) lane = 0;
    for (Index k = 0; k < d; ++k) {
      const W value = std::ldexp(W(x[k * stride]), exponent);
      squares[k % kLanes] += value * value;
    }
  }
  W sum = 0;
  for (const W lane : squares) sum += lane;
  return {1 / std::sqrt(sum), exponent};
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_NORM_HPP
