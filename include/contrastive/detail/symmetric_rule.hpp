// The rule of the losses that are a softmax over the rows and one over the columns of the same
// logits: CLIP's, and NT-Xent's, whose S is symmetric.
//
//     L      = 1/2 sum_i w_i (L_i + Lbar_i)         of row i and of column i: see targets.hpp
//     G_ij   = 1/2 w_i (A_ij - share_i) + 1/2 w_j (Abar_ij - sharebar_j)          j not i
//     G_ii   = -1/2 w_i (miss_i + missbar_i)
//
// Plainly L_i = log sum_j e^(s_ij) - s_ii, the shares are 0, and miss_i is the sum of the other
// A_ij.
//
// NT-Xent has S = scale Zn Zn^T, row i's positive in column p(i), and
//
//     L         = sum_i w_i L_i
//     H         = G + G^T                 dZn = scale H Zn
//     H_ij      = w_i (A_ij - share_i) + w_j (A_ji - share_j)          j not p(i)
//     H_i,p(i)  = -w_i miss_i - w_p(i) miss_p(i)
#ifndef CONTRASTIVE_DETAIL_SYMMETRIC_RULE_HPP
#define CONTRASTIVE_DETAIL_SYMMETRIC_RULE_HPP

#include <cstddef>

#include "logits.hpp"
#include "softmax.hpp"
#include "targets.hpp"
#include "threads.hpp"

namespace contrastive::detail {

/// Row and column softmaxes of square logits. Where S is symmetric they are the same lines, of
/// which a block beyond the diagonal is part as rows and, as its own mirror, as columns. The
/// columns' sums are complete only when every strip has been seen, so there is a sweep that sums
/// and one that differentiates. What the first sweep computed is kept for the second if it fits the
/// workspace's budget, else computed again: the same bits either way.
///
/// One exponential serves row and column: E = e^(s - reference) with one reference for a block,
/// that is the rows of a strip by the columns of a chunk. That is exact enough where no row and no
/// column of the block lies so far below the reference that its exponentials underflow. Where one
/// does, the block takes two exponentials, relative to each row's and each column's own largest
/// logit. So do all blocks where false negatives are looked for, as then a row and a column may
/// differ about who is a candidate.
template <class T, class Logits>
class SymmetricRule {
 public:
  using W = Wide<T>;

  SymmetricRule(Logits& logits, const Targets<T>& targets, bool gradient, Scratch& scratch)
      : logits_(logits),
        targets_(targets),
        smooth_(targets.smooths()),
        common_reference_(common_reference<T>(logits.bound() + targets.largest_prior())),
        keep_(gradient && logits.plan().fits(scratch.budget())),
        plan_(keep_ ? logits.plan().whole() : logits.plan()),
        work_(plan_.part_work(logits.depth())),
        data_(scratch.take<T>(keep_ ? plan_.size_of_all() : plan_.part_size())),
        block_references_(scratch.take<T>(plan_.chunks() * (keep_ ? plan_.strips() : 1))),
        positives_(scratch.take<T>(plan_.rows)),
        rows_(scratch, plan_.strips() * plan_.strip_rows),
        columns_(plan_.symmetric ? rows_ : Lines(scratch, plan_.cols)),
        sums_(scratch.take<LineSums<T>>(plan_.slots())) {}

  /// The loss, and in losses[i] the mean of row i's and column i's, unweighted; where S is
  /// symmetric that of row i.
  SoftmaxSums<W> loss(W* losses) {
    for (Index i = 0; i < plan_.rows; ++i) rows_.sums[i] = columns_.sums[i] = {};
    plan_.for_parts(data_, keep_, [&](Index index, const Strip<T>& strip) {
      const Index beyond = plan_.first_beyond(index);
      strip.for_chunks(work_, [&](Index c) {
        fill(strip, c);
        T& reference = block_reference(index, c);
        reference = find_reference(strip, c);
        if (has_reference(reference))
          sum_block(strip, c, reference, c >= beyond);
        else
          sum_rows_and_columns(strip, c, c >= beyond);
      });
      parallel_for(strip.rows, work_, [&](Index r) {
        LineSums<W>& all = rows_.sums[strip.first + r];
        for (Index c = strip.first_chunk(); c < strip.end_chunk(); ++c)
          all.add(sums_[strip.slot(c, r)]);
      });
    });
    SoftmaxSums<W> total;
    // A column has as many candidates as its row, as ids rule out both of a pair and its mirror.
    if (smooth_ && !targets_.finds_false_negatives())
      for (Index i = 0; i < plan_.rows; ++i) columns_.sums[i].count = rows_.sums[i].count;
    for (Index i = 0; i < plan_.rows; ++i) {
      const W weight = targets_.weight(i);
      if (plan_.symmetric) {
        losses[i] = rows_.finish(targets_, i, positives_[i], weight);
        total.diagonal -= rows_.miss[i];
      } else {
        losses[i] = (rows_.finish(targets_, i, positives_[i], weight / 2)
                     + columns_.finish(targets_, i, positives_[i], weight / 2))
                    / 2;
        total.diagonal -= rows_.miss[i] + columns_.miss[i];
      }
      total.loss += weight * losses[i];
    }
    return total;
  }

