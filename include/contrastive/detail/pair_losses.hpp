// The losses over pairs of embeddings that are not the row loss: CLIP and SigLIP. Checks, then the
// rule.
#ifndef CONTRASTIVE_DETAIL_PAIR_LOSSES_HPP
#define CONTRASTIVE_DETAIL_PAIR_LOSSES_HPP

#include "pair_loss.hpp"
#include "sigmoid_rule.hpp"
#include "symmetric_rule.hpp"

namespace contrastive::detail {

template <class T>
class ClipLoss : public PairLoss<T> {
 public:
  using W = Wide<T>;

  ClipLoss(const char* function, const View<const T>& q, const View<const T>& p,
           const ScaleArgument& scale, const SoftmaxOptions& options, bool gradient,
           Workspace& workspace)
      : PairLoss<T>(workspace) {
    check_pairs(function, q, p);
    this->scale_ = resolve<T>(function, scale);
    refuse_negative_options(function, options);
    check_pair_options(function, options, q.rows);
    check_target_options<T>(function, options, W(this->scale_.value), q.rows, 0);
    if (this->run_small(q, p, options, target_limit<T>(options, q.rows), gradient,
                        [&](auto& small) { return small.symmetric_loss(gradient, this->losses_); }))
      return;
    this->make_logits(function, q, p, options.similarity, gradient);
    const Targets<T> targets = this->make_targets(options);
    this->check_limit(function, target_limit<T>(options, q.rows) - targets.largest_shift());
    SymmetricRule<T, EmbeddingLogits<T>> rule(this->logits_, targets, gradient, this->scratch_);
    this->finish(targets, rule.loss(this->losses_));
    if (gradient) rule.gradient();
  }
};

template <class T>
class SigLipLoss : public PairLoss<T> {
 public:
  using W = Wide<T>;

  SigLipLoss(const char* function, const View<const T>& q, const View<const T>& p,
             const ScaleArgument& scale, double bias, const SigLipOptions& options, bool gradient,
             Workspace& workspace)
      : PairLoss<T>(workspace) {
    check_pairs(function, q, p);
    this->scale_ = resolve<T>(function, scale);
    check_finite(function, "bias", bias);
    check_pair_options(function, options, q.rows);
    const W limit = largest_logit<T>(q.rows) - W(std::fabs(bias));
    if (this->run_small(q, p, options, limit, gradient, [&](auto& small) {
          return small.sigmoid_loss(bias, this->losses_, d_bias_);
        }))
      return;
    this->make_logits(function, q, p, options.similarity, gradient);
    this->check_limit(function, limit);
    const Exclusions excluded(options.query_ids, options.pos_ids, {}, q.rows, this->scratch_);
    const MeanWeights<W> weights(options.weights, q.rows);
    const SigmoidSums<W> sums = sigmoid_rule(this->logits_, this->logits_.plan(), excluded, weights,
                                             bias, gradient, this->losses_, this->scratch_);
    this->loss_ = sums.loss;
    d_bias_ = sums.d_bias;
  }

  [[nodiscard]] T d_bias() const { return T(d_bias_); }

 private:
  W d_bias_ = 0;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_PAIR_LOSSES_HPP
