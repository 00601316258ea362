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
        plan_(logits.plan()),
        targets_(targets),
        smooth_(targets.smooths()),
        common_reference_(common_reference<T>(logits.bound() + targets.largest_prior())),
        work_(plan_.strip_work(logits.depth())),
        keep_(gradient && plan_.fits(scratch.budget())),
        data_(scratch.take<T>(keep_ ? plan_.size_of_all() : plan_.strip_size())),
        block_references_(scratch.take<T>(plan_.chunks() * (keep_ ? plan_.strips() : 1))),
        positives_(scratch.take<T>(plan_.rows)),
        rows_(scratch, round_up(plan_.strips() * plan_.strip_rows, chunk)),
        columns_(plan_.symmetric ? rows_ : Lines(scratch, plan_.chunks() * chunk)),
        sums_(scratch.take<LineSums<T>>(plan_.chunks() * plan_.strip_rows)) {}

  /// The loss, and in losses[i] the mean of row i's and column i's, unweighted; where S is
  /// symmetric that of row i.
  SoftmaxSums<W> loss(W* losses) {
    for (Index i = 0; i < plan_.rows; ++i) rows_.sums[i] = columns_.sums[i] = {};
    plan_.for_strips(data_, keep_, [&](Index index, const Strip<T>& strip) {
      const Index first = plan_.first_chunk(index), beyond = plan_.first_beyond(index);
      parallel_for(plan_.chunks() - first, work_, [&](Index from_first) {
        const Index c = first + from_first;
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
        for (Index c = first; c < plan_.chunks(); ++c) all.add(sums_[c * plan_.strip_rows + r]);
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
    plan_.for_strips(data_, keep_, [&](Index index, const Strip<T>& strip) {
      const Index first = plan_.first_chunk(index), beyond = plan_.first_beyond(index);
      parallel_for(plan_.chunks() - first, work_, [&](Index from_first) {
        const Index c = first + from_first;
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
  using ConstChunkRow = Eigen::Map<const Lanes<T>, Eigen::AlignedMax>;

  /// The softmaxes of all rows, or of all columns, as lists side by side.
  struct Lines {
    LineSums<W>* sums;
    W* miss;       // w miss, which is a positive's -G; w is half of the pair's in CLIP
    W* factor;     // w factor: G_ij has factor e^(s_ij - reference)
    W* share;      // w share, which is taken off that
    W* reference;  // of the exponentials; beyond any logit where there is no candidate

    /// Padding has factor 0.
    Lines(Scratch& scratch, Index padded_count)
        : sums(scratch.take<LineSums<W>>(padded_count)),
          miss(scratch.take<W>(padded_count)),
          factor(scratch.take<W>(padded_count)),
          share(scratch.take<W>(padded_count)),
          reference(scratch.take<W>(padded_count)) {
      for (Index i = 0; i < padded_count; ++i) factor[i] = share[i] = reference[i] = 0;
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

    /// factor e^(block - reference) of the lines `first` and following: times the block's E it is a
    /// line's part of G. A line with a candidate in the block reaches neither limit, as its part of
    /// G is at most 1 and its largest E not tiny; a line without one has E = 0, and the limits keep
    /// that from being multiplied by infinity.
    template <Index kCount>
    void block_factors(Index first, T block, T* result) const {
      using Wides = Eigen::Array<W, kCount, 1>;
      const Eigen::Map<const Wides> factors(factor + first), references(reference + first);
      const Wides e = ((W(block) - references).min)(W(exponential_range<T>())).exp();
      const Wides product = ((factors * e).min)(W((std::numeric_limits<T>::max)() / 4));
      for (Index l = 0; l < kCount; ++l) result[l] = T(product[l]);
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
    Lanes<T> columns = Lanes<T>::Constant(minus_infinity<T>);
    T lowest = std::numeric_limits<T>::infinity();
    for (Index r = 0; r < strip.rows; ++r) {
      const ChunkRow<T> row(strip.at(r, c * chunk));
      columns = (columns.max)(row);
      const T largest = largest_of<T>(row);
      if (largest != minus_infinity<T>) lowest = (std::min)(lowest, largest);
    }
    const T largest = largest_of<T>(columns);
    for (const T column : columns)
      if (column != minus_infinity<T>) lowest = (std::min)(lowest, column);
    if (largest == minus_infinity<T>) return 0;  // no candidate at all
    return largest - lowest <= exponential_range<T>() ? largest
                                                      : std::numeric_limits<T>::infinity();
  }

  /// E in place of S, and its sums by rows, and with `by_columns` by columns.
  void sum_block(const Strip<T>& strip, Index c, T reference, bool by_columns) {
    LineSums<W>* columns = columns_.sums + c * chunk;
    const Index columns_here = plan_.chunk_end(c) - c * chunk;
    if (smooth_) {
      WideSums<T> totals, counts;
      for (Index r = 0; r < strip.rows; ++r) {
        T* s = strip.at(r, c * chunk);
        const ChunkRow<T> row(s);
        if (plan_.symmetric && by_columns) counts.add(is_candidate(row));
        sums_[c * plan_.strip_rows + r] = targets_.take_totals(plan_, strip.first + r, c, s);
        totals.add(row);
        targets_.hide(plan_, strip.first + r, c, s);
      }
      for (Index l = 0; l < columns_here && by_columns; ++l) {
        columns[l].total += totals[l];
        columns[l].count += counts[l];
      }
    }
    Lanes<T> sum = Lanes<T>::Zero();
    for (Index r = 0; r < strip.rows; ++r) {
      ChunkRow<T> row(strip.at(r, c * chunk));
      row = exp_or_zero(row - reference);
      sum += row;
      sums_[c * plan_.strip_rows + r].exponentials = {reference, sum_of<T>(row)};
    }
    for (Index l = 0; l < columns_here && by_columns; ++l)
      columns[l].exponentials.add(W(reference), W(sum[l]));
  }

  /// A block's logits as its rows and as its columns see them: the same, or with the false
  /// negatives of each.
  template <class F>
  void with_lines(Index c, const F& f) const {
    if (targets_.finds_false_negatives())
      f([&](Index i, const T* s) { return targets_.row_of(i, c, s); },
        [&](const T* s) { return targets_.columns_of(c, s); });
    else
      f([](Index, const T* s) { return ConstChunkRow(s); },
        [](const T* s) { return ConstChunkRow(s); });
  }

  /// The same sums, relative to each line's largest; S stays.
  void sum_rows_and_columns(const Strip<T>& strip, Index c, bool by_columns) {
    with_lines(c, [&](const auto& row_of, const auto& columns_of) {
      Lanes<T> largest = Lanes<T>::Constant(minus_infinity<T>);
      for (Index r = 0; r < strip.rows; ++r)
        largest = (largest.max)(columns_of(strip.at(r, c * chunk)));
      // -inf - lowest is -inf where a column has no candidate; -inf - -inf would be nan.
      const Lanes<T> reference = (largest.max)(std::numeric_limits<T>::lowest());
      Lanes<T> sum = Lanes<T>::Zero();
      WideSums<T> totals, counts;
      for (Index r = 0; r < strip.rows; ++r) {
        const T* s = strip.at(r, c * chunk);
        const auto& column = columns_of(s);
        sum += exp_or_zero(column - reference);
        const auto& row = row_of(strip.first + r, s);
        const T row_largest = (std::max)(largest_of<T>(row), std::numeric_limits<T>::lowest());
        LineSums<T>& sums = sums_[c * plan_.strip_rows + r];
        sums = {{row_largest, sum_of<T>(exp_or_zero(row - row_largest))}};
        if (!smooth_) continue;
        totals.add(candidates_only(column));
        counts.add(is_candidate(column));
        sums.total = sum_of<T>(candidates_only(row));
        sums.count = sum_of<T>(is_candidate(row));
      }
      LineSums<W>* columns = columns_.sums + c * chunk;
      const Index columns_here = plan_.chunk_end(c) - c * chunk;
      for (Index l = 0; l < columns_here && by_columns; ++l) {
        columns[l].exponentials.add(W(reference[l]), W(sum[l]));
        columns[l].total += totals[l];
        columns[l].count += counts[l];
      }
    });
  }

  /// G of a block in place of E, the diagonal apart.
  void differentiate_block(const Strip<T>& strip, Index c, T reference) const {
    alignas(64) T column_factors[std::size_t(chunk)];
    columns_.template block_factors<chunk>(c * chunk, reference, column_factors);
    const ChunkRow<T> columns(column_factors);
    const Lanes<T> column_shares = lanes(columns_.share, c);
    constexpr Index kRows = Kernel<T>::height;
    T row_factors[std::size_t(kRows)];
    for (Index r = 0; r < strip.rows; ++r) {
      if (r % kRows == 0)
        rows_.template block_factors<kRows>(strip.first + r, reference, row_factors);
      ChunkRow<T> row(strip.at(r, c * chunk));
      const T row_factor = row_factors[r % kRows];
      if (!smooth_) {
        row *= columns + row_factor;
        continue;
      }
      const Index i = strip.first + r;
      row = (columns + row_factor) * row - (column_shares + T(rows_.share[i]));
      targets_.clear(plan_, i, c, strip.at(r, c * chunk));
    }
  }

  /// The same from S.
  void differentiate_rows_and_columns(const Strip<T>& strip, Index c) const {
    const Lanes<T> column_reference = lanes(columns_.reference, c);
    const Lanes<T> column_factor = lanes(columns_.factor, c);
    const Lanes<T> column_share = lanes(columns_.share, c);
    with_lines(c, [&](const auto& row_of, const auto& columns_of) {
      for (Index r = 0; r < strip.rows; ++r) {
        const Index i = strip.first + r;
        T* s = strip.at(r, c * chunk);
        const auto& row = row_of(i, s);
        const auto& column = columns_of(s);
        Lanes<T> g = T(rows_.factor[i]) * exp_or_zero(row - T(rows_.reference[i]))
                     + column_factor * exp_or_zero(column - column_reference);
        if (smooth_)
          g -= T(rows_.share[i]) * is_candidate(row) + column_share * is_candidate(column);
        ChunkRow<T> result(s);
        result = g;
      }
    });
  }

  /// A chunk's part of a list.
  static Lanes<T> lanes(const W* list, Index c) {
    return Eigen::Map<const Eigen::Array<W, chunk, 1>>(list + c * chunk).template cast<T>();
  }

  void set_positives(const Strip<T>& strip, Index c) const {
    for (Index r = 0; r < strip.rows; ++r) {
      const Index i = strip.first + r, partner = targets_.partner(i);
      if (c * chunk <= partner && partner < plan_.chunk_end(c))
        *strip.at(r, partner) = T(-(rows_.miss[i] + columns_.miss[partner]));
    }
  }

  Logits& logits_;
  const StripPlan<T>& plan_;
  const Targets<T>& targets_;
  bool smooth_;
  T common_reference_;
  double work_;
  bool keep_;
  T* data_;
  T* block_references_;
  T* positives_;
  Lines rows_;
  Lines columns_;
  LineSums<T>* sums_;  // of each chunk and row of a strip
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_SYMMETRIC_RULE_HPP
