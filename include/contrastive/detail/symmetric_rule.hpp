// The rule of CLIP's loss: a softmax over the rows and one over the columns of the same logits.
//
//     L     = 1/2 sum_i w_i (L_i + L̄_i)
//     L_i   = log sum_j e^(s_ij) - s_ii              j over row i's candidates, i among them
//     L̄_j   = log sum_i e^(s_ij) - s_jj              the same down column j
//     G_ij  = 1/2 (w_i A_ij + w_j Ā_ij)              A, Ā: the two softmaxes, j not i
//     G_ii  = -w_i/2 (sum of the other A_ij + sum of the other Ā_ji)
#ifndef CONTRASTIVE_DETAIL_SYMMETRIC_RULE_HPP
#define CONTRASTIVE_DETAIL_SYMMETRIC_RULE_HPP

#include <cstddef>

#include "row_rule.hpp"

namespace contrastive::detail {

/// Row and column softmaxes of square logits. The columns' sums are complete only when every strip
/// has been seen, so there is a sweep that sums and one that differentiates. The logits of the
/// first are kept for the second if they fit the workspace's budget, else computed again: the same
/// bits either way.
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
        work_(plan_.strip_work(logits.depth())),
        keep_(gradient && fits(plan_, scratch.budget())),
        data_(scratch.take<T>(plan_.strip_size() * (keep_ ? plan_.strips() : 1))),
        positives_(scratch.take<T>(plan_.rows)),
        rows_(scratch.take<Line>(plan_.rows)),
        columns_(scratch.take<Line>(plan_.rows)),
        largest_(scratch.take<T>(plan_.chunks() * plan_.strip_rows)),
        sums_(scratch.take<T>(plan_.chunks() * plan_.strip_rows)),
        column_largest_(scratch.take<T>(plan_.chunks() * plan_.chunk)),
        column_factor_(scratch.take<T>(plan_.chunks() * plan_.chunk)) {}

  W loss() {
    for (Index j = 0; j < plan_.rows; ++j) columns_[j].others = {};
    for (Index index = 0; index < plan_.strips(); ++index) {
      const Strip<T> strip = this->strip(index);
      parallel_for(plan_.chunks(), work_, [&](Index c) {
        fill(strip, c);
        sum_rows(strip, c);
        sum_columns(strip, c);
      });
      parallel_for(strip.rows, work_, [&](Index r) {
        ExpSum<W>& others = rows_[strip.first + r].others;
        others = {};
        for (Index c = 0; c < plan_.chunks(); ++c)
          others.add(W(largest_[c * plan_.strip_rows + r]), W(sums_[c * plan_.strip_rows + r]));
      });
    }
    W loss = 0;
    for (Index i = 0; i < plan_.rows; ++i) {
      rows_[i].softmax = row_softmax(W(positives_[i]), rows_[i].others);
      columns_[i].softmax = row_softmax(W(positives_[i]), columns_[i].others);
      loss += weights_[i] * (rows_[i].softmax.loss + columns_[i].softmax.loss) / 2;
    }
    return loss;
  }

  /// Hands G to the logits; after loss().
  void gradient() {
    constexpr Index kRowBlock = 60;
    for (Index j = 0; j < plan_.rows; ++j) {
      column_largest_[j] = reference(columns_[j]);
      column_factor_[j] = T(weights_[j] / 2 * columns_[j].softmax.factor);
    }
    for (Index index = 0; index < plan_.strips(); ++index) {
      const Strip<T> strip = this->strip(index);
      parallel_for(plan_.chunks(), work_, [&](Index c) {
        if (!keep_) fill(strip, c);
        differentiate(strip, c);
        logits_.add_right(strip, c);
      });
      parallel_for((strip.rows + kRowBlock - 1) / kRowBlock, work_, [&](Index block) {
        const Index begin = block * kRowBlock;
        logits_.set_left(strip, begin, (std::min)(begin + kRowBlock, strip.rows));
      });
    }
  }

