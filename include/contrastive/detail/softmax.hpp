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

/// sum_j e^(s_j - largest) over the candidates other than the positive; largest is -inf and the sum
/// 0 where there is none.
template <class W>
struct ExpSum {
  W largest = minus_infinity<W>;
  W sum = 0;

  /// Joins the sums of two sets of candidates.
  void add(W other_largest, W other_sum) {
    if (other_sum == 0) return;
    if (other_largest > largest) {
      sum = sum * std::exp(largest - other_largest) + other_sum;  // e^-inf = 0
      largest = other_largest;
    } else {
      sum += other_sum * std::exp(other_largest - largest);
    }
  }
};

/// The loss of one row, and what its gradient is made of:
///
///     loss     = log sum_j e^(s_j) - s_pos, the positive among the j
///     A_j      = factor * e^(s_j - largest)   for the other candidates
///     1 - A_pos = miss = factor * sum
template <class W>
struct RowSoftmax {
  W loss = 0;
  W factor = 0;
  W miss = 0;
};

/// No step cancels: the loss is log1p(sum of the others / the largest) where the positive is the
/// largest, and (largest - s_pos) + log(...) of two non-negative terms where it is not. 1 - A_pos
/// is the sum of the other probabilities, never a difference from one.
template <class W>
RowSoftmax<W> row_softmax(W positive, const ExpSum<W>& others) {
  if (others.sum == 0) return {};  // no other candidate: probability one
  const W gap = others.largest - positive;
  RowSoftmax<W> row;
  if (gap <= 0) {
    const W ratio = others.sum * std::exp(gap);
    row.loss = std::log1p(ratio);
    row.factor = std::exp(gap) / (1 + ratio);
  } else {
    const W total = others.sum + std::exp(-gap);
    row.loss = gap + std::log(total);
    row.factor = 1 / total;
  }
  row.miss = row.factor * others.sum;
  return row;
}

/// e^x, and exactly 0 below the normal numbers (for -inf too, which stands for "no candidate").
template <class Derived>
auto exp_or_zero(const Eigen::ArrayBase<Derived>& x) {
  using T = typename Derived::Scalar;
  return (x.derived().exp() - (std::numeric_limits<T>::min)()).max(T(0));
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_SOFTMAX_HPP
