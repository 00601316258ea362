// The rule of CLIP's loss: a softmax over the rows and one over the columns of the same logits.
//
//     L     = 1/2 sum_i w_i (L_i + Lbar_i)
//     L_i   = log sum_j e^(s_ij) - s_ii              j over row i's candidates, i among them
//     Lbar_j   = log sum_i e^(s_ij) - s_jj              the same down column j
//     G_ij  = 1/2 (w_i A_ij + w_j Abar_ij)              A, Abar: the two softmaxes, j not i
//     G_ii  = -w_i/2 (sum of the other A_ij + sum of the other Abar_ji)
#ifndef CONTRASTIVE_DETAIL_SYMMETRIC_RULE_HPP
#define CONTRASTIVE_DETAIL_SYMMETRIC_RULE_HPP

#include <cstddef>

#include "row_rule.hpp"

namespace contrastive::detail {

/// Row and column softmaxes of square logits. The columns' sums are complete only when every strip
/// has been seen, so there is a sweep that sums and one that differentiates. What the first sweep
/// computed is kept for the second if it fits the workspace's budget, else computed again: the same
/// bits either way.
///
/// One exponential serves row and column: E = e^(s - reference) with one reference for a block,
/// that is the rows of a strip by the columns of a chunk. That is exact enough where no row and no
/// column of the block lies so far below the reference that its exponentials underflow. Where one
/// does, the block takes two exponentials, relative to each row's and each column's own largest
/// logit.
template <class T, class Logits>
class SymmetricRule {
 public:
  using W = Wide<T>;

  SymmetricRule(Logits& logits, const Exclusions& excluded, const MeanWeights<W>& weights,
                bool gradient, Scratch& scratch)
      : logits_(logits),
        plan_(logits.plan()),
        excluded_(excluded),
        weights_(weights),
        common_reference_(common_reference<T>(logits.bound())),
        work_(plan_.strip_work(logits.depth())),
        keep_(gradient && fits(plan_, scratch.budget())),
        data_(scratch.take<T>(plan_.strip_size() * (keep_ ? plan_.strips() : 1))),
        block_references_(scratch.take<T>(plan_.chunks() * (keep_ ? plan_.strips() : 1))),
        positives_(scratch.take<T>(plan_.rows)),
        rows_(scratch, plan_.strips() * plan_.strip_rows),
        columns_(scratch, plan_.chunks() * plan_.chunk),
        sums_(scratch.take<ExpSum<T>>(plan_.chunks() * plan_.strip_rows)) {}

  W loss() {
    for (Index j = 0; j < plan_.rows; ++j) columns_.others[j] = {};
    for (Index index = 0; index < plan_.strips(); ++index) {
      const Strip<T> strip = this->strip(index);
      parallel_for(plan_.chunks(), work_, [&](Index c) {
        fill(strip, c);
        T& reference = block_reference(index, c);
        reference = find_reference(strip, c);
        if (has_reference(reference))
          sum_block(strip, c, reference);
        else
          sum_rows_and_columns(strip, c);
      });
      parallel_for(strip.rows, work_, [&](Index r) {
        ExpSum<W>& others = rows_.others[strip.first + r];
        others = {};
        for (Index c = 0; c < plan_.chunks(); ++c) {
          const ExpSum<T>& part = sums_[c * plan_.strip_rows + r];
          others.add(W(part.reference), W(part.sum));
        }
      });
    }
    W loss = 0;
    for (Index i = 0; i < plan_.rows; ++i)
      loss += weights_[i] / 2
              * (rows_.finish(i, W(positives_[i]), weights_[i] / 2)
                 + columns_.finish(i, W(positives_[i]), weights_[i] / 2));
    return loss;
  }

