// The rule of the sigmoid loss: every entry of the logits is a binary problem of its own.
//
//     x_ij = s_ij + bias            z_ij = 1 where i = j, else -1
//     L    = sum_i w_i sum_j softplus(-z_ij x_ij)
//     G_ij = w_i sigmoid(x_ij)  off the diagonal,  G_ii = -w_i sigmoid(-x_ii)
#ifndef CONTRASTIVE_DETAIL_SIGMOID_RULE_HPP
#define CONTRASTIVE_DETAIL_SIGMOID_RULE_HPP

#include <algorithm>
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
Wide<T> sum_log1p(const T* e) {
  constexpr Index kPart = (std::max)(Index{8}, Pack<T>::size);
  alignas(64) T parts[std::size_t(kPart)] = {};
  for (Index begin = 0; begin < Kernel<T>::chunk; begin += kPart)
    for (Index l = 0; l < kPart; l += Pack<T>::size) {
      const Pack<T> next = Pack<T>::at(e + begin + l), q = Pack<T>::at(parts + l);
      (q + (next + q * next)).store(parts + l);
    }
  Wide<T> product = 0;
  for (const T q : parts) product += Wide<T>(q) + product * Wide<T>(q);
  return std::log1p(product);
}

/// Runs the rule over all strips: returns the sums, each row's unweighted loss in `losses`, and
/// with `gradient` hands G to the logits.
template <class T, class Logits>
SigmoidSums<Wide<T>> sigmoid_rule(Logits& logits, const StripPlan<T>& plan,
                                  const Exclusions& excluded, const MeanWeights<Wide<T>>& weights,
                                  double bias, bool gradient, Wide<T>* losses, Scratch& scratch) {
  using W = Wide<T>;
  const double work = plan.part_work(logits.depth());
  T* strip_data = scratch.take<T>(plan.part_size());
  SigmoidSums<W>* parts = scratch.take<SigmoidSums<W>>(plan.slots());  // of a chunk and a row
  T* positives = scratch.take<T>(plan.strip_rows);
  SigmoidSums<W>* rows = scratch.take<SigmoidSums<W>>(plan.rows);
  std::fill_n(rows, plan.rows, SigmoidSums<W>{});

  plan.for_parts(strip_data, false, [&](Index /*index*/, const Strip<T>& strip) {
    strip.for_chunks(work, [&](Index c) {
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
        const W w = weights[i];
        // With e = e^-|x|: softplus(x) = max(x, 0) + log1p(e), sigmoid(x) = (x > 0 ? 1 : e) / (1 +
        // e); 0 at -inf.
        alignas(64) T exponentials[std::size_t(Kernel<T>::chunk)];
        Pack<T> above(0), sum(0);
        for (Index l = 0; l < plan.chunk; l += Pack<T>::size) {
          const Pack<T> x = Pack<T>::at(s + l) + T(bias);
          const Pack<T> e = exp_or_zero(T(0) - absolute(x));
          const Pack<T> sigmoids = where_greater(x, T(0), T(1), e) / (e + T(1));
          above += larger(x, T(0));
          sum += sigmoids;
          e.store(exponentials + l);
          (sigmoids * T(w)).store(s + l);
        }
        SigmoidSums<W>& part = parts[strip.slot(c, r)];
        part.loss = W(above.sum()) + sum_log1p(exponentials);
        part.d_bias = W(sum.sum());
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
      const Index i = strip.first + r;
      for (Index c = strip.first_chunk(); c < strip.end_chunk(); ++c) {
        const SigmoidSums<W>& part = parts[strip.slot(c, r)];
        rows[i].loss += part.loss;
        rows[i].d_bias += part.d_bias;
      }
    }
    if (!gradient) return;
    for_row_blocks(strip, work,
                   [&](Index first, Index last) { logits.set_left(strip, first, last); });
  });
  SigmoidSums<W> total;
  for (Index i = 0; i < plan.rows; ++i) {
    losses[i] = rows[i].loss;
    total.loss += weights[i] * rows[i].loss;
    total.d_bias += weights[i] * rows[i].d_bias;
  }
  return total;
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_SIGMOID_RULE_HPP