 private:
  /// One row or column.
  struct Line {
    ExpSum<W> others{};
    RowSoftmax<W> softmax{};
  };

  static bool fits(const StripPlan<T>& plan, std::size_t budget) {
    return double(plan.strips()) * double(plan.strip_size()) * double(sizeof(T)) <= double(budget);
  }

  [[nodiscard]] Strip<T> strip(Index index) const {
    return plan_.strip(index, data_ + (keep_ ? index * plan_.strip_size() : 0));
  }

  /// The logits of a chunk, with what is no negative at -inf; the positives go aside.
  void fill(const Strip<T>& strip, Index c) {
    logits_.fill(strip, c);
    const Index begin = c * plan_.chunk, end = plan_.chunk_end(c);
    for (Index r = 0; r < strip.rows; ++r) {
      const Index i = strip.first + r;
      T* s = strip.at(r, begin);
      if (begin <= i && i < end) positives_[i] = s[i - begin];
      hide_excluded(excluded_, plan_, i, c, s);
    }
  }

  void sum_rows(const Strip<T>& strip, Index c) {
    for (Index r = 0; r < strip.rows; ++r) {
      const ChunkRow<T> row(strip.at(r, c * plan_.chunk));
      const T largest = row.maxCoeff();
      largest_[c * plan_.strip_rows + r] = largest;
      sums_[c * plan_.strip_rows + r] =
          largest == minus_infinity<T> ? T(0) : exp_or_zero(row - largest).sum();
    }
  }

  void sum_columns(const Strip<T>& strip, Index c) {
    using Lanes = Eigen::Array<T, Kernel<T>::chunk, 1>;
    const Index begin = c * plan_.chunk, end = plan_.chunk_end(c);
    Lanes largest = Lanes::Constant(minus_infinity<T>);
    for (Index r = 0; r < strip.rows; ++r) {
      const ChunkRow<T> row(strip.at(r, begin));
      largest = largest.max(row);
    }
    // -inf - 0 where a column has no candidate; -inf - -inf would be nan.
    const Lanes finite = largest.max(std::numeric_limits<T>::lowest());
    Lanes sum = Lanes::Zero();
    for (Index r = 0; r < strip.rows; ++r) {
      const ChunkRow<T> row(strip.at(r, begin));
      sum += exp_or_zero(row - finite);
    }
    for (Index j = begin; j < end; ++j)
      columns_[j].others.add(W(largest[j - begin]), W(sum[j - begin]));
  }

  /// G of a chunk, in place of its logits.
  void differentiate(const Strip<T>& strip, Index c) {
    const Index begin = c * plan_.chunk, end = plan_.chunk_end(c);
    const ChunkRow<T> column_largest(column_largest_ + begin);
    const ChunkRow<T> column_factor(column_factor_ + begin);
    for (Index r = 0; r < strip.rows; ++r) {
      const Index i = strip.first + r;
      T* s = strip.at(r, begin);
      ChunkRow<T> row(s);
      const T factor = T(weights_[i] / 2 * rows_[i].softmax.factor);
      row = factor * exp_or_zero(row - reference(rows_[i]))
            + column_factor * exp_or_zero(row - column_largest);
      if (begin <= i && i < end)
        s[i - begin] = T(-weights_[i] / 2 * (rows_[i].softmax.miss + columns_[i].softmax.miss));
    }
  }

  /// What to take off logits before the exponential: 0 where there is no candidate.
  static T reference(const Line& line) {
    return line.others.sum == 0 ? T(0) : T(line.others.largest);
  }

  Logits& logits_;
  const StripPlan<T>& plan_;
  const Exclusions& excluded_;
  const MeanWeights<W>& weights_;
  double work_;
  bool keep_;
  T* data_;
  T* positives_;
  Line* rows_;
  Line* columns_;
  T* largest_;         // of each chunk and row of a strip
  T* sums_;            // of e^(s - largest), the same
  T* column_largest_;  // of each column
  T* column_factor_;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_SYMMETRIC_RULE_HPP
