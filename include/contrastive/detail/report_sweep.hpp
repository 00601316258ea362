// What a batch looks like beside its loss: one more sweep over the logits.
#ifndef CONTRASTIVE_DETAIL_REPORT_SWEEP_HPP
#define CONTRASTIVE_DETAIL_REPORT_SWEEP_HPP

#include <algorithm>
#include <cmath>
#include <limits>

#include "row_loss.hpp"

namespace contrastive::detail {

/// What the sweep counts.
template <class W>
struct ReportCounts {
  Index first_rows = 0;     ///< positives more similar than all other candidates of their row
  Index first_columns = 0;  ///< and of their column
  Index masked = 0;         ///< candidates left out, by ids or as false negatives
  W mean_positive = 0;
  W mean_negative = 0;  ///< 0 if there is none
  W log_candidates = 0;
};

/// The row loss's value, and the counts.
template <class T>
class ReportSweep : public HardRowLoss<T> {
 public:
  using W = Wide<T>;

  ReportSweep(const char* function, const View<const T>& q, const View<const T>& p,
              const View<const T>& n, const ScaleArgument& scale, const SoftmaxOptions& options,
              Workspace& workspace)
      : HardRowLoss<T>(function, q, p, n, scale, options, false, workspace),
        decoupled_(options.decoupled) {}

  [[nodiscard]] W wide_loss() const { return this->loss_; }

  ReportCounts<W> count() {
    const StripPlan<T>& plan = logits_.plan();
    const Index padded_cols = plan.chunks() * plan.chunk;
    T* strip_data = scratch_.template take<T>(plan.part_size());
    T* positives = scratch_.template take<T>(plan.rows);
    T* best_of_column = scratch_.template take<T>(padded_cols);
    Candidates* parts = scratch_.template take<Candidates>(plan.slots());
    Candidates* rows = scratch_.template take<Candidates>(plan.rows);
    logits_.diagonal(positives);
    std::fill(best_of_column, best_of_column + padded_cols, minus_infinity<T>);

    ReportCounts<W> counts;
    Candidates all;
    std::fill(rows, rows + plan.rows, Candidates{});
    plan.for_parts(strip_data, false, [&](Index /*index*/, const Strip<T>& strip) {
      strip.for_chunks(plan.part_work(logits_.depth()), [&](Index c) {
        logits_.fill(strip, c);
        T* best = best_of_column + c * plan.chunk;
        for (Index r = 0; r < strip.rows; ++r) {
          const Index i = strip.first + r;
          T* s = strip.at(r, c * plan.chunk);
          targets_.hide(plan, i, c, s);
          for (Index l = 0; l < plan.chunk; l += Pack<T>::size)
            larger(Pack<T>::at(best + l), Pack<T>::at(s + l)).store(best + l);
          Candidates part;
          for (Index l = 0; l < plan.chunk; ++l) part.take(W(s[l]), limit(W(positives[i])));
          parts[strip.slot(c, r)] = part;
        }
      });
      for (Index c = strip.first_chunk(); c < strip.end_chunk(); ++c)
        for (Index r = 0; r < strip.rows; ++r) rows[strip.first + r].add(parts[strip.slot(c, r)]);
    });
    for (Index i = 0; i < plan.rows; ++i) {
      Candidates row = rows[i];
      bool first = W(positives[i]) > row.best;
      if (!own_.empty()) {
        Candidates own;
        for (Index m = own_.begin(i); m < own_.end(i); ++m)
          if (!own_.is_excluded(i, m)) own.take(own_.logit(i, m), limit(own_.positive(i)));
        first = first && own_.positive(i) > own.best;
        row.add(own);
        counts.masked += own_.end(i) - own_.begin(i);
      }
      const Index candidates = row.negatives + (decoupled_ ? 0 : 1);
      if (candidates > 0) counts.log_candidates += targets_.weight(i) * std::log(W(candidates));
      if (first) ++counts.first_rows;
      all.add(row);
    }
    counts.masked += plan.rows * (plan.cols - 1) - all.negatives;
    for (Index j = 0; j < plan.rows; ++j) {
      if (positives[j] > best_of_column[j]) ++counts.first_columns;
      counts.mean_positive += W(positives[j]) / W(plan.rows) / logits_.scale();
    }
    if (all.negatives > 0) counts.mean_negative = all.sum / W(all.negatives) / logits_.scale();
    return counts;
  }

 private:
  using HardRowLoss<T>::logits_;
  using HardRowLoss<T>::own_;
  using HardRowLoss<T>::scratch_;
  using HardRowLoss<T>::targets_;

  /// Candidates of rows, their positives apart: the largest logit, and of those that are negatives
  /// sum and number.
  struct Candidates {
    W best = minus_infinity<W>;
    W sum = 0;
    Index negatives = 0;

    /// A false negative's logit is above `limit`.
    void take(W s, W limit) {
      best = (std::max)(best, s);
      if (s == minus_infinity<W> || s > limit) return;
      sum += s;
      ++negatives;
    }
    void add(const Candidates& others) {
      best = (std::max)(best, others.best);
      sum += others.sum;
      negatives += others.negatives;
    }
  };

  [[nodiscard]] W limit(W positive) const {
    return targets_.finds_false_negatives() ? targets_.limit(positive)
                                            : std::numeric_limits<W>::infinity();
  }

  bool decoupled_;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_REPORT_SWEEP_HPP
