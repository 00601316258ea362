// NT-Xent: checks, then the symmetric rule on the rows of both views.
#ifndef CONTRASTIVE_DETAIL_NT_XENT_LOSS_HPP
#define CONTRASTIVE_DETAIL_NT_XENT_LOSS_HPP

#include "pair_loss.hpp"
#include "symmetric_rule.hpp"

namespace contrastive::detail {

template <class T>
class NtXentLoss : public PairLoss<T> {
 public:
  using W = Wide<T>;

  NtXentLoss(const char* function, const View<const T>& za, const View<const T>& zb,
             const ScaleArgument& scale, const SoftmaxOptions& options, bool gradient,
             Workspace& workspace)
      : PairLoss<T>(workspace) {
    check_same_shape(function, "Za", za, "Zb", zb);
    check_not_empty(function, "Za", za);
    this->scale_ = resolve<T>(function, scale);
    refuse_negative_options(function, options);
    if (!options.log_prior.empty())
      refuse_option(function, "log_prior", "has no meaning where rows are each other's candidates");
    check_pair_options(function, options, za.rows, "Za");
    const W s = W(this->scale_.value);
    check_target_options<T>(function, options, s, za.rows, 0, "Za", 2);
    this->logits_ = EmbeddingLogits<T>::of_itself(za, zb, options.similarity, this->scale_.value);
    this->logits_.pack(gradient, this->scratch_);
    if (!this->logits_.is_ordinary()) {
      check_embeddings(function, "Za", za, options.similarity);
      check_embeddings(function, "Zb", zb, options.similarity);
    }
    this->losses_ = this->scratch_.template take<W>(2 * za.rows);
    const Targets<T> targets = this->make_targets(options, 2);
    this->check_limit(function, target_limit<T>(options, 2 * za.rows) - targets.largest_shift());
    SymmetricRule<T, EmbeddingLogits<T>> rule(this->logits_, targets, gradient, this->scratch_);
    this->finish(targets, rule.loss(this->losses_));
    if (gradient) rule.gradient();
  }
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_NT_XENT_LOSS_HPP
