// The supervised contrastive loss: checks, then its rule.
#ifndef CONTRASTIVE_DETAIL_SUP_CON_LOSS_HPP
#define CONTRASTIVE_DETAIL_SUP_CON_LOSS_HPP

#include "pair_loss.hpp"
#include "sup_con_rule.hpp"

namespace contrastive::detail {

/// Refuses what the supervised contrastive loss has no use for.
inline void refuse_pair_options(const char* function, const SoftmaxOptions& options) {
  const char* ids = "is for pairs, and this loss tells positives by label";
  if (!options.query_ids.empty()) refuse_option(function, "query_ids", ids);
  if (!options.pos_ids.empty()) refuse_option(function, "pos_ids", ids);
  refuse_negative_options(function, options);
  const char* several = "is for losses with one positive a row";
  if (options.label_smoothing != 0) refuse_option(function, "label_smoothing", several);
  if (options.positive_margin != 0) refuse_option(function, "positive_margin", several);
  if (options.decoupled) refuse_option(function, "decoupled", several);
  if (!options.log_prior.empty()) refuse_option(function, "log_prior", several);
  if (options.false_negative_margin.has_value())
    refuse_option(function, "false_negative_margin", several);
}

template <class T>
class SupConLoss : public PairLoss<T> {
 public:
  using W = Wide<T>;

  SupConLoss(const char* function, const View<const T>& z, const Labels& labels,
             const ScaleArgument& scale, const SoftmaxOptions& options, bool gradient,
             Workspace& workspace)
      : PairLoss<T>(workspace) {
    check_not_empty(function, "Z", z);
    check_length(function, "labels", labels.size(), z.rows, "Z");
    this->scale_ = resolve<T>(function, scale);
    refuse_pair_options(function, options);
    check_weights(function, options.weights, z.rows, "Z");
    this->logits_ = EmbeddingLogits<T>::of_itself(z, {}, options.similarity, this->scale_.value);
    this->logits_.pack(gradient, this->scratch_);
    if (!this->logits_.is_ordinary()) check_embeddings(function, "Z", z, options.similarity);
    this->check_limit(function, largest_logit<T>(1));
    this->losses_ = this->scratch_.template take<W>(z.rows);
    const Classes<T> classes(labels, options.weights, this->scratch_);
    SupConRule<T> rule(this->logits_, classes, gradient, this->scratch_);
    this->loss_ = rule.loss(this->losses_);
    if (gradient) rule.gradient();
  }
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_SUP_CON_LOSS_HPP
