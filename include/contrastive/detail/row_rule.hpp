// The rule of the losses that are a softmax over the rows of the logits: InfoNCE, and InfoNCE with
// extra negatives.
//
//     L          = sum_i w_i L_i                    L_i: see targets.hpp
//     G_ij       = w_i (A_ij - share_i)             j not i
//     G_ii       = -w_i miss_i
//
// Plainly L_i = log sum_j e^(s_ij) - s_ii, share_i = 0, and miss_i is the sum of the other A_ij.
#ifndef CONTRASTIVE_DETAIL_ROW_RULE_HPP
#define CONTRASTIVE_DETAIL_ROW_RULE_HPP

#include "logits.hpp"
#include "softmax.hpp"
#include "targets.hpp"
#include "threads.hpp"

namespace contrastive::detail {

/// Runs the rule over all strips: returns the loss, each row's unweighted in `losses`, and with
/// `gradient` hands G to the logits.
template <class T, class Logits, class Own>
SoftmaxSums<Wide<T>> row_rule(Logits& logits, const Own& own, const Targets<T>& targets,
                              bool gradient, T* strip_data, Wide<T>* losses, Scratch& scratch) {
  using W = Wide<T>;
  const StripPlan<T>& plan = logits.plan();
  const double work = plan.strip_work(logits.depth());
  T* positives = scratch.take<T>(plan.strip_rows);
  LineSoftmax<W>* rows = scratch.take<LineSoftmax<W>>(plan.strip_rows);
  const T reference = common_reference<T>(logits.bound() + targets.largest_prior());
  // Of each chunk and row of a strip: its sums, and what makes G of its exponentials.
  LineSums<T>* sums = scratch.take<LineSums<T>>(plan.chunks() * plan.strip_rows);
  T* factors = scratch.take<T>(plan.chunks() * plan.strip_rows);
  SoftmaxSums<W> total;

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
        targets.take_row(plan, i, c, s);
      }
      for (Index r = 0; r < strip.rows; ++r)
        sums[c * plan.strip_rows + r] =
            targets.take_exponentials(plan, strip.first + r, c, strip.at(r, begin), reference);
    });

    // Each row's softmax, from its chunks in their order.
    parallel_for(strip.rows, work, [&](Index r) {
      const Index i = strip.first + r;
      LineSums<W> all;
      for (Index c = 0; c < plan.chunks(); ++c) all.add(sums[c * plan.strip_rows + r]);
      LineSums<W> extra;
      if (!own.empty()) {
        extra = own.exponentials(i, targets);
        all.add(extra);
      }
      const LineSoftmax<W> row = targets.softmax(targets.positive(i, positives[r]), all);
      rows[r] = row;
      losses[i] = row.loss;
      // A_ij of exponentials that are relative to another reference than all of the row's.
      const W w = targets.weight(i);
      const auto factor = [&](const auto& part) {
        if (part.sum == 0) return W(0);
        const W gap = W(part.reference) - all.exponentials.reference;
        return w * row.factor * (gap == 0 ? W(1) : std::exp(gap));
      };
      for (Index c = 0; c < plan.chunks(); ++c)
        factors[c * plan.strip_rows + r] = T(factor(sums[c * plan.strip_rows + r].exponentials));
      if (!own.empty() && gradient) own.differentiate(i, factor(extra.exponentials), w * row.share);
    });
    for (Index r = 0; r < strip.rows; ++r)
      total.diagonal -= targets.weight(strip.first + r) * rows[r].miss;
    if (!gradient) continue;

    // G, and the two products that carry it back.
    parallel_for(plan.chunks(), work, [&](Index c) {
      const Index begin = c * plan.chunk, end = plan.chunk_end(c);
      for (Index r = 0; r < strip.rows; ++r) {
        const Index i = strip.first + r;
        const W w = targets.weight(i);
        T* s = strip.at(r, begin);
        targets.differentiate(plan, i, c, s, factors[c * plan.strip_rows + r],
                              T(w * rows[r].share));
        if (begin <= i && i < end) s[i - begin] = T(-w * rows[r].miss);
      }
      logits.add_right(strip, c);
    });
    for_row_blocks(strip, work, [&](Index first, Index last) {
      logits.set_left(strip, first, last);
      if (own.empty()) return;
      for (Index r = first; r < last; ++r) own.backward(strip.first + r);
    });
  }

  for (Index i = 0; i < plan.rows; ++i) total.loss += targets.weight(i) * losses[i];
  return total;
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_ROW_RULE_HPP