  /// Hands G, where S is symmetric H, to the logits; after loss().
  void gradient() {
    plan_.for_parts(data_, keep_, [&](Index index, const Strip<T>& strip) {
      const Index beyond = plan_.first_beyond(index);
      strip.for_chunks(work_, [&](Index c) {
        T& reference = block_reference(index, c);
        if (!keep_) {
          fill(strip, c);
          reference = find_reference(strip, c);
          if (has_reference(reference))
            for (Index r = 0; r < strip.rows; ++r)
              chunk_exponentials(strip.at(r, c * chunk), reference);
        }
        if (has_reference(reference))
          differentiate_block(strip, c, reference);
        else
          differentiate_rows_and_columns(strip, c);
        set_positives(strip, c);
        if (c >= beyond) logits_.add_right(strip, c);
      });
      for_row_blocks(strip, work_,
                     [&](Index begin, Index end) { logits_.set_left(strip, begin, end); });
    });
  }

 private:
  static constexpr Index chunk = Kernel<T>::chunk;

  /// The softmaxes of all rows, or of all columns, as lists side by side.
  struct Lines {
    LineSums<W>* sums;
    W* miss;       // w miss, which is a positive's -G; w is half of the pair's in CLIP
    W* factor;     // w factor: G_ij has factor e^(s_ij - reference)
    W* share;      // w share, which is taken off that
    W* reference;  // of the exponentials; beyond any logit where there is no candidate

    /// Padding, a chunk from the last line on, has factor 0.
    Lines(Scratch& scratch, Index count)
        : sums(scratch.take<LineSums<W>>(count)),
          miss(scratch.take<W>(count)),
          factor(scratch.take<W>(count + chunk)),
          share(scratch.take<W>(count + chunk)),
          reference(scratch.take<W>(count + chunk)) {
      for (Index i = 0; i < count + chunk; ++i) factor[i] = share[i] = reference[i] = 0;
    }

    /// Line i's loss, when its sums are complete.
    W finish(const Targets<T>& targets, Index i, T positive, W weight) {
      const ExpSum<W>& others = sums[i].exponentials;
      const LineSoftmax<W> line = targets.softmax(targets.positive(i, positive), sums[i]);
      miss[i] = weight * line.miss;
      factor[i] = weight * line.factor;
      share[i] = weight * line.share;
      reference[i] = others.sum == 0 ? (std::numeric_limits<T>::max)() : others.reference;
      return line.loss;
    }

    /// factor e^(block - reference) of the chunk of lines from `first` on: times the block's E it
    /// is a line's part of G. A line with a candidate in the block reaches neither limit, as its
    /// part of G is at most 1 and its largest E not tiny; a line without one has E = 0, and the
    /// limits keep that from being multiplied by infinity.
    void block_factors(Index first, T block, T* result) const {
      alignas(64) W products[std::size_t(chunk)];
      for (Index l = 0; l < chunk; l += Pack<W>::size) {
        const Pack<W> gap = W(block) - Pack<W>::unaligned(reference + first + l);
        const Pack<W> e = exp_or_zero(smaller(gap, W(exponential_range<T>())));
        const Pack<W> product = Pack<W>::unaligned(factor + first + l) * e;
        smaller(product, W((std::numeric_limits<T>::max)() / 4)).store(products + l);
      }
      for (Index l = 0; l < chunk; ++l) result[l] = T(products[l]);
    }
  };

  T& block_reference(Index index, Index c) const {
    return block_references_[(keep_ ? index * plan_.chunks() : 0) + c];
  }
  static bool has_reference(T reference) { return reference != std::numeric_limits<T>::infinity(); }

  /// The logits of a block, with what is no negative at -inf; the positives go aside.
  void fill(const Strip<T>& strip, Index c) {
    logits_.fill(strip, c);
    const Index begin = c * chunk, end = plan_.chunk_end(c);
    for (Index r = 0; r < strip.rows; ++r) {
      const Index i = strip.first + r, partner = targets_.partner(i);
      T* s = strip.at(r, begin);
      if (i <= partner && begin <= partner && partner < end)
        positives_[i] = positives_[partner] = s[partner - begin];
      targets_.take_row_and_column(plan_, i, c, s);
    }
  }

