// CLIP's symmetric loss: each query picks its positive, and each positive its query.
#ifndef CONTRASTIVE_CLIP_HPP
#define CONTRASTIVE_CLIP_HPP

#include <Eigen/Core>

#include "detail/logits_loss.hpp"
#include "detail/pair_losses.hpp"
#include "detail/view.hpp"
#include "options.hpp"
#include "results.hpp"
#include "temperature.hpp"
#include "workspace.hpp"

namespace contrastive {

/// CLIP's loss: half of InfoNCE over the rows of the logits and half over their columns.
///
///     s_ij = scale c_ij                       c_ij = qn_i . pn_j with xn = x / |x| (or q_i . p_j)
///     L    = 1/2 sum_i w_i (log sum_j e^(s_ij) - s_ii) + 1/2 sum_j w_j (log sum_i e^(s_ij) - s_jj)
///
///     A_ij = e^(s_ij) / sum_k e^(s_ik)        Abar_ij = e^(s_ij) / sum_k e^(s_kj)
///     G_ij = dL/ds_ij = 1/2 w_i (A_ij - [i = j]) + 1/2 w_j (Abar_ij - [i = j])
///     dqn_i = scale sum_j G_ij pn_j            dpn_j = scale sum_i G_ij qn_i
///     dq_i = (dqn_i - qn_i (qn_i . dqn_i)) / |q_i|, dp_j likewise (cosine)
///     d_log_scale = sum_ij G_ij s_ij          (0 beyond max_scale, see LogScale)
///
/// w_i = 1/B, or weights_i / sum(weights), in both directions. A pair that query_ids or pos_ids
/// rule out is left out of its row and of its column. Rows need not be normalised.
///
/// label_smoothing, positive_margin, decoupled, log_prior and false_negative_margin are as in
/// info_nce_loss, for rows and columns. The prior of j is taken off column j of S, so it cancels in
/// the columns. False negatives of a column are measured from c_jj, so a row and a column may
/// differ about the same pair.
///
/// @param Q        queries (B x d), images for instance, one embedding a row, finite.
/// @param P        positives (B x d), their captions; row i is the positive of query i.
/// @param scale    LogScale for CLIP's learned temperature, or Temperature.
/// @param options  similarity, query_ids, pos_ids, weights, label_smoothing, positive_margin,
///     decoupled, log_prior, false_negative_margin.
/// @return loss in nats, dQ and dP (B x d), with a LogScale d_log_scale.
/// @throws as info_nce_loss_grad.
/// @par Accuracy
/// as info_nce_loss_grad.
/// @par Complexity
/// 4 products of 2 B B d operations, or 3 where the logits fit the workspace's budget (the value
/// alone: 1). Memory beyond inputs and outputs: 5 B d scalars, strips in parts of at most 4 MiB,
/// and the budget. The budget does not change a bit of the result.
/// @see Radford et al., "Learning Transferable Visual Models From Natural Language Supervision",
///      2021, arXiv:2103.00020, figure 3.
template <class DQ, class DP, class Scale>
void clip_loss_grad(const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DP>& P,
                    const Scale& scale, const SoftmaxOptions& options,
                    ClipGradient<DQ, DP, Scale>& result, Workspace& workspace) {
  detail::require_same_scalar<DQ, DP>();
  const char* function = "clip_loss_grad";
  const detail::Bound<DQ> q(Q);
  const detail::Bound<DP> p(P);
  detail::ClipLoss<typename DQ::Scalar> core(
      function, q.view(), p.view(), detail::ScaleArgument(scale), options, true, workspace);
  result.loss = core.loss();
  core.write(detail::resized(result.dQ, Q.rows(), Q.cols()),
             detail::resized(result.dP, P.rows(), P.cols()));
  if constexpr (detail::is_learned<Scale>) result.d_log_scale = core.d_log_scale();
}

/// The same, returned.
template <class DQ, class DP, class Scale>
[[nodiscard]] ClipGradient<DQ, DP, Scale> clip_loss_grad(const Eigen::MatrixBase<DQ>& Q,
                                                         const Eigen::MatrixBase<DP>& P,
                                                         const Scale& scale,
                                                         const SoftmaxOptions& options = {},
                                                         OptionalWorkspace workspace = {}) {
  ClipGradient<DQ, DP, Scale> result;
  clip_loss_grad(Q, P, scale, options, result, workspace.get());
  return result;
}

/// The value alone, for one product.
template <class DQ, class DP, class Scale>
[[nodiscard]] typename DQ::Scalar clip_loss(const Eigen::MatrixBase<DQ>& Q,
                                            const Eigen::MatrixBase<DP>& P, const Scale& scale,
                                            const SoftmaxOptions& options = {},
                                            OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DQ, DP>();
  const char* function = "clip_loss";
  const detail::Bound<DQ> q(Q);
  const detail::Bound<DP> p(P);
  return detail::ClipLoss<typename DQ::Scalar>(function, q.view(), p.view(),
                                               detail::ScaleArgument(scale), options, false,
                                               workspace.get())
      .loss();
}

/// Each pair's loss: half of row i's and half of column i's, unweighted, for one product. Their
/// mean is the loss.
///
///     L_i = 1/2 (log sum_j e^(s_ij) - s_ii) + 1/2 (log sum_j e^(s_ji) - s_ii)
///
/// @param options  as clip_loss, but no weights.
/// @return L (B), nats.
/// @throws as clip_loss_grad; std::invalid_argument if there are weights.
template <class DQ, class DP, class Scale>
void clip_rows(const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DP>& P, const Scale& scale,
               const SoftmaxOptions& options, RowLosses<DQ>& result, Workspace& workspace) {
  detail::require_same_scalar<DQ, DP>();
  const char* function = "clip_rows";
  const detail::Bound<DQ> q(Q);
  const detail::Bound<DP> p(P);
  detail::refuse_weights(function, options);
  const detail::ClipLoss<typename DQ::Scalar> core(
      function, q.view(), p.view(), detail::ScaleArgument(scale), options, false, workspace);
  core.write_rows(detail::resized(result, Q.rows(), 1));
}

/// The same, returned.
template <class DQ, class DP, class Scale>
[[nodiscard]] RowLosses<DQ> clip_rows(const Eigen::MatrixBase<DQ>& Q,
                                      const Eigen::MatrixBase<DP>& P, const Scale& scale,
                                      const SoftmaxOptions& options = {},
                                      OptionalWorkspace workspace = {}) {
  RowLosses<DQ> result;
  clip_rows(Q, P, scale, options, result, workspace.get());
  return result;
}

/// CLIP's loss of logits from any critic.
///
///     L = 1/2 sum_i w_i (log sum_j e^(s_ij) - s_ii) + 1/2 sum_j w_j (log sum_i e^(s_ij) - s_jj)
///     dL/ds_ij = 1/2 w_i (A_ij - [i = j]) + 1/2 w_j (Abar_ij - [i = j]), A and Abar as above
///
/// @param S        logits (B x B), finite; s_ii is the positive of row i and of column i.
/// @param options  query_ids, pos_ids, weights, label_smoothing, decoupled, log_prior.
/// @return loss in nats, dS (B x B).
/// @throws as info_nce_logits_loss_grad.
/// @par Accuracy
/// 1e-12 in double and 1e-5 in float, relative to the largest entry.
/// @par Complexity
/// O(B B); memory beyond S and dS: strips in parts of at most 4 MiB, and the workspace's budget.
template <class DS>
void clip_logits_loss_grad(const Eigen::MatrixBase<DS>& S, const SoftmaxOptions& options,
                           LogitsGradient<DS>& result, Workspace& workspace) {
  detail::require_same_scalar<DS>();
  const detail::Bound<DS> s(S);
  using T = typename DS::Scalar;
  detail::LogitsLoss<T> core("clip_logits_loss_grad", s.view(), options, workspace);
  core.gradient_to(detail::resized(result.dS, S.rows(), S.cols()));
  result.loss = T(core.clip());
}

template <class DS>
void clip_logits_loss_grad(const Eigen::MatrixBase<DS>& S, LogitsGradient<DS>& result,
                           Workspace& workspace) {
  clip_logits_loss_grad(S, SoftmaxOptions{}, result, workspace);
}

/// The same, returned.
template <class DS>
[[nodiscard]] LogitsGradient<DS> clip_logits_loss_grad(const Eigen::MatrixBase<DS>& S,
                                                       const SoftmaxOptions& options = {},
                                                       OptionalWorkspace workspace = {}) {
  LogitsGradient<DS> result;
  clip_logits_loss_grad(S, options, result, workspace.get());
  return result;
}

template <class DS>
[[nodiscard]] LogitsGradient<DS> clip_logits_loss_grad(const Eigen::MatrixBase<DS>& S,
                                                       Workspace& workspace) {
  return clip_logits_loss_grad(S, SoftmaxOptions{}, workspace);
}

/// The value alone.
template <class DS>
[[nodiscard]] typename DS::Scalar clip_logits_loss(const Eigen::MatrixBase<DS>& S,
                                                   const SoftmaxOptions& options = {},
                                                   OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DS>();
  const detail::Bound<DS> s(S);
  using T = typename DS::Scalar;
  return T(detail::LogitsLoss<T>("clip_logits_loss", s.view(), options, workspace.get()).clip());
}

template <class DS>
[[nodiscard]] typename DS::Scalar clip_logits_loss(const Eigen::MatrixBase<DS>& S,
                                                   Workspace& workspace) {
  return clip_logits_loss(S, SoftmaxOptions{}, workspace);
}

}  // namespace contrastive

#endif  // CONTRASTIVE_CLIP_HPP
