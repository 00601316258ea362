// The length of a row, without overflow or underflow.
#ifndef CONTRASTIVE_DETAIL_NORM_HPP
#define CONTRASTIVE_DETAIL_NORM_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "inline.hpp"
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
  /// Neither zero, nor tiny, nor huge, nor without meaning.
  [[nodiscard]] bool is_ordinary() const { return length > 0 && exponent == 0; }
  /// May overflow to infinity.
  [[nodiscard]] W value() const { return exponent == 0 ? length : std::ldexp(length, -exponent); }
};

/// Sums side by side: fast, and nearly as good as pairwise. Entry k of a row goes to sum k % 8.
inline constexpr Index norm_lanes = 8;

template <class W>
CONTRASTIVE_INLINE W sum_of_lanes(const W* lanes, Index stride) {
  static_assert(norm_lanes == 8);
  const auto pair = [&](Index l) { return lanes[l * stride] + lanes[(l + 4) * stride]; };
  return (pair(0) + pair(2)) + (pair(1) + pair(3));
}

/// Whether no square that matters has left the range of normal numbers.
template <class W>
bool is_ordinary(W sum_of_squares) {
  return sum_of_squares > W(1e-240) && sum_of_squares < W(1e300);
}

/// |x| from the sum of squares of its entries.
template <class T>
Norm<Wide<T>> norm_of(Wide<T> sum, const T* x, Index stride, Index d) {
  using W = Wide<T>;
  if (is_ordinary(sum)) return {std::sqrt(sum), 0};
  W largest = 0;
  for (Index k = 0; k < d; ++k) largest = (std::max)(largest, std::fabs(W(x[k * stride])));
  if (largest == 0) return {};
  const int exponent = -std::ilogb(largest);
  W lanes[std::size_t(norm_lanes)] = {};
  for (Index k = 0; k < d; ++k) {
    const W value = std::ldexp(W(x[k * stride]), exponent);
    lanes[k % norm_lanes] += value * value;
  }
  return {std::sqrt(sum_of_lanes(lanes, 1)), exponent};
}

template <class T>
Norm<Wide<T>> row_norm(const T* x, Index stride, Index d) {
  using W = Wide<T>;
  W lanes[std::size_t(norm_lanes)] = {};
  Index k = 0;
  if (stride == 1)
    for (; k + norm_lanes <= d; k += norm_lanes) {
      for (Index l = 0; l < norm_lanes; ++l) lanes[l] += W(x[k + l]) * W(x[k + l]);
    }
  for (; k < d; ++k) {
    const W value = W(x[k * stride]);
    lanes[k % norm_lanes] += value * value;
  }
  return norm_of(sum_of_lanes(lanes, 1), x, stride, d);
}

/// The lengths of the rows begin .. end - 1 of x, read along x's memory: the same bits in either
/// storage order.
template <class T>
void row_norms(const View<const T>& x, Index begin, Index end, Norm<Wide<T>>* norms) {
  using W = Wide<T>;
  constexpr Index kRows = 16;
  Index i = begin;
  if (x.row_stride == 1)
    for (; i + kRows <= end; i += kRows) {
      W lanes[std::size_t(norm_lanes)][std::size_t(kRows)] = {};
      for (Index k = 0; k < x.cols; ++k) {
        W values[std::size_t(kRows)];
        for (Index r = 0; r < kRows; ++r) values[r] = W(x(i + r, k));
        W* lane = lanes[k % norm_lanes];
        for (Index r = 0; r < kRows; ++r) lane[r] += values[r] * values[r];
      }
      for (Index r = 0; r < kRows; ++r)
        norms[i - begin + r] =
            norm_of(sum_of_lanes(&lanes[0][r], kRows), &x(i + r, 0), x.col_stride, x.cols);
    }
  for (; i < end; ++i) norms[i - begin] = row_norm(&x(i, 0), x.col_stride, x.cols);
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_NORM_HPP
