// InfoNCE over embeddings, with or without extra negatives: checks, then the row rule.
#ifndef CONTRASTIVE_DETAIL_ROW_LOSS_HPP
#define CONTRASTIVE_DETAIL_ROW_LOSS_HPP

#include "own_negatives.hpp"
#include "pair_loss.hpp"
#include "row_rule.hpp"

namespace contrastive::detail {

/// What both have in common. Extra negatives that all queries share are columns of the logits,
/// those of one query each are in `Own`.
template <class T, class Own>
class AnyRowLoss : public PairLoss<T> {
 public:
  using W = Wide<T>;

 protected:
  using PairLoss<T>::PairLoss;
  using PairLoss<T>::logits_;
  using PairLoss<T>::scale_;
  using PairLoss<T>::scratch_;

  void run(const char* function, const View<const T>& q, const View<const T>& p,
           const View<const T>& n, const SoftmaxOptions& options, bool gradient) {
    if (this->losses_ == nullptr) this->losses_ = scratch_.template take<W>(q.rows);
    logits_ = EmbeddingLogits<T>(q, p, own_.empty() ? n : View<const T>{}, options.similarity,
                                 scale_.value);
    logits_.pack(gradient, scratch_, !own_.empty());
    own_.pack(logits_, gradient, scratch_);
    if (!logits_.is_ordinary() || !own_.is_ordinary()) {
      check_embeddings(function, "Q", q, options.similarity);
      check_embeddings(function, "P", p, options.similarity);
      check_embeddings(function, "N", n, options.similarity);
    }

    targets_ = this->make_targets(options);
    const W limit = target_limit<T>(options, q.rows + n.rows) - targets_.largest_shift();
    this->check_limit(function, limit);
    own_.check(function, limit);
    const StripPlan<T> plan = gradient ? logits_.plan().for_two_uses() : logits_.plan();
    this->finish(targets_,
                 row_rule(logits_, plan, own_, targets_, gradient, this->losses_, scratch_));
  }

  Own own_{};
  Targets<T> targets_{};
};

/// InfoNCE: no extra negatives.
template <class T>
class RowLoss : public AnyRowLoss<T, NoOwnNegatives<T>> {
 public:
  using W = Wide<T>;

  RowLoss(const char* function, const View<const T>& q, const View<const T>& p,
          const ScaleArgument& scale, const SoftmaxOptions& options, bool gradient,
          Workspace& workspace)
      : AnyRowLoss<T, NoOwnNegatives<T>>(workspace) {
    check_pairs(function, q, p);
    this->scale_ = resolve<T>(function, scale);
    refuse_negative_options(function, options);
    check_pair_options(function, options, q.rows);
    check_target_options<T>(function, options, W(this->scale_.value), q.rows, 0);
    if (this->run_small(q, p, options, target_limit<T>(options, q.rows), gradient,
                        [&](auto& small) { return small.row_loss(gradient, this->losses_); }))
      return;
    this->run(function, q, p, {}, options, gradient);
  }
};

/// Hard negatives: the rows of n, which may be none. The logits are there afterwards.
template <class T>
class HardRowLoss : public AnyRowLoss<T, OwnNegatives<T>> {
 public:
  using W = Wide<T>;

  HardRowLoss(const char* function, const View<const T>& q, const View<const T>& p,
              const View<const T>& n, const ScaleArgument& scale, const SoftmaxOptions& options,
              bool gradient, Workspace& workspace)
      : AnyRowLoss<T, OwnNegatives<T>>(workspace) {
    check_pairs(function, q, p);
    check_negatives(function, q, n);
    this->scale_ = resolve<T>(function, scale);
    check_pair_options(function, options, q.rows);
    check_negative_options(function, options, q.rows, n.rows);
    check_target_options<T>(function, options, W(this->scale_.value), q.rows, n.rows);
    if (options.scope == NegativeScope::own && n.rows > 0)
      this->own_ = OwnNegatives<T>(n, q.rows, options);
    this->run(function, q, p, n, options, gradient);
  }

  void write(const View<T>& dq, const View<T>& dp, const View<T>& dn) const {
    const bool shared = this->own_.empty();
    this->logits_.unpack(dq, dp, shared ? dn : View<T>{});
    if (!shared) this->own_.unpack(dn);
  }
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_ROW_LOSS_HPP
