// InfoNCE over embeddings, with or without extra negatives: checks, then the row rule.
#ifndef CONTRASTIVE_DETAIL_ROW_LOSS_HPP
#define CONTRASTIVE_DETAIL_ROW_LOSS_HPP

#include "pair_loss.hpp"
#include "row_rule.hpp"

namespace contrastive::detail {

template <class T>
class RowLoss : public PairLoss<T> {
 public:
  using W = Wide<T>;

  /// InfoNCE: no extra negatives.
  RowLoss(const char* function, const View<const T>& q, const View<const T>& p,
          const ScaleArgument& scale, const SoftmaxOptions& options, bool gradient,
          Workspace& workspace)
      : PairLoss<T>(workspace) {
    check_pairs(function, q, p);
    scale_ = resolve<T>(function, scale);
    refuse_negative_options(function, options);
    check_pair_options(function, options, q.rows);
    check_target_options<T>(function, options, W(scale_.value), q.rows, 0);
    if (this->run_small(q, p, options, target_limit<T>(options, q.rows), gradient,
                        [&](auto& small) { return small.row_loss(gradient, this->losses_); }))
      return;
    run(function, q, p, {}, options, gradient);
  }

  /// Hard negatives: the rows of n, which may be none. The logits are there afterwards.
  RowLoss(const char* function, const View<const T>& q, const View<const T>& p,
          const View<const T>& n, const ScaleArgument& scale, const SoftmaxOptions& options,
          bool gradient, Workspace& workspace)
      : PairLoss<T>(workspace) {
    check_pairs(function, q, p);
    check_negatives(function, q, n);
    scale_ = resolve<T>(function, scale);
    check_pair_options(function, options, q.rows);
    check_negative_options(function, options, q.rows, n.rows);
    check_target_options<T>(function, options, W(scale_.value), q.rows, n.rows);
    run(function, q, p, n, options, gradient);
  }

  using PairLoss<T>::write;

  void write(const View<T>& dq, const View<T>& dp, const View<T>& dn) const {
    logits_.unpack(dq, dp, own_.empty() ? dn : View<T>{});
    if (!own_.empty()) own_.unpack(dn);
  }

 protected:
  using PairLoss<T>::logits_;
  using PairLoss<T>::scale_;
  using PairLoss<T>::scratch_;

  OwnNegatives<T> own_{};
  Targets<T> targets_{};

 private:
  void run(const char* function, const View<const T>& q, const View<const T>& p,
           const View<const T>& n, const SoftmaxOptions& options, bool gradient) {
    if (this->losses_ == nullptr) this->losses_ = scratch_.template take<W>(q.rows);
    const bool shared = options.scope == NegativeScope::shared;
    logits_ =
        EmbeddingLogits<T>(q, p, shared ? n : View<const T>{}, options.similarity, scale_.value);
    if (!shared && n.rows > 0) own_ = OwnNegatives<T>(n, q.rows, options);
    const bool has_own = !own_.empty();
    logits_.pack(gradient, scratch_, has_own);
    if (has_own) own_.pack(logits_, gradient, scratch_);
    if (!logits_.is_ordinary() || !(own_.empty() || own_.is_ordinary())) {
      check_embeddings(function, "Q", q, options.similarity);
      check_embeddings(function, "P", p, options.similarity);
      check_embeddings(function, "N", n, options.similarity);
    }

    targets_ = this->make_targets(options);
    const W limit = target_limit<T>(options, q.rows + n.rows) - targets_.largest_shift();
    this->check_limit(function, limit);
    if (has_own) own_.check(function, limit);
    this->finish(targets_, row_rule(logits_, has_own ? &own_ : nullptr, targets_, gradient,
                                    scratch_.template take<T>(logits_.plan().strip_size()),
                                    this->losses_, scratch_));
  }
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_ROW_LOSS_HPP
