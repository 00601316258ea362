// The losses over logits that the caller computed: checks, then the rule.
#ifndef CONTRASTIVE_DETAIL_LOGITS_LOSS_HPP
#define CONTRASTIVE_DETAIL_LOGITS_LOSS_HPP

#include "checks.hpp"
#include "option_checks.hpp"
#include "own_negatives.hpp"
#include "row_rule.hpp"
#include "sigmoid_rule.hpp"
#include "symmetric_rule.hpp"

namespace contrastive::detail {

/// Made, it has checked its arguments; then one of the rules is run, once.
template <class T>
class LogitsLoss {
 public:
  using W = Wide<T>;

  LogitsLoss(const char* function, const View<const T>& s, const SoftmaxOptions& options,
             Workspace& workspace)
      : LogitsLoss(function, s, workspace) {
    refuse_similarity(function, options);
    refuse_negative_options(function, options);
    refuse_margins(function, options);
    check_pair_options(function, options, s.rows, "S");
    check_target_options<T>(function, options, 1, s.rows, 0, "S");
    targets_ = Targets<T>(options, 1, s.rows, s.cols, scratch_);
    check_contents(function, s, target_limit<T>(options, s.cols) - targets_.largest_shift());
  }

  LogitsLoss(const char* function, const View<const T>& s, double bias,
             const SigLipOptions& options, Workspace& workspace)
      : LogitsLoss(function, s, workspace) {
    check_finite(function, "bias", bias);
    refuse_similarity(function, options);
    check_pair_options(function, options, s.rows, "S");
    excluded_ = Exclusions(options.query_ids, options.pos_ids, {}, s.rows, scratch_);
    weights_ = MeanWeights<W>(options.weights, s.rows);
    bias_ = bias;
    check_contents(function, s, largest_logit<T>(s.cols) - W(std::fabs(bias)));
  }

  LogitsLoss(const LogitsLoss&) = delete;
  LogitsLoss& operator=(const LogitsLoss&) = delete;

  /// The gradient is written to `ds`, times `sign`, by the rule that is run afterwards.
  void gradient_to(const View<T>& ds, T sign = 1) {
    gradient_ = true;
    logits_.gradient_to(ds, sign);
  }

  [[nodiscard]] W info_nce() {
    return row_rule(logits_, logits_.plan().for_two_uses(), NoOwnNegatives<T>(), targets_,
                    gradient_, losses(), scratch_)
        .loss;
  }

  [[nodiscard]] W clip() {
    SymmetricRule<T, GivenLogits<T>> rule(logits_, targets_, gradient_, scratch_);
    const W loss = rule.loss(losses()).loss;
    if (gradient_) rule.gradient();
    return loss;
  }

  [[nodiscard]] SigmoidSums<W> siglip() {
    return sigmoid_rule(logits_, logits_.plan(), excluded_, weights_, bias_, gradient_, losses(),
                        scratch_);
  }

 private:
  LogitsLoss(const char* function, const View<const T>& s, Workspace& workspace)
      : scratch_(workspace), logits_(checked(function, s)) {}

  static const View<const T>& checked(const char* function, const View<const T>& s) {
    check_square(function, "S", s);
    check_not_empty(function, "S", s);
    return s;
  }

  static void check_contents(const char* function, const View<const T>& s, W limit) {
    check_finite(function, "S", s);
    check_logits(function, s, limit);
  }

  W* losses() { return scratch_.template take<W>(logits_.plan().rows); }

  Scratch scratch_;
  GivenLogits<T> logits_;
  Targets<T> targets_{};   // of a softmax
  Exclusions excluded_{};  // of the sigmoid loss, as are the following
  MeanWeights<W> weights_{};
  double bias_ = 0;
  bool gradient_ = false;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_LOGITS_LOSS_HPP
