// The rule of the sigmoid loss: every entry of the logits is a binary problem of its own.
//
//     x_ij = s_ij + bias            z_ij = 1 where i = j, else -1
//     L    = sum_i w_i sum_j softplus(-z_ij x_ij)
//     G_ij = w_i sigmoid(x_ij)  off the diagonal,  G_ii = -w_i sigmoid(-x_ii)
#ifndef CONTRASTIVE_DETAIL_SIGMOID_RULE_HPP
#define CONTRASTIVE_DETAIL_SIGMOID_RULE_HPP

#include <cmath>

#include "logits.hpp"
#include "targets.hpp"

namespace contrastive::detail {

template <class W>
struct SigmoidSums {
  W loss = 0;
  W d_bias = 0;  ///< sum_ij G_ij
};

/// log(1 + e^x) without overflow, and with all digits where it is tiny.
template <class W>
W softplus(W x) {
  return (std::max)(x, W(0)) + std::log1p(std::exp(-std::fabs(x)));
}

/// 1 / (1 + e^-x)
template <class W>
W sigmoid(W x) {
  const W e = std::exp(-std::fabs(x));
  return (x >= 0 ? W(1) : e) / (1 + e);
}

/// sum_l log(1 + e_l) for e_l in [0, 1], as the logarithm of a product: q = prod_l (1 + e_l) - 1 is
/// gathered without ever adding to 1, so that sums of tiny e_l keep their digits.
template <class T>
Wide<T> sum_log1p(const Lanes<T>& e) {
  constexpr Index kPart = 8;
  using Part = Eigen::Array<T, kPart, 1>;
  Part q = e.template head<kPart>();
  for (Index begin = kPart; begin < Kernel<T>::chunk; begin += kPart) {
    const Part next = e.template segment<kPart>(begin);
    q += next + q * next;
  }
  Wide<T> product = 0;
  for (Index l = 0; l < kPart; ++l) product += Wide<T>(q[l]) + product * Wide<T>(q[l]);
  return std::log1p(product);
}

/// Runs the rule over all strips: returns the sums, each row's unweighted loss in `losses`, and
/// with `gradient` hands G to the logits.
template <class T, class Logits>
SigmoidSums<Wide<T>> sigmoid_rule(Logits& logits, const Exclusions& excluded,
                                  const MeanWeights<Wide<T>>& weights, double bias, bool gradient,
                                  T* strip_data, Wide<T>* losses, Scratch& scratch) {
  using W = Wide<T>;
  const StripPlan<T>& plan = logits.plan();
  const double work = plan.strip_work(logits.depth());
  // Of each chunk and row of a strip.
  SigmoidSums<W>* parts = scratch.take<SigmoidSums<W>>(plan.chunks() * plan.strip_rows);
  T* positives = scratch.take<T>(plan.strip_rows);
  SigmoidSums<W> total;

  for (Index index = 0; index < plan.strips(); ++index) {
    const Strip<T> strip = plan.strip(index, strip_data);
    parallel_for(plan.chunks(), work, [&](Index c) {
      logits.fill(strip, c);
      const Index begin = c * plan.chunk, end = plan.chunk_end(c);
      for (Index r = 0; r < strip.rows; ++r) {
        const Index i = strip.first + r;
        T* s = strip.at(r, begin);
        if (begin <= i && i < end) positives[r] = s[i - begin];
        hide_excluded(excluded, plan, i, c, s);
      }
      for (Index r = 0; r < strip.rows; ++r) {
        const Index i = strip.first + r;
        T* s = strip.at(r, begin);
        ChunkRow<T> row(s);
        const Lanes<T> x = row + T(bias);
        const Lanes<T> e = exp_or_zero(-x.abs());
        const W w = weights[i];
        SigmoidSums<W>& part = parts[c * plan.strip_rows + r];
        // softplus(x) = max(x, 0) + log1p(e) and sigmoid(x) = (x < 0 ? e : 1) / (1 + e); 0 at -inf.
        part.loss = W(sum_of<T>((x.max)(T(0)))) + sum_log1p<T>(e);
        const Lanes<T> is_positive = (((x * T(1e30)).max)(T(0)).min)(T(1));
        row = (e.max)(is_positive) / (T(1) + e);
        part.d_bias = W(sum_of<T>(row));
        if (gradient) row *= T(w);
        if (begin <= i && i < end) {
          const W positive = W(positives[r]) + W(bias);
          part.loss += softplus(-positive);
          part.d_bias -= sigmoid(-positive);
          s[i - begin] = T(-w * sigmoid(-positive));
        }
      }
      if (gradient) logits.add_right(strip, c);
    });
    for (Index r = 0; r < strip.rows; ++r) {
      SigmoidSums<W> row;
      for (Index c = 0; c < plan.chunks(); ++c) {
        row.loss += parts[c * plan.strip_rows + r].loss;
        row.d_bias += parts[c * plan.strip_rows + r].d_bias;
      }
      losses[strip.first + r] = row.loss;
      total.loss += weights[strip.first + r] * row.loss;
      total.d_bias += weights[strip.first + r] * row.d_bias;
    }
    if (!gradient) continue;
    for_row_blocks(strip, work,
                   [&](Index first, Index last) { logits.set_left(strip, first, last); });
  }
  return total;
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_SIGMOID_RULE_HPP
