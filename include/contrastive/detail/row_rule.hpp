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
/// `gradient` hands G to the logits. A strip of several parts is computed twice: for its sums, and
/// for G.
template <class T, class Logits, class Own>
SoftmaxSums<Wide<T>> row_rule(Logits& logits, const StripPlan<T>& plan, const Own& own,
                              const Targets<T>& targets, bool gradient, Wide<T>* losses,
                              Scratch& scratch) {
  using W = Wide<T>;
  const double work = plan.part_work(logits.depth());
  T* strip_data = scratch.take<T>(plan.part_size());
  T* positives = scratch.take<T>(plan.strip_rows);
  LineSoftmax<W>* rows = scratch.take<LineSoftmax<W>>(plan.strip_rows);
  LineSums<W>* row_sums = scratch.take<LineSums<W>>(plan.strip_rows);
  const T reference = common_reference<T>(logits.bound() + targets.largest_prior());
  LineSums<T>* sums = scratch.take<LineSums<T>>(plan.slots());  // of a chunk and a row
  SoftmaxSums<W> total;

  // S, and its exponentials chunk by chunk.
  const auto take_exponentials = [&](const Strip<T>& strip) {
    strip.for_chunks(work, [&](Index c) {
      logits.fill(strip, c);
      const Index begin = c * plan.chunk, end = plan.chunk_end(c);
      for (Index r = 0; r < strip.rows; ++r) {
        const Index i = strip.first + r;
        T* s = strip.at(r, begin);
        if (begin <= i && i < end) positives[r] = s[i - begin];
        targets.take_row(plan, i, c, s);
      }
      for (Index r = 0; r < strip.rows; ++r)
        sums[strip.slot(c, r)] =
            targets.take_exponentials(plan, strip.first + r, c, strip.at(r, begin), reference);
    });
  };
  // A_ij of exponentials that are relative to another reference than all of the row's.
  const auto factor = [&](Index i, Index r, const auto& part) {
    if (part.sum == 0) return W(0);
    const W gap = W(part.reference) - row_sums[r].exponentials.reference;
    return targets.weight(i) * rows[r].factor * (gap == 0 ? W(1) : std::exp(gap));
  };

  for (Index index = 0; index < plan.strips(); ++index) {
    const Index first = index * plan.strip_rows;
    const Index strip_rows = (std::min)(plan.strip_rows, plan.rows - first);
    for (Index r = 0; r < strip_rows; ++r) row_sums[r] = {};
    plan.for_parts_of(index, strip_data, [&](const Strip<T>& strip) {
      take_exponentials(strip);
      parallel_for(strip.rows, work, [&](Index r) {
        for (Index c = strip.first_chunk(); c < strip.end_chunk(); ++c)
          row_sums[r].add(sums[strip.slot(c, r)]);
      });
    });

    // Each row's softmax.
    parallel_for(strip_rows, work, [&](Index r) {
      const Index i = first + r;
      LineSums<W> extra;
      if (!own.empty()) {
        extra = own.exponentials(i, targets);
        row_sums[r].add(extra);
      }
      rows[r] = targets.softmax(targets.positive(i, positives[r]), row_sums[r]);
      losses[i] = rows[r].loss;
      if (!own.empty() && gradient)
        own.differentiate(i, factor(i, r, extra.exponentials), targets.weight(i) * rows[r].share);
    });
    for (Index r = 0; r < strip_rows; ++r)
      total.diagonal -= targets.weight(first + r) * rows[r].miss;
    if (!gradient) continue;

    // G, and the two products that carry it back.
    plan.for_parts_of(index, strip_data, [&](const Strip<T>& strip) {
      if (plan.parts(index) > 1) take_exponentials(strip);
      strip.for_chunks(work, [&](Index c) {
        const Index begin = c * plan.chunk, end = plan.chunk_end(c);
        for (Index r = 0; r < strip.rows; ++r) {
          const Index i = strip.first + r;
          const W w = targets.weight(i);
          T* s = strip.at(r, begin);
          targets.differentiate(plan, i, c, s, T(factor(i, r, sums[strip.slot(c, r)].exponentials)),
                                T(w * rows[r].share));
          if (begin <= i && i < end) s[i - begin] = T(-w * rows[r].miss);
        }
        logits.add_right(strip, c);
      });
      for_row_blocks(strip, work,
                     [&](Index begin, Index end) { logits.set_left(strip, begin, end); });
    });
    if (!own.empty()) parallel_for(strip_rows, work, [&](Index r) { own.backward(first + r); });
  }

  for (Index i = 0; i < plan.rows; ++i) total.loss += targets.weight(i) * losses[i];
  return total;
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_ROW_RULE_HPP