  /// Hands G to the logits; after loss().
  void gradient() {
    for (Index index = 0; index < plan_.strips(); ++index) {
      const Strip<T> strip = this->strip(index);
      parallel_for(plan_.chunks(), work_, [&](Index c) {
        T& reference = block_reference(index, c);
        if (!keep_) {
          fill(strip, c);
          reference = find_reference(strip, c);
          if (has_reference(reference)) take_exponentials(strip, c, reference);
        }
        if (has_reference(reference))
          differentiate_block(strip, c, reference);
        else
          differentiate_rows_and_columns(strip, c);
        set_diagonal(strip, c);
        logits_.add_right(strip, c);
      });
      for_row_blocks(strip, work_,
                     [&](Index begin, Index end) { logits_.set_left(strip, begin, end); });
    }
  }

 private:
  static constexpr Index chunk = Kernel<T>::chunk;
  using Lanes = Eigen::Array<T, chunk, 1>;

  /// The softmaxes of all rows, or of all columns, as lists side by side.
  struct Lines {
    ExpSum<W>* others;
    W* miss;       // w / 2 (1 - A_ii)
    W* factor;     // w / 2 factor: G_ij has factor e^(s_ij - reference)
    W* reference;  // of the exponentials; beyond any logit where there is no candidate

    /// Padding has factor 0.
    Lines(Scratch& scratch, Index padded_count)
        : others(scratch.take<ExpSum<W>>(padded_count)),
          miss(scratch.take<W>(padded_count)),
          factor(scratch.take<W>(padded_count)),
          reference(scratch.take<W>(padded_count)) {
      for (Index i = 0; i < padded_count; ++i) factor[i] = reference[i] = 0;
    }

