// InfoNCE over embeddings, with or without extra negatives: checks, then the row rule.
#ifndef CONTRASTIVE_DETAIL_ROW_LOSS_HPP
#define CONTRASTIVE_DETAIL_ROW_LOSS_HPP

#include "checks.hpp"
#include "option_checks.hpp"
#include "row_rule.hpp"

namespace contrastive::detail {

/// Made, it has checked its arguments and computed the loss; what is left is to write gradients.
template <class T>
class RowLoss {
 public:
  using W = Wide<T>;

  /// InfoNCE: no extra negatives.
  RowLoss(const char* function, const View<const T>& q, const View<const T>& p,
          const ScaleArgument& scale, const SoftmaxOptions& options, bool gradient,
          Workspace& workspace)
      : scratch_(workspace) {
    check_pairs(function, q, p);
    scale_ = resolve<T>(function, scale);
    refuse_negative_options(function, options);
    check_pair_options(function, options, q.rows);
    run(function, q, p, {}, options, gradient);
  }

  /// Hard negatives: the rows of n.
  RowLoss(const char* function, const View<const T>& q, const View<const T>& p,
          const View<const T>& n, const ScaleArgument& scale, const SoftmaxOptions& options,
          bool gradient, Workspace& workspace)
      : scratch_(workspace) {
    check_pairs(function, q, p);
    check_negatives(function, q, n);
    scale_ = resolve<T>(function, scale);
    check_pair_options(function, options, q.rows);
    check_negative_options(function, options, q.rows, n.rows);
    run(function, q, p, n, options, gradient);
  }

  RowLoss(const RowLoss&) = delete;
  RowLoss& operator=(const RowLoss&) = delete;

  [[nodiscard]] T loss() const { return T(loss_); }

  [[nodiscard]] T d_log_scale() { return scale_.passes ? T(logits_.d_log_scale()) : T(0); }

  /// `dn` has no rows for InfoNCE.
  void write(const View<T>& dq, const View<T>& dp, const View<T>& dn) const {
    logits_.unpack(dq, dp, own_.empty() ? dn : View<T>{});
    if (!own_.empty()) own_.unpack(dn);
  }

 private:
  void run(const char* function, const View<const T>& q, const View<const T>& p,
           const View<const T>& n, const SoftmaxOptions& options, bool gradient) {
    const bool shared = options.scope == NegativeScope::shared;
    logits_ =
        EmbeddingLogits<T>(q, p, shared ? n : View<const T>{}, options.similarity, scale_.value);
    logits_.pack(gradient, scratch_);
    if (!shared && n.rows > 0) {
      own_ = OwnNegatives<T>(n, q.rows, options);
      own_.pack(logits_, gradient, scratch_);
    }
    if (!logits_.is_ordinary() || !(own_.empty() || own_.is_ordinary())) {
      check_embeddings(function, "Q", q, options.similarity);
      check_embeddings(function, "P", p, options.similarity);
      check_embeddings(function, "N", n, options.similarity);
    }

    const W limit = largest_logit<T>(1);
    T* strip = scratch_.template take<T>(logits_.plan().strip_size());
    check_logits(function, logits_, limit, strip);
    if (!own_.empty()) own_.check(function, limit);

    const Exclusions excluded(options.query_ids, options.pos_ids,
                              shared ? options.neg_ids : List<std::int64_t>{}, q.rows, scratch_);
    const MeanWeights<W> weights(options.weights, q.rows);
    loss_ = row_rule(logits_, own_.empty() ? nullptr : &own_, excluded, weights, gradient, strip,
                     scratch_);
  }

  Scratch scratch_;
  Scale scale_{};
  EmbeddingLogits<T> logits_{};
  OwnNegatives<T> own_{};
  W loss_ = 0;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_ROW_LOSS_HPP
