// The losses over pairs of embeddings that are not the row loss: CLIP and SigLIP. Checks, then the
// rule.
#ifndef CONTRASTIVE_DETAIL_PAIR_LOSSES_HPP
#define CONTRASTIVE_DETAIL_PAIR_LOSSES_HPP

#include "checks.hpp"
#include "option_checks.hpp"
#include "sigmoid_rule.hpp"
#include "symmetric_rule.hpp"

namespace contrastive::detail {

/// What CLIP and SigLIP share. Made, it has checked its arguments and computed the loss; what is
/// left is to write gradients.
template <class T>
class PairLoss {
 public:
  using W = Wide<T>;

  PairLoss(const PairLoss&) = delete;
  PairLoss& operator=(const PairLoss&) = delete;

  [[nodiscard]] T loss() const { return T(loss_); }
  [[nodiscard]] T d_log_scale() { return scale_.passes ? T(logits_.d_log_scale()) : T(0); }
  void write(const View<T>& dq, const View<T>& dp) const { logits_.unpack(dq, dp, {}); }

 protected:
  explicit PairLoss(Workspace& workspace) : scratch_(workspace) {}

  /// Checks options, contents and logits, which must not exceed `limit`, and packs.
  template <class Options>
  void prepare(const char* function, const View<const T>& q, const View<const T>& p,
               const Options& options, W limit, bool gradient) {
    check_pair_options(function, options, q.rows);
    logits_ = EmbeddingLogits<T>(q, p, {}, options.similarity, scale_.value);
    logits_.pack(gradient, scratch_);
    if (!logits_.is_ordinary()) {
      check_embeddings(function, "Q", q, options.similarity);
      check_embeddings(function, "P", p, options.similarity);
    }
    if (logits_.bound() > limit)
      check_logits(function, logits_, limit,
                   scratch_.template take<T>(logits_.plan().strip_size()));
    excluded_ = Exclusions(options.query_ids, options.pos_ids, {}, q.rows, scratch_);
    weights_ = MeanWeights<W>(options.weights, q.rows);
  }

  Scratch scratch_;
  Scale scale_{};
  EmbeddingLogits<T> logits_{};
  Exclusions excluded_{};
  MeanWeights<W> weights_{};
  W loss_ = 0;
};

template <class T>
class ClipLoss : public PairLoss<T> {
 public:
  ClipLoss(const char* function, const View<const T>& q, const View<const T>& p,
           const ScaleArgument& scale, const SoftmaxOptions& options, bool gradient,
           Workspace& workspace)
      : PairLoss<T>(workspace) {
    check_pairs(function, q, p);
    this->scale_ = resolve<T>(function, scale);
    refuse_negative_options(function, options);
    this->prepare(function, q, p, options, largest_logit<T>(1), gradient);
    SymmetricRule<T, EmbeddingLogits<T>> rule(this->logits_, this->excluded_, this->weights_,
                                              gradient, this->scratch_);
    this->loss_ = rule.loss();
    if (gradient) rule.gradient();
  }
};

template <class T>
class SigLipLoss : public PairLoss<T> {
 public:
  SigLipLoss(const char* function, const View<const T>& q, const View<const T>& p,
             const ScaleArgument& scale, double bias, const SigLipOptions& options, bool gradient,
             Workspace& workspace)
      : PairLoss<T>(workspace) {
    check_pairs(function, q, p);
    this->scale_ = resolve<T>(function, scale);
    check_finite(function, "bias", bias);
    this->prepare(function, q, p, options, largest_logit<T>(q.rows) - Wide<T>(std::fabs(bias)),
                  gradient);
    const auto sums = sigmoid_rule(
        this->logits_, this->excluded_, this->weights_, bias, gradient,
        this->scratch_.template take<T>(this->logits_.plan().strip_size()), this->scratch_);
    this->loss_ = sums.loss;
    d_bias_ = sums.d_bias;
  }

  [[nodiscard]] T d_bias() const { return T(d_bias_); }

 private:
  Wide<T> d_bias_ = 0;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_PAIR_LOSSES_HPP
