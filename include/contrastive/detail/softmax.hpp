// One row or column of a softmax, from the sums that a sweep over its candidates gathers.
#ifndef CONTRASTIVE_DETAIL_SOFTMAX_HPP
#define CONTRASTIVE_DETAIL_SOFTMAX_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

#include "strips.hpp"
#include "view.hpp"

namespace contrastive::detail {

template <class W>
inline constexpr W minus_infinity = -std::numeric_limits<W>::infinity();

/// sum_j e^(s_j - reference) over the candidates other than the positive. The reference is their
/// largest, or one that all rows share; the sum is 0 where there is no candidate.
template <class W>
struct ExpSum {
  W reference = minus_infinity<W>;
  W sum = 0;

  /// Joins the sums of two sets of candidates, relative to the larger reference.
  void add(W other_reference, W other_sum) {
    if (other_sum == 0) return;
    if (other_reference == reference) {
      sum += other_sum;
    } else if (other_reference > reference) {
      sum = sum * std::exp(reference - other_reference) + other_sum;  // e^-inf = 0
      reference = other_reference;
    } else {
      sum += other_sum * std::exp(other_reference - reference);
    }
  }
};

/// How far logits may lie below a reference that is not their own largest, before exponentials lose
/// what matters: at the far end they are still 10^11 times the smallest normal number or more.
template <class T>
T exponential_range() {
  return T(0.7) * -std::log((std::numeric_limits<T>::min)());
}

/// A reference that serves all logits of a batch whose magnitudes are at most `bound`, or infinity
/// where the bound is too wide for one.
template <class T>
T common_reference(Wide<T> bound) {
  return 2 * bound <= Wide<T>(exponential_range<T>()) ? T(bound)
                                                      : std::numeric_limits<T>::infinity();
}

/// The sums over a line's candidates other than the positive; a line is a row or a column.
template <class W>
struct LineSums {
  ExpSum<W> exponentials{};
  W total = 0;  ///< sum_j s_j, only where labels are smoothed
  W count = 0;  ///< their number, only where labels are smoothed

  template <class T>
  void add(const LineSums<T>& part) {
    exponentials.add(W(part.exponentials.reference), W(part.exponentials.sum));
    total += W(part.total);
    count += W(part.count);
  }
};

/// The loss of a line, and what its gradient is made of:
///
///     dL/ds_j   = factor e^(s_j - reference) - share     for the other candidates
///     dL/ds_pos = -miss
template <class W>
struct LineSoftmax {
  W loss = 0;
  W factor = 0;
  W share = 0;
  W miss = 0;
};

/// log sum_j e^(s_j) - s_pos, the positive among the j: factor e^(s_j - reference) is A_j and miss
/// is 1 - A_pos.
///
/// No step cancels: the loss is log1p of what the others weigh relative to the positive, and
/// 1 - A_pos is the sum of the other probabilities, never a difference from one.
template <class W>
LineSoftmax<W> coupled_softmax(W positive, const ExpSum<W>& others) {
  if (others.sum == 0) return {};  // no other candidate: probability one
  const W gap = others.reference - positive;
  LineSoftmax<W> line;
  // Below the first limit e^gap does not overflow: the second looks at the sum too, which is slow.
  if (gap < W(200) || gap + std::log(others.sum) < W(300)) {
    const W half = std::exp(gap / 2);  // e^gap in two steps: it may overflow where the sum is tiny
    const W ratio = others.sum * half * half;
    line.loss = std::log1p(ratio);
    line.factor = half / (1 + ratio) * half;
  } else {  // the positive weighs nothing
    line.loss = gap + std::log(others.sum);
    line.factor = 1 / others.sum;
  }
  line.miss = line.factor * others.sum;
  return line;
}

/// The same with the positive left out of the sum: log sum_j e^(s_j) - s_pos, j not the positive.
template <class W>
LineSoftmax<W> decoupled_softmax(W positive, const ExpSum<W>& others) {
  if (others.sum == 0) return {};  // nothing to be told from
  LineSoftmax<W> line;
  line.loss = others.reference - positive + std::log(others.sum);
  line.factor = 1 / others.sum;
  line.miss = 1;
  return line;
}

/// 1 for a candidate's logit, 0 for -inf.
template <class T>
CONTRASTIVE_INLINE Pack<T> is_candidate(const Pack<T>& s) {
  return where_greater(s, Pack<T>(minus_infinity<T>), Pack<T>(1), Pack<T>(0));
}

/// The logits of the candidates, 0 in other places.
template <class T>
CONTRASTIVE_INLINE Pack<T> candidates_only(const Pack<T>& s) {
  return where_greater(s, Pack<T>(minus_infinity<T>), s, Pack<T>(0));
}

/// Sums down the columns of a chunk, wide before a sum in T loses digits.
template <class T>
class WideSums {
 public:
  /// To the columns l and following.
  CONTRASTIVE_INLINE void add(Index l, const Pack<T>& x) { x.add_to(sum_ + l); }
  void end_row() {
    if (++rows_ % 16 != 0) return;
    for (Index l = 0; l < Kernel<T>::chunk; ++l) {
      wide_[l] += Wide<T>(sum_[l]);
      sum_[l] = 0;
    }
  }
  [[nodiscard]] Wide<T> operator[](Index l) const { return wide_[l] + Wide<T>(sum_[l]); }

 private:
  alignas(64) T sum_[std::size_t(Kernel<T>::chunk)] = {};
  Wide<T> wide_[std::size_t(Kernel<T>::chunk)] = {};
  Index rows_ = 0;
};

/// Replaces the first `count` entries of a chunk's part of a row, and what a block of the kernel
/// has beyond, by e^(s - reference), and returns their sum. The reference is the largest s unless
/// one is given, that is finite.
template <class T>
ExpSum<T> chunk_exponentials(T* s, T reference, Index count = Kernel<T>::chunk) {
  count = round_up(count, Kernel<T>::width);
  if (reference == std::numeric_limits<T>::infinity()) {
    Pack<T> largest(minus_infinity<T>);
    for (Index l = 0; l < count; l += Pack<T>::size) largest = larger(largest, Pack<T>::at(s + l));
    reference = largest.largest();
  }
  if (reference == minus_infinity<T>) {
    std::fill(s, s + count, T(0));
    return {};
  }
  Pack<T> sum(0);
  for (Index l = 0; l < count; l += Pack<T>::size) {
    const Pack<T> e = exp_or_zero(Pack<T>::at(s + l) - reference);
    e.store(s + l);
    sum += e;
  }
  return {reference, sum.sum()};
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_SOFTMAX_HPP
