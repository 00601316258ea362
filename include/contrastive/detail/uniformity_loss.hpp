// The core of uniformity: one softmax-like normaliser over all pairs of a batch.
#ifndef CONTRASTIVE_DETAIL_UNIFORMITY_LOSS_HPP
#define CONTRASTIVE_DETAIL_UNIFORMITY_LOSS_HPP

#include <cmath>

#include "checks.hpp"
#include "option_checks.hpp"
#include "row_rule.hpp"
#include "rows.hpp"

namespace contrastive::detail {

/// With delta_i = zn_i - mean(zn), which has the same differences and keeps their digits:
///
///     e_ij  = -t |zn_i - zn_j|^2 = 2t delta_i . delta_j - t |delta_i|^2 - t |delta_j|^2
///     L     = log(Z / (n (n - 1)))             Z = sum over i, j not i of exp(e_ij)
///     G_ij  = 2 exp(e_ij) / Z,  G_ii = -sum of the other G_ij
///     dzn_i  = 2t sum_j G_ij delta_j = -2t sum_j G_ij (zn_i - zn_j)
///
/// Made, it has checked its arguments and computed the loss.
template <class T>
class UniformityLoss {
 public:
  using W = Wide<T>;

  UniformityLoss(const char* function, const char* argument, const View<const T>& z, double t,
                 Similarity similarity, bool gradient, Workspace& workspace)
      : scratch_(workspace), rows_(z, similarity) {
    check_not_empty(function, argument, z);
    if (z.rows < 2)
      refuse(function, std::string(argument) + " has 1 row, uniformity needs at least 2");
    check_positive(function, "t", t);
    if (!(t <= static_cast<double>((std::numeric_limits<T>::max)() / 2)))
      refuse(function, "t is " + number(t) + ", 2t overflows the scalar type");
    check_embeddings(function, argument, z, similarity);

    rows_.measure(scratch_);
    centred_ = scratch_.template take<T>(z.rows * z.cols);
    centre();
    const View<const T> centred{centred_, z.rows, z.cols, z.cols, 1};
    logits_ =
        EmbeddingLogits<T>(centred, centred, {}, Similarity::dot, 2 * static_cast<long double>(t));
    logits_.pack(gradient, scratch_);
    strip_ = scratch_.template take<T>(logits_.plan().strip_size());
    check_logits(function, logits_, largest_logit<T>(1), strip_);
    offsets_ = scratch_.template take<T>(round_up(z.rows, Kernel<T>::chunk));
    for (Index i = 0; i < z.rows; ++i) {
      W square = 0;
      for (Index k = 0; k < z.cols; ++k) square += W(centred(i, k)) * W(centred(i, k));
      offsets_[i] = T(W(t) * square);
    }
    for (Index i = z.rows; i < round_up(z.rows, Kernel<T>::chunk); ++i) offsets_[i] = 0;
    sum();
    if (gradient) differentiate();
  }

  UniformityLoss(const UniformityLoss&) = delete;
  UniformityLoss& operator=(const UniformityLoss&) = delete;

  [[nodiscard]] T loss() const {
    const W n = W(rows_.count());
    return T(all_.reference + std::log(all_.sum / (n * (n - 1))));
  }

  /// Once: it reuses the memory of the centred rows.
  void write(const View<T>& dz) {
    const View<T> dunit{centred_, rows_.count(), rows_.dim(), rows_.dim(), 1};
    logits_.x().unpack(logits_.scale(), dunit, {});
    for (Index i = 0; i < rows_.count(); ++i)
      rows_.backward(
          i, [&](Index k) { return W(dunit(i, k)); },
          [&](Index k, W value) { dz(i, k) = T(value); });
  }

 private:
  void centre() {
    W* mean = scratch_.template take<W>(rows_.dim());
    for (Index k = 0; k < rows_.dim(); ++k) mean[k] = 0;
    for (Index i = 0; i < rows_.count(); ++i)
      for (Index k = 0; k < rows_.dim(); ++k) mean[k] += rows_.unit(i, k) / W(rows_.count());
    for (Index i = 0; i < rows_.count(); ++i)
      for (Index k = 0; k < rows_.dim(); ++k)
        centred_[i * rows_.dim() + k] = T(rows_.unit(i, k) - mean[k]);
  }

  /// Turns 2t delta_i . delta_j into e_ij, -inf for i = j and the padding.
  void fill(const Strip<T>& strip, Index c) const {
    const StripPlan<T>& plan = logits_.plan();
    logits_.fill(strip, c);
    const ChunkRow<T> column_offsets(offsets_ + c * plan.chunk);
    for (Index r = 0; r < strip.rows; ++r) {
      T* s = strip.at(r, c * plan.chunk);
      ChunkRow<T> row(s);
      row -= column_offsets + offsets_[strip.first + r];
      hide_excluded(Exclusions(), plan, strip.first + r, c, s);
    }
  }

  void sum() {
    const StripPlan<T>& plan = logits_.plan();
    row_sums_ = scratch_.template take<ExpSum<W>>(plan.rows);
    ExpSum<T>* sums = scratch_.template take<ExpSum<T>>(plan.chunks() * plan.strip_rows);
    for (Index index = 0; index < plan.strips(); ++index) {
      const Strip<T> strip = plan.strip(index, strip_);
      parallel_for(plan.chunks(), plan.strip_work(logits_.depth()), [&](Index c) {
        fill(strip, c);
        for (Index r = 0; r < strip.rows; ++r)
          sums[c * plan.strip_rows + r] =
              chunk_exponentials(strip.at(r, c * plan.chunk), std::numeric_limits<T>::infinity());
      });
      for (Index r = 0; r < strip.rows; ++r) {
        ExpSum<W>& row = row_sums_[strip.first + r];
        row = {};
        for (Index c = 0; c < plan.chunks(); ++c)
          row.add(W(sums[c * plan.strip_rows + r].reference), W(sums[c * plan.strip_rows + r].sum));
        all_.add(row.reference, row.sum);
      }
    }
  }

  void differentiate() {
    const StripPlan<T>& plan = logits_.plan();
    const T factor = T(2 / all_.sum);
    const double work = plan.strip_work(logits_.depth());
    for (Index index = 0; index < plan.strips(); ++index) {
      const Strip<T> strip = plan.strip(index, strip_);
      parallel_for(plan.chunks(), work, [&](Index c) {
        fill(strip, c);
        const Index begin = c * plan.chunk, end = plan.chunk_end(c);
        for (Index r = 0; r < strip.rows; ++r) {
          const Index i = strip.first + r;
          T* s = strip.at(r, begin);
          ChunkRow<T> row(s);
          row = factor * exp_or_zero(row - T(all_.reference));
          if (begin <= i && i < end)
            s[i - begin] = T(-2 * row_sums_[i].sum
                             * std::exp(row_sums_[i].reference - all_.reference) / all_.sum);
        }
      });
      for_row_blocks(strip, work,
                     [&](Index first, Index last) { logits_.set_left(strip, first, last); });
    }
  }

  Scratch scratch_;
  Rows<T> rows_;
  T* centred_ = nullptr;
  EmbeddingLogits<T> logits_{};
  T* strip_ = nullptr;
  T* offsets_ = nullptr;  // t |delta_j|^2
  ExpSum<W>* row_sums_ = nullptr;
  ExpSum<W> all_{};
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_UNIFORMITY_LOSS_HPP
