// One row (or column) of a softmax, from the sums that a sweep over its candidates gathers.
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

/// The loss of one row, and what its gradient is made of:
///
///     loss      = log sum_j e^(s_j) - s_pos, the positive among the j
///     A_j       = factor * e^(s_j - reference)   for the other candidates
///     1 - A_pos = miss = factor * sum
template <class W>
struct RowSoftmax {
  W loss = 0;
  W factor = 0;
  W miss = 0;
};

/// No step cancels: the loss is log1p of what the others weigh relative to the positive, and
/// 1 - A_pos is the sum of the other probabilities, never a difference from one.
template <class W>
RowSoftmax<W> row_softmax(W positive, const ExpSum<W>& others) {
  if (others.sum == 0) return {};  // no other candidate: probability one
  const W gap = others.reference - positive;
  RowSoftmax<W> row;
  if (gap + std::log(others.sum) < W(300)) {
    const W half = std::exp(gap / 2);  // e^gap in two steps: it may overflow where the sum is tiny
    const W ratio = others.sum * half * half;
    row.loss = std::log1p(ratio);
    row.factor = half / (1 + ratio) * half;
  } else {  // the positive weighs nothing
    row.loss = gap + std::log(others.sum);
    row.factor = 1 / others.sum;
  }
  row.miss = row.factor * others.sum;
  return row;
}

/// e^x where that is a normal number, and exactly 0 below (for -inf too, which stands for "no
/// candidate"). The second factor is 1 or 0: Eigen has no vectorised selection.
template <class Derived>
auto exp_or_zero(const Eigen::ArrayBase<Derived>& x) {
  using T = typename Derived::Scalar;
  const T lowest = std::log((std::numeric_limits<T>::min)());
  return x.derived().exp() * ((((x.derived() - lowest) * T(1e30)).max)(T(0)).min)(T(1));
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_SOFTMAX_HPP