  /// The reference of a block, or infinity where one does not do.
  [[nodiscard]] T find_reference(const Strip<T>& strip, Index c) const {
    if (targets_.finds_false_negatives()) return std::numeric_limits<T>::infinity();
    if (has_reference(common_reference_)) return common_reference_;
    alignas(64) T columns[std::size_t(chunk)];
    std::fill_n(columns, chunk, minus_infinity<T>);
    T lowest = std::numeric_limits<T>::infinity();
    for (Index r = 0; r < strip.rows; ++r) {
      const T* s = strip.at(r, c * chunk);
      Pack<T> row(minus_infinity<T>);
      for (Index l = 0; l < chunk; l += Pack<T>::size) {
        const Pack<T> here = Pack<T>::at(s + l);
        row = larger(row, here);
        larger(Pack<T>::at(columns + l), here).store(columns + l);
      }
      const T largest = row.largest();
      if (largest != minus_infinity<T>) lowest = (std::min)(lowest, largest);
    }
    const T largest = largest_of_chunk(columns);
    for (const T column : columns)
      if (column != minus_infinity<T>) lowest = (std::min)(lowest, column);
    if (largest == minus_infinity<T>) return 0;  // no candidate at all
    return largest - lowest <= exponential_range<T>() ? largest
                                                      : std::numeric_limits<T>::infinity();
  }

  /// E in place of S, and its sums by rows, and with `by_columns` by columns.
  void sum_block(const Strip<T>& strip, Index c, T reference, bool by_columns) {
    LineSums<W>* columns = columns_.sums + c * chunk;
    const Index columns_here = by_columns ? plan_.chunk_end(c) - c * chunk : 0;
    if (smooth_) {
      WideSums<T> totals, counts;
      for (Index r = 0; r < strip.rows; ++r) {
        T* s = strip.at(r, c * chunk);
        for (Index l = 0; l < chunk && plan_.symmetric; l += Pack<T>::size)
          counts.add(l, is_candidate(Pack<T>::at(s + l)));
        sums_[strip.slot(c, r)] = targets_.take_totals(plan_, strip.first + r, c, s);
        for (Index l = 0; l < chunk; l += Pack<T>::size) totals.add(l, Pack<T>::at(s + l));
        targets_.hide(plan_, strip.first + r, c, s);
        totals.end_row();
        counts.end_row();
      }
      for (Index l = 0; l < columns_here; ++l) {
        columns[l].total += totals[l];
        columns[l].count += counts[l];
      }
    }
    alignas(64) T sums[std::size_t(chunk)] = {};
    for (Index r = 0; r < strip.rows; ++r) {
      T* s = strip.at(r, c * chunk);
      Pack<T> sum(0);
      for (Index l = 0; l < chunk; l += Pack<T>::size) {
        const Pack<T> e = exp_or_zero(Pack<T>::at(s + l) - reference);
        e.store(s + l);
        e.add_to(sums + l);
        sum += e;
      }
      sums_[strip.slot(c, r)].exponentials = {reference, sum.sum()};
    }
    for (Index l = 0; l < columns_here; ++l) columns[l].exponentials.add(W(reference), W(sums[l]));
  }

  /// A block's logits as its rows and as its columns see them, those at s[l] and following: the
  /// same, or without the false negatives of each.
  template <class F>
  void with_lines(Index c, const F& f) const {
    if (targets_.finds_false_negatives())
      f([&](Index i, const T* s, Index l) { return targets_.row_of(i, c, s, l); },
        [&](const T* s, Index l) { return targets_.columns_of(c, s, l); });
    else
      f([](Index, const T* s, Index l) { return Pack<T>::at(s + l); },
        [](const T* s, Index l) { return Pack<T>::at(s + l); });
  }