    /// Line i's loss, when its sum is complete.
    W finish(Index i, W positive, W share) {
      const RowSoftmax<W> softmax = row_softmax(positive, others[i]);
      miss[i] = share * softmax.miss;
      factor[i] = share * softmax.factor;
      reference[i] = others[i].sum == 0 ? (std::numeric_limits<T>::max)() : others[i].reference;
      return softmax.loss;
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

  static bool fits(const StripPlan<T>& plan, std::size_t budget) {
    return double(plan.strips()) * double(plan.strip_size()) * double(sizeof(T)) <= double(budget);
  }

  [[nodiscard]] Strip<T> strip(Index index) const {
    return plan_.strip(index, data_ + (keep_ ? index * plan_.strip_size() : 0));
  }

  T& block_reference(Index index, Index c) const {
    return block_references_[(keep_ ? index * plan_.chunks() : 0) + c];
  }
  static bool has_reference(T reference) { return reference != std::numeric_limits<T>::infinity(); }

  /// The logits of a block, with what is no negative at -inf; the positives go aside.
  void fill(const Strip<T>& strip, Index c) {
    logits_.fill(strip, c);
    const Index begin = c * chunk, end = plan_.chunk_end(c);
    for (Index r = 0; r < strip.rows; ++r) {
      const Index i = strip.first + r;
      T* s = strip.at(r, begin);
      if (begin <= i && i < end) positives_[i] = s[i - begin];
      hide_excluded(excluded_, plan_, i, c, s);
    }
  }

  /// The reference of a block, or infinity where one does not do.
  [[nodiscard]] T find_reference(const Strip<T>& strip, Index c) const {
    if (has_reference(common_reference_)) return common_reference_;
    Lanes columns = Lanes::Constant(minus_infinity<T>);
    T lowest = std::numeric_limits<T>::infinity();
    for (Index r = 0; r < strip.rows; ++r) {
      const ChunkRow<T> row(strip.at(r, c * chunk));
      columns = (columns.max)(row);
      const T largest = row.maxCoeff();
      if (largest != minus_infinity<T>) lowest = (std::min)(lowest, largest);
    }
    const T largest = columns.maxCoeff();
    for (const T column : columns)
      if (column != minus_infinity<T>) lowest = (std::min)(lowest, column);
    if (largest == minus_infinity<T>) return 0;  // no candidate at all
    return largest - lowest <= exponential_range<T>() ? largest
                                                      : std::numeric_limits<T>::infinity();
  }

  /// E in place of S.
  void take_exponentials(const Strip<T>& strip, Index c, T reference) const {
    for (Index r = 0; r < strip.rows; ++r) {
      ChunkRow<T> row(strip.at(r, c * chunk));
      row = exp_or_zero(row - reference);
    }
  }

  /// E in place of S, and its sums by rows and columns.
  void sum_block(const Strip<T>& strip, Index c, T reference) {
    Lanes columns = Lanes::Zero();
    for (Index r = 0; r < strip.rows; ++r) {
      ChunkRow<T> row(strip.at(r, c * chunk));
      row = exp_or_zero(row - reference);
      columns += row;
      sums_[c * plan_.strip_rows + r] = {reference, row.sum()};
    }
    for (Index j = c * chunk; j < plan_.chunk_end(c); ++j)
      columns_.others[j].add(W(reference), W(columns[j - c * chunk]));
  }

  /// The same sums, relative to each line's largest; S stays.
  void sum_rows_and_columns(const Strip<T>& strip, Index c) {
    Lanes largest = Lanes::Constant(minus_infinity<T>);
    for (Index r = 0; r < strip.rows; ++r) {
      const ChunkRow<T> row(strip.at(r, c * chunk));
      largest = (largest.max)(row);
    }
    // -inf - lowest is -inf where a column has no candidate; -inf - -inf would be nan.
    const Lanes reference = (largest.max)(std::numeric_limits<T>::lowest());
    Lanes sum = Lanes::Zero();
    for (Index r = 0; r < strip.rows; ++r) {
      const ChunkRow<T> row(strip.at(r, c * chunk));
      sum += exp_or_zero(row - reference);
      const T row_largest = (std::max)(row.maxCoeff(), std::numeric_limits<T>::lowest());
      sums_[c * plan_.strip_rows + r] = {row_largest, exp_or_zero(row - row_largest).sum()};
    }
    for (Index j = c * chunk; j < plan_.chunk_end(c); ++j)
      columns_.others[j].add(W(reference[j - c * chunk]), W(sum[j - c * chunk]));
  }

  /// G of a block in place of E, the diagonal apart.
  void differentiate_block(const Strip<T>& strip, Index c, T reference) const {
    alignas(64) T column_factors[std::size_t(chunk)];
    columns_.template block_factors<chunk>(c * chunk, reference, column_factors);
    const ChunkRow<T> columns(column_factors);
    constexpr Index kRows = Kernel<T>::height;
    T row_factors[std::size_t(kRows)];
    for (Index r = 0; r < strip.rows; ++r) {
      if (r % kRows == 0)
        rows_.template block_factors<kRows>(strip.first + r, reference, row_factors);
      ChunkRow<T> row(strip.at(r, c * chunk));
      row *= columns + row_factors[r % kRows];
    }
  }

  /// The same from S.
  void differentiate_rows_and_columns(const Strip<T>& strip, Index c) const {
    Lanes column_reference, column_factor;
    for (Index l = 0; l < chunk; ++l) {
      column_reference[l] = T(columns_.reference[c * chunk + l]);
      column_factor[l] = T(columns_.factor[c * chunk + l]);
    }
    for (Index r = 0; r < strip.rows; ++r) {
      const Index i = strip.first + r;
      ChunkRow<T> row(strip.at(r, c * chunk));
      row = T(rows_.factor[i]) * exp_or_zero(row - T(rows_.reference[i]))
            + column_factor * exp_or_zero(row - column_reference);
    }
  }

  void set_diagonal(const Strip<T>& strip, Index c) const {
    const Index begin = (std::max)(c * chunk, strip.first);
    const Index end = (std::min)(plan_.chunk_end(c), strip.first + strip.rows);
    for (Index i = begin; i < end; ++i)
      *strip.at(i - strip.first, i) = T(-(rows_.miss[i] + columns_.miss[i]));
  }

  Logits& logits_;
  const StripPlan<T>& plan_;
  const Exclusions& excluded_;
  const MeanWeights<W>& weights_;
  T common_reference_;
  double work_;
  bool keep_;
  T* data_;
  T* block_references_;
  T* positives_;
  Lines rows_;
  Lines columns_;
  ExpSum<T>* sums_;  // of each chunk and row of a strip
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_SYMMETRIC_RULE_HPP
