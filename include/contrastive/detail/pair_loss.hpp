// What the losses over pairs of embeddings have in common.
#ifndef CONTRASTIVE_DETAIL_PAIR_LOSS_HPP
#define CONTRASTIVE_DETAIL_PAIR_LOSS_HPP

#include "checks.hpp"
#include "logits.hpp"
#include "option_checks.hpp"
#include "small_batch.hpp"
#include "targets.hpp"

namespace contrastive::detail {

/// Made, it has checked its arguments and computed the loss; what is left is to write gradients.
template <class T>
class PairLoss {
 public:
  using W = Wide<T>;

  PairLoss(const PairLoss&) = delete;
  PairLoss& operator=(const PairLoss&) = delete;

  [[nodiscard]] T loss() const { return T(loss_); }

  /// sum_ij G_ij scale (c_ij - positive_margin [i = j])
  [[nodiscard]] T d_log_scale() {
    if (!scale_.passes) return 0;
    if (small_.taken()) return T(small_.d_log_scale());
    return T(logits_.d_log_scale() - margin_ * diagonal_);
  }

  void write(const View<T>& dq, const View<T>& dp) const {
    if constexpr (SmallBatch<T>::K::exists)
      if (small_.taken()) return small_.write(dq, dp);
    logits_.unpack(dq, dp, {});
  }

  /// Each row's loss, unweighted.
  void write_rows(const View<T>& rows) const {
    for (Index i = 0; i < rows.rows; ++i) rows(i, 0) = T(losses_[i]);
  }

 protected:
  explicit PairLoss(Workspace& workspace) : scratch_(workspace) {}

  /// Computes a small batch: f(small) returns its loss and leaves its losses and its G. Returns
  /// false for what the engine is to compute.
  template <class Options, class F>
  bool run_small(const View<const T>& q, const View<const T>& p, const Options& options, W limit,
                 bool gradient, const F& f) {
    if constexpr (SmallBatch<T>::K::exists) {
      losses_ = scratch_.template take<W>(q.rows);
      if (!small_.take(q, p, options, scale_.value, limit, gradient, scratch_)) return false;
      loss_ = f(small_);
      if (gradient) small_.differentiate();
      return true;
    }
    return false;
  }

  /// Packs the logits and checks the contents of two matrices.
  void make_logits(const char* function, const View<const T>& q, const View<const T>& p,
                   Similarity similarity, bool gradient) {
    logits_ = EmbeddingLogits<T>(q, p, {}, similarity, scale_.value);
    logits_.pack(gradient, scratch_);
    if (!logits_.is_ordinary()) {
      check_embeddings(function, "Q", q, similarity);
      check_embeddings(function, "P", p, similarity);
    }
    if (losses_ == nullptr) losses_ = scratch_.template take<W>(q.rows);
  }

  /// Refuses logits beyond `limit` in magnitude; after they are packed.
  void check_limit(const char* function, W limit) {
    if (logits_.bound() > limit)
      check_logits(function, logits_, limit, scratch_.template take<T>(logits_.plan().part_size()));
  }

  /// What the options of a softmax loss come to; after the logits are packed.
  Targets<T> make_targets(const SoftmaxOptions& options, Index views = 1) {
    const StripPlan<T>& plan = logits_.plan();
    const Index batch = plan.rows / views;
    Targets<T> targets(options, logits_.scale(), batch, plan.cols, scratch_, views);
    if (targets.finds_false_negatives()) {
      T* positives = scratch_.template take<T>(batch);
      logits_.diagonal(positives, views > 1 ? batch : 0);
      targets.take_positives(positives);
    }
    return targets;
  }

  void finish(const Targets<T>& targets, const SoftmaxSums<W>& sums) {
    loss_ = sums.loss;
    margin_ = targets.margin();
    diagonal_ = sums.diagonal;
  }

  Scratch scratch_;
  Scale scale_{};
  SmallBatch<T> small_{};  // takes the place of the logits, or takes no part
  EmbeddingLogits<T> logits_{};
  W* losses_ = nullptr;
  W loss_ = 0;
  W margin_ = 0;    // scale positive_margin
  W diagonal_ = 0;  // sum_i G_ii
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_PAIR_LOSS_HPP
