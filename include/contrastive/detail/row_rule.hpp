// The rule of the losses that are a softmax over the rows of the logits: InfoNCE, and InfoNCE with
// extra negatives.
//
//     L_i        = log sum_j e^(s_ij) - s_ii        j over row i's candidates, i among them
//     L          = sum_i w_i L_i
//     G_ij       = w_i A_ij                         A_ij = e^(s_ij) / sum_j e^(s_ij), j not i
//     G_ii       = -w_i sum of the other A_ij       which is w_i (A_ii - 1)
#ifndef CONTRASTIVE_DETAIL_ROW_RULE_HPP
#define CONTRASTIVE_DETAIL_ROW_RULE_HPP

#include "exclusions.hpp"
#include "logits.hpp"
#include "own_negatives.hpp"
#include "softmax.hpp"
#include "threads.hpp"
#include "weights.hpp"

namespace contrastive::detail {

/// Makes the candidates that are none, the positive among them, and the padding of a chunk's part
/// of row i invisible to a softmax over the others.
template <class T>
void hide_excluded(const Exclusions& excluded, const StripPlan<T>& plan, Index i, Index c, T* s) {
  const Index begin = c * plan.chunk, end = plan.chunk_end(c);
  excluded.for_each(i, begin, end, [&](Index j) { s[j - begin] = minus_infinity<T>; });
  for (Index l = end - begin; l < plan.chunk; ++l) s[l] = minus_infinity<T>;
}

/// Of a chunk's part of a row: its largest entry and the sum of e^(s - largest), which replace s.
template <class T>
void chunk_exponentials(T* s, T& largest, T& sum) {
  ChunkRow<T> row(s);
  largest = row.maxCoeff();
  if (largest == minus_infinity<T>) {
    row.setZero();
    sum = 0;
    return;
  }
  row = exp_or_zero(row - largest);
  sum = row.sum();
}

/// Runs the rule over all strips: returns the loss, and with `gradient` hands G to the logits.
template <class T, class Logits>
Wide<T> row_rule(Logits& logits, const OwnNegatives<T>* own, const Exclusions& excluded,
                 const MeanWeights<Wide<T>>& weights, bool gradient, T* strip_data,
                 Scratch& scratch) {
  using W = Wide<T>;
  constexpr Index kRowBlock = 60;  // rows that share a panel while dX̂ is made
  const StripPlan<T>& plan = logits.plan();
  const double work = plan.strip_work(logits.depth());
  W* losses = scratch.take<W>(plan.rows);
  T* positives = scratch.take<T>(plan.strip_rows);
  RowSoftmax<W>* rows = scratch.take<RowSoftmax<W>>(plan.strip_rows);
  // Of each chunk and row of a strip; `largest` becomes the factor that makes G of exponentials.
  T* largest = scratch.take<T>(plan.chunks() * plan.strip_rows);
  T* sums = scratch.take<T>(plan.chunks() * plan.strip_rows);

  for (Index index = 0; index < plan.strips(); ++index) {
    const Strip<T> strip = plan.strip(index, strip_data);

    // S, and its exponentials chunk by chunk.
    parallel_for(plan.chunks(), work, [&](Index c) {
      logits.fill(strip, c);
      const Index begin = c * plan.chunk, end = plan.chunk_end(c);
      for (Index r = 0; r < strip.rows; ++r) {
        const Index i = strip.first + r;
        T* s = strip.at(r, begin);
        if (begin <= i && i < end) positives[r] = s[i - begin];
        hide_excluded(excluded, plan, i, c, s);
        chunk_exponentials(s, largest[c * plan.strip_rows + r], sums[c * plan.strip_rows + r]);
      }
    });

    // Each row's softmax, from its chunks in their order.
    parallel_for(strip.rows, work, [&](Index r) {
      const Index i = strip.first + r;
      ExpSum<W> others;
      for (Index c = 0; c < plan.chunks(); ++c)
        others.add(W(largest[c * plan.strip_rows + r]), W(sums[c * plan.strip_rows + r]));
      ExpSum<W> extra;
      if (own != nullptr) {
        extra = own->exponentials(i);
        others.add(extra.largest, extra.sum);
      }
      rows[r] = row_softmax(W(positives[r]), others);
      losses[i] = rows[r].loss;
      const W factor = weights[i] * rows[r].factor;
      for (Index c = 0; c < plan.chunks(); ++c) {
        T& m = largest[c * plan.strip_rows + r];
        m = m == minus_infinity<T> ? T(0) : T(factor * std::exp(W(m) - others.largest));
      }
      if (own != nullptr && extra.sum != 0)
        own->scale_row(i, factor * std::exp(extra.largest - others.largest));
    });
    if (!gradient) continue;

    // G, and the two products that carry it back.
    parallel_for(plan.chunks(), work, [&](Index c) {
      const Index begin = c * plan.chunk, end = plan.chunk_end(c);
      for (Index r = 0; r < strip.rows; ++r) {
        const Index i = strip.first + r;
        T* s = strip.at(r, begin);
        ChunkRow<T> row(s);
        row *= largest[c * plan.strip_rows + r];
        if (begin <= i && i < end) s[i - begin] = T(-weights[i] * rows[r].miss);
      }
      logits.add_right(strip, c);
    });
    const Index blocks = (strip.rows + kRowBlock - 1) / kRowBlock;
    parallel_for(blocks, work, [&](Index block) {
      const Index begin = block * kRowBlock;
      const Index end = (std::min)(begin + kRowBlock, strip.rows);
      logits.set_left(strip, begin, end);
      if (own != nullptr)
        for (Index r = begin; r < end; ++r) own->backward(strip.first + r);
    });
  }

  W loss = 0;
  for (Index i = 0; i < plan.rows; ++i) loss += weights[i] * losses[i];
  return loss;
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_ROW_RULE_HPP
