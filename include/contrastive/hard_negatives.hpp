// InfoNCE with further candidates: mined negatives, or a queue of past embeddings.
#ifndef CONTRASTIVE_HARD_NEGATIVES_HPP
#define CONTRASTIVE_HARD_NEGATIVES_HPP

#include <Eigen/Core>

#include "detail/row_loss.hpp"
#include "detail/view.hpp"
#include "options.hpp"
#include "results.hpp"
#include "temperature.hpp"
#include "workspace.hpp"

namespace contrastive {

/// InfoNCE with hard negatives: each query finds its positive among the batch's positives and the
/// rows of N.
///
///     s_ij = scale qn_i . pn_j                  t_im = scale qn_i . nn_m
///     L_i  = log (sum_j e^(s_ij) + sum_m e^(t_im)) - s_ii
///     L    = sum_i w_i L_i                    w_i = 1/B, or weights_i / sum(weights)
///
///     A_i  = softmax of (s_i, t_i)            G = (dL/ds, dL/dt) = w_i (A - [the positive])
///     dqn_i = scale (sum_j G_ij pn_j + sum_m G_im nn_m)
///     dpn_j = scale sum_i G_ij qn_i             dnn_m = scale sum_i G_im qn_i
///     dx   = (dxn - xn (xn . dxn)) / |x| for x in Q, P, N (cosine)
///     d_log_scale = sum_ij G_ij s_ij + sum_im G_im t_im   (0 beyond max_scale, see LogScale)
///
/// j and the further options as in info_nce_loss; extra negatives have no prior, and may be false
/// ones too. m goes over all rows of N with NegativeScope::shared, over query i's own
/// with `own`: rows i k .. i k + k - 1 where N has B k rows, or neg_offsets[i] ..
/// neg_offsets[i + 1] - 1. A negative whose neg_ids equals the row's pos_ids is left out. N may
/// have no rows.
///
/// @param Q        queries (B x d), one embedding a row, finite.
/// @param P        positives (B x d); row i is the positive of query i.
/// @param N        negatives (M x d).
/// @param scale    Temperature, or LogScale for a learned one, which adds d_log_scale.
/// @param options  similarity, query_ids, pos_ids, neg_ids, weights, scope, neg_offsets,
///     label_smoothing, positive_margin, decoupled, log_prior, false_negative_margin.
/// @return loss in nats, dQ and dP (B x d), dN (M x d), with a LogScale d_log_scale.
/// @throws std::invalid_argument as info_nce_loss_grad; if N has another number of columns; neg_ids
///     is not M long or comes without pos_ids; with `own` M is no multiple of B, or neg_offsets is
///     not B + 1 long, does not begin with 0, decreases, or does not end at M; with `shared`
///     neg_offsets is given.
/// @throws std::overflow_error if a logit (a dot product of huge rows) overflows the scalar type.
/// @par Accuracy
/// as info_nce_loss_grad.
/// @par Complexity
/// 3 products of 2 B (B + M) d operations with `shared`, of 2 B B d and O(M d) more with `own` (the
/// value alone: 1), one more where 48 MiB hold less than 64 rows of logits. Memory beyond
/// inputs and outputs: (5 B + 3 M) d scalars and a strip of at most 48 MiB.
/// @see Karpukhin et al., "Dense Passage Retrieval for Open-Domain Question Answering", 2020,
///      arXiv:2004.04906, equation 2; He et al. (MoCo), 2020, arXiv:1911.05722, equation 1.
template <class DQ, class DP, class DN, class Scale>
void hard_negative_loss_grad(const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DP>& P,
                             const Eigen::MatrixBase<DN>& N, const Scale& scale,
                             const SoftmaxOptions& options,
                             HardNegativeGradient<DQ, DP, DN, Scale>& result,
                             Workspace& workspace) {
  detail::require_same_scalar<DQ, DP, DN>();
  const char* function = "hard_negative_loss_grad";
  const detail::Bound<DQ> q(Q);
  const detail::Bound<DP> p(P);
  const detail::Bound<DN> n(N);
  detail::HardRowLoss<typename DQ::Scalar> core(function, q.view(), p.view(), n.view(),
                                                detail::ScaleArgument(scale), options, true,
                                                workspace);
  result.loss = core.loss();
  core.write(detail::resized(result.dQ, Q.rows(), Q.cols()),
             detail::resized(result.dP, P.rows(), P.cols()),
             detail::resized(result.dN, N.rows(), N.cols()));
  if constexpr (detail::is_learned<Scale>) result.d_log_scale = core.d_log_scale();
}

/// The same, returned.
template <class DQ, class DP, class DN, class Scale>
[[nodiscard]] HardNegativeGradient<DQ, DP, DN, Scale> hard_negative_loss_grad(
    const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DP>& P, const Eigen::MatrixBase<DN>& N,
    const Scale& scale, const SoftmaxOptions& options = {}, OptionalWorkspace workspace = {}) {
  HardNegativeGradient<DQ, DP, DN, Scale> result;
  hard_negative_loss_grad(Q, P, N, scale, options, result, workspace.get());
  return result;
}

/// The value alone, for one product instead of three.
template <class DQ, class DP, class DN, class Scale>
[[nodiscard]] typename DQ::Scalar hard_negative_loss(
    const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DP>& P, const Eigen::MatrixBase<DN>& N,
    const Scale& scale, const SoftmaxOptions& options = {}, OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DQ, DP, DN>();
  const char* function = "hard_negative_loss";
  const detail::Bound<DQ> q(Q);
  const detail::Bound<DP> p(P);
  const detail::Bound<DN> n(N);
  return detail::HardRowLoss<typename DQ::Scalar>(function, q.view(), p.view(), n.view(),
                                                  detail::ScaleArgument(scale), options, false,
                                                  workspace.get())
      .loss();
}

/// Each row's loss: L_i of hard_negative_loss, unweighted, for one product. Their mean is the loss.
///
/// @param options  as hard_negative_loss, but no weights.
/// @return L (B), nats.
/// @throws as hard_negative_loss_grad; std::invalid_argument if there are weights.
template <class DQ, class DP, class DN, class Scale>
void hard_negative_rows(const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DP>& P,
                        const Eigen::MatrixBase<DN>& N, const Scale& scale,
                        const SoftmaxOptions& options, RowLosses<DQ>& result,
                        Workspace& workspace) {
  detail::require_same_scalar<DQ, DP, DN>();
  const char* function = "hard_negative_rows";
  const detail::Bound<DQ> q(Q);
  const detail::Bound<DP> p(P);
  const detail::Bound<DN> n(N);
  detail::refuse_weights(function, options);
  const detail::HardRowLoss<typename DQ::Scalar> core(function, q.view(), p.view(), n.view(),
                                                      detail::ScaleArgument(scale), options, false,
                                                      workspace);
  core.write_rows(detail::resized(result, Q.rows(), 1));
}

/// The same, returned.
template <class DQ, class DP, class DN, class Scale>
[[nodiscard]] RowLosses<DQ> hard_negative_rows(const Eigen::MatrixBase<DQ>& Q,
                                               const Eigen::MatrixBase<DP>& P,
                                               const Eigen::MatrixBase<DN>& N, const Scale& scale,
                                               const SoftmaxOptions& options = {},
                                               OptionalWorkspace workspace = {}) {
  RowLosses<DQ> result;
  hard_negative_rows(Q, P, N, scale, options, result, workspace.get());
  return result;
}

}  // namespace contrastive

#endif  // CONTRASTIVE_HARD_NEGATIVES_HPP