  /// The same sums, relative to each line's largest; S stays.
  void sum_rows_and_columns(const Strip<T>& strip, Index c, bool by_columns) {
    with_lines(c, [&](const auto& row_of, const auto& columns_of) {
      // The lowest number where there is no candidate: -inf less that is -inf, less -inf it is nan.
      constexpr T kLowest = std::numeric_limits<T>::lowest();
      alignas(64) T references[std::size_t(chunk)], column_sums[std::size_t(chunk)] = {};
      std::fill_n(references, chunk, kLowest);
      for (Index r = 0; r < strip.rows; ++r) {
        const T* s = strip.at(r, c * chunk);
        for (Index l = 0; l < chunk; l += Pack<T>::size)
          larger(Pack<T>::at(references + l), columns_of(s, l)).store(references + l);
      }
      WideSums<T> totals, counts;
      for (Index r = 0; r < strip.rows; ++r) {
        const Index i = strip.first + r;
        const T* s = strip.at(r, c * chunk);
        Pack<T> largest(kLowest), sum(0), total(0), count(0);
        for (Index l = 0; l < chunk; l += Pack<T>::size) largest = larger(largest, row_of(i, s, l));
        const T reference = largest.largest();
        for (Index l = 0; l < chunk; l += Pack<T>::size) {
          const Pack<T> row = row_of(i, s, l), column = columns_of(s, l);
          sum += exp_or_zero(row - reference);
          exp_or_zero(column - Pack<T>::at(references + l)).add_to(column_sums + l);
          if (!smooth_) continue;
          total += candidates_only(row);
          count += is_candidate(row);
          totals.add(l, candidates_only(column));
          counts.add(l, is_candidate(column));
        }
        totals.end_row();
        counts.end_row();
        sums_[strip.slot(c, r)] = {{reference, sum.sum()}, total.sum(), count.sum()};
      }
      LineSums<W>* columns = columns_.sums + c * chunk;
      const Index columns_here = by_columns ? plan_.chunk_end(c) - c * chunk : 0;
      for (Index l = 0; l < columns_here; ++l) {
        columns[l].exponentials.add(W(references[l]), W(column_sums[l]));
        columns[l].total += totals[l];
        columns[l].count += counts[l];
      }
    });
  }

  /// G of a block in place of E, the diagonal apart.
  void differentiate_block(const Strip<T>& strip, Index c, T reference) const {
    alignas(64) T columns[std::size_t(chunk)], rows[std::size_t(chunk)];
    columns_.block_factors(c * chunk, reference, columns);
    const Part shares(columns_.share, c);
    for (Index r = 0; r < strip.rows; ++r) {
      if (r % chunk == 0) rows_.block_factors(strip.first + r, reference, rows);
      const Index i = strip.first + r;
      const T row = rows[r % chunk], share = T(rows_.share[i]);
      T* s = strip.at(r, c * chunk);
      for (Index l = 0; l < chunk; l += Pack<T>::size) {
        Pack<T> g = Pack<T>::at(s + l) * (Pack<T>::at(columns + l) + row);
        if (smooth_) g = g - (shares.at(l) + share);
        g.store(s + l);
      }
      if (smooth_) targets_.clear(plan_, i, c, s);
    }
  }

  /// The same from S.
  void differentiate_rows_and_columns(const Strip<T>& strip, Index c) const {
    const Part references(columns_.reference, c), factors(columns_.factor, c),
        shares(columns_.share, c);
    with_lines(c, [&](const auto& row_of, const auto& columns_of) {
      for (Index r = 0; r < strip.rows; ++r) {
        const Index i = strip.first + r;
        const T reference = T(rows_.reference[i]), factor = T(rows_.factor[i]),
                share = T(rows_.share[i]);
        T* s = strip.at(r, c * chunk);
        for (Index l = 0; l < chunk; l += Pack<T>::size) {
          const Pack<T> row = row_of(i, s, l), column = columns_of(s, l);
          Pack<T> g = factor * exp_or_zero(row - reference)
                      + factors.at(l) * exp_or_zero(column - references.at(l));
          if (smooth_) g = g - (share * is_candidate(row) + shares.at(l) * is_candidate(column));
          g.store(s + l);
        }
      }
    });
  }

  /// A chunk's part of a list.
  struct Part {
    alignas(64) T values[std::size_t(chunk)];

    Part(const W* list, Index c) {
      for (Index l = 0; l < chunk; ++l) values[l] = T(list[c * chunk + l]);
    }
    [[nodiscard]] CONTRASTIVE_INLINE Pack<T> at(Index l) const { return Pack<T>::at(values + l); }
  };

  void set_positives(const Strip<T>& strip, Index c) const {
    for (Index r = 0; r < strip.rows; ++r) {
      const Index i = strip.first + r, partner = targets_.partner(i);
      if (c * chunk <= partner && partner < plan_.chunk_end(c))
        *strip.at(r, partner) = T(-(rows_.miss[i] + columns_.miss[partner]));
    }
  }

  Logits& logits_;
  const Targets<T>& targets_;
  bool smooth_;
  T common_reference_;
  bool keep_;
  StripPlan<T> plan_;
  double work_;
  T* data_;
  T* block_references_;
  T* positives_;
  Lines rows_;
  Lines columns_;
  LineSums<T>* sums_;  // of each chunk and row of a part
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_SYMMETRIC_RULE_HPP
