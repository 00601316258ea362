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
/// `gradient` hands G to the logits. A strip that `plan` holds in groups is computed twice: for its
/// sums, and for G.
template <class T, class Logits, class Own>
SoftmaxSums<Wide<T>> row_rule(Logits& logits, const StripPlan<T>& plan, const Own& own,
                              const Targets<T>& targets, bool gradient, Wide<T>* losses,
                              Scratch& scratch) {
  using W = Wide<T>;
  const double work = plan.strip_work(logits.depth()) / double(plan.groups());
  T* strip_data = scratch.take<T>(plan.strip_size());
  T* positives = scratch.take<T>(plan.strip_rows);
  LineSoftmax<W>* rows = scratch.take<LineSoftmax<W>>(plan.strip_rows);
  LineSums<W>* row_sums = scratch.take<LineSums<W>>(plan.strip_rows);
  const T reference = common_reference<T>(logits.bound() + targets.largest_prior());
  LineSums<T>* sums = scratch.take<LineSums<T>>(plan.group_chunks() * plan.strip_rows);
  SoftmaxSums<W> total;

  // Of a chunk and a row of a strip.
  const auto sums_of = [&](const Strip<T>& strip, Index c, Index r) -> LineSums<T>& {
    return sums[(c - strip.origin / plan.chunk) * plan.strip_rows + r];
  };
  // f(c) for the chunks of a strip, or of a group.
  const auto for_chunks = [&](const Strip<T>& strip, const auto& f) {
    const Index first = strip.origin / plan.chunk;
    parallel_for((strip.beyond - 1) / plan.chunk - first + 1, work,
                 [&](Index from_first) { f(first + from_first); });
  };
  // S, and its exponentials chunk by chunk.
  const auto take_exponentials = [&](const Strip<T>& strip) {
    for_chunks(strip, [&](Index c) {
      logits.fill(strip, c);
      const Index begin = c * plan.chunk, end = plan.chunk_end(c);
      for (Index r = 0; r < strip.rows; ++r) {
        const Index i = strip.first + r;
        T* s = strip.at(r, begin);
        if (begin <= i && i < end) positives[r] = s[i - begin];
        targets.take_row(plan, i, c, s);
      }
      for (Index r = 0; r < strip.rows; ++r)
        sums_of(strip, c, r) =
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
    const Strip<T> first_group = plan.strip(index, strip_data);
    for (Index r = 0; r < first_group.rows; ++r) row_sums[r] = {};
    for (Index group = 0; group < plan.groups(); ++group) {
      const Strip<T> strip = plan.strip(index, strip_data, group);
      take_exponentials(strip);
      parallel_for(strip.rows, work, [&](Index r) {
        for (Index c = strip.origin / plan.chunk; c * plan.chunk < strip.beyond; ++c)
          row_sums[r].add(sums_of(strip, c, r));
      });
    }

    // Each row's softmax.
    parallel_for(first_group.rows, work, [&](Index r) {
      const Index i = first_group.first + r;
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
    for (Index r = 0; r < first_group.rows; ++r)
      total.diagonal -= targets.weight(first_group.first + r) * rows[r].miss;

    // G, and the two products that carry it back.
    for (Index group = 0; group < plan.groups() && gradient; ++group) {
      const Strip<T> strip = plan.strip(index, strip_data, group);
      if (plan.groups() > 1) take_exponentials(strip);
      for_chunks(strip, [&](Index c) {
        const Index begin = c * plan.chunk, end = plan.chunk_end(c);
        for (Index r = 0; r < strip.rows; ++r) {
          const Index i = strip.first + r;
          const W w = targets.weight(i);
          T* s = strip.at(r, begin);
          targets.differentiate(plan, i, c, s, T(factor(i, r, sums_of(strip, c, r).exponentials)),
                                T(w * rows[r].share));
          if (begin <= i && i < end) s[i - begin] = T(-w * rows[r].miss);
        }
        logits.add_right(strip, c);
      });
      for_row_blocks(strip, work,
                     [&](Index begin, Index end) { logits.set_left(strip, begin, end); });
    }
    if (gradient && !own.empty())
      parallel_for(first_group.rows, work, [&](Index r) { own.backward(first_group.first + r); });
  }

  for (Index i = 0; i < plan.rows; ++i) total.loss += targets.weight(i) * losses[i];
  return total;
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_ROW_RULE_HPP
