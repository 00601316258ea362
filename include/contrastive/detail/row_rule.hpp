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

/// Replaces a chunk's part of a row by e^(s - reference), and returns their sum. The reference is
/// the largest s unless one is given, that is finite.
template <class T>
ExpSum<T> chunk_exponentials(T* s, T reference) {
  ChunkRow<T> row(s);
  if (reference == std::numeric_limits<T>::infinity()) reference = row.maxCoeff();
  if (reference == minus_infinity<T>) {
    row.setZero();
    return {};
  }
  row = exp_or_zero(row - reference);
  return {reference, row.sum()};
}

/// Runs the rule over all strips: returns the loss, and with `gradient` hands G to the logits.
template <class T, class Logits>
Wide<T> row_rule(Logits& logits, const OwnNegatives<T>* own, const Exclusions& excluded,
                 const MeanWeights<Wide<T>>& weights, bool gradient, T* strip_data,
                 Scratch& scratch) {
  using W = Wide<T>;
  const StripPlan<T>& plan = logits.plan();
  const double work = plan.strip_work(logits.depth());
  W* losses = scratch.take<W>(plan.rows);
  T* positives = scratch.take<T>(plan.strip_rows);
  RowSoftmax<W>* rows = scratch.take<RowSoftmax<W>>(plan.strip_rows);
  const T reference = common_reference<T>(logits.bound());
  // Of each chunk and row of a strip: its exponentials' sum, and what makes G of them.
  ExpSum<T>* sums = scratch.take<ExpSum<T>>(plan.chunks() * plan.strip_rows);
  T* factors = scratch.take<T>(plan.chunks() * plan.strip_rows);

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
        sums[c * plan.strip_rows + r] = chunk_exponentials(s, reference);
      }
    });

    // Each row's softmax, from its chunks in their order.
    parallel_for(strip.rows, work, [&](Index r) {
      const Index i = strip.first + r;
      ExpSum<W> others;
      for (Index c = 0; c < plan.chunks(); ++c)
        others.add(W(sums[c * plan.strip_rows + r].reference),
                   W(sums[c * plan.strip_rows + r].sum));
      ExpSum<W> extra;
      if (own != nullptr) {
        extra = own->exponentials(i);
        others.add(extra.reference, extra.sum);
      }
      rows[r] = row_softmax(W(positives[r]), others);
      losses[i] = rows[r].loss;
      const W factor = weights[i] * rows[r].factor;
      for (Index c = 0; c < plan.chunks(); ++c) {
        const ExpSum<T>& part = sums[c * plan.strip_rows + r];
        T& chunk_factor = factors[c * plan.strip_rows + r];
        if (part.sum == 0)
          chunk_factor = 0;
        else if (W(part.reference) == others.reference)
          chunk_factor = T(factor);
        else
          chunk_factor = T(factor * std::exp(W(part.reference) - others.reference));
      }
      if (own != nullptr && extra.sum != 0)
        own->scale_row(i, factor * std::exp(extra.reference - others.reference));
    });
    if (!gradient) continue;

    // G, and the two products that carry it back.
    parallel_for(plan.chunks(), work, [&](Index c) {
      const Index begin = c * plan.chunk, end = plan.chunk_end(c);
      for (Index r = 0; r < strip.rows; ++r) {
        const Index i = strip.first + r;
        T* s = strip.at(r, begin);
        ChunkRow<T> row(s);
        row *= factors[c * plan.strip_rows + r];
        if (begin <= i && i < end) s[i - begin] = T(-weights[i] * rows[r].miss);
      }
      logits.add_right(strip, c);
    });
    for_row_blocks(strip, work, [&](Index first, Index last) {
      logits.set_left(strip, first, last);
      if (own != nullptr)
        for (Index r = first; r < last; ++r) own->backward(strip.first + r);
    });
  }

  W loss = 0;
  for (Index i = 0; i < plan.rows; ++i) loss += weights[i] * losses[i];
  return loss;
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_ROW_RULE_HPP
