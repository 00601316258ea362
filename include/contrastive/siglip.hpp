// SigLIP: every pair of the batch is a binary problem of its own.
#ifndef CONTRASTIVE_SIGLIP_HPP
#define CONTRASTIVE_SIGLIP_HPP

#include <Eigen/Core>

#include "detail/logits_loss.hpp"
#include "detail/pair_losses.hpp"
#include "detail/view.hpp"
#include "options.hpp"
#include "results.hpp"
#include "temperature.hpp"
#include "workspace.hpp"

namespace contrastive {

/// The sigmoid loss: is row j of P the partner of row i of Q?
///
///     s_ij = scale c_ij                       c_ij = qn_i . pn_j with xn = x / |x| (or q_i . p_j)
///     x_ij = s_ij + bias                      z_ij = 1 where i = j, else -1
///     L    = sum_i w_i sum_j softplus(-z_ij x_ij)
///     softplus(x) = log(1 + e^x) = -log sigmoid(-x),   sigmoid(x) = 1 / (1 + e^-x)
///
///     G_ij = dL/ds_ij = -w_i z_ij sigmoid(-z_ij x_ij)
///     dqn_i = scale sum_j G_ij pn_j            dpn_j = scale sum_i G_ij qn_i
///     dq_i = (dqn_i - qn_i (qn_i . dqn_i)) / |q_i|, dp_j likewise (cosine)
///     d_log_scale = sum_ij G_ij s_ij (0 beyond max_scale)      d_bias = sum_ij G_ij
///
/// w_i = 1/B (not 1/B^2), or weights_i / sum(weights). Pairs that query_ids or pos_ids rule out are
/// left out of the sum; 1/B stays. The paper starts from alpha = log 10 and bias = -10.
///
/// @param Q        queries (B x d), one embedding a row, finite.
/// @param P        positives (B x d); row i is the positive of query i.
/// @param scale    LogScale{alpha, no_limit} for the paper's learned scale, or Temperature.
/// @param bias     added to every logit.
/// @param options  similarity, query_ids, pos_ids, weights.
/// @return loss in nats, dQ and dP (B x d), with a LogScale d_log_scale, d_bias.
/// @throws as info_nce_loss_grad; std::invalid_argument if the bias is not finite.
/// @par Accuracy
/// as info_nce_loss_grad; sigmoid and softplus neither overflow nor cancel.
/// @par Complexity
/// 3 products of 2 B B d operations (the value alone: 1). Memory beyond inputs and outputs: 5 B d
/// scalars and strips in parts of at most 4 MiB.
/// @see Zhai, Mustafa, Kolesnikov, Beyer, "Sigmoid Loss for Language Image Pre-Training", 2023,
///      arXiv:2303.15343, algorithm 1.
template <class DQ, class DP, class Scale>
void siglip_loss_grad(const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DP>& P,
                      const Scale& scale, double bias, const SigLipOptions& options,
                      SigLipGradient<DQ, DP, Scale>& result, Workspace& workspace) {
  detail::require_same_scalar<DQ, DP>();
  const char* function = "siglip_loss_grad";
  const detail::Bound<DQ> q(Q);
  const detail::Bound<DP> p(P);
  detail::SigLipLoss<typename DQ::Scalar> core(
      function, q.view(), p.view(), detail::ScaleArgument(scale), bias, options, true, workspace);
  result.loss = core.loss();
  core.write(detail::resized(result.dQ, Q.rows(), Q.cols()),
             detail::resized(result.dP, P.rows(), P.cols()));
  if constexpr (detail::is_learned<Scale>) result.d_log_scale = core.d_log_scale();
  result.d_bias = core.d_bias();
}

/// The same, returned.
template <class DQ, class DP, class Scale>
[[nodiscard]] SigLipGradient<DQ, DP, Scale> siglip_loss_grad(const Eigen::MatrixBase<DQ>& Q,
                                                             const Eigen::MatrixBase<DP>& P,
                                                             const Scale& scale, double bias,
                                                             const SigLipOptions& options = {},
                                                             OptionalWorkspace workspace = {}) {
  SigLipGradient<DQ, DP, Scale> result;
  siglip_loss_grad(Q, P, scale, bias, options, result, workspace.get());
  return result;
}

/// The value alone, for one product instead of three.
template <class DQ, class DP, class Scale>
[[nodiscard]] typename DQ::Scalar siglip_loss(const Eigen::MatrixBase<DQ>& Q,
                                              const Eigen::MatrixBase<DP>& P, const Scale& scale,
                                              double bias, const SigLipOptions& options = {},
                                              OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DQ, DP>();
  const char* function = "siglip_loss";
  const detail::Bound<DQ> q(Q);
  const detail::Bound<DP> p(P);
  return detail::SigLipLoss<typename DQ::Scalar>(function, q.view(), p.view(),
                                                 detail::ScaleArgument(scale), bias, options, false,
                                                 workspace.get())
      .loss();
}

/// Each row's loss, unweighted, for one product. Their mean is the loss.
///
///     L_i = sum_j softplus(-z_ij (s_ij + bias))
///
/// @param options  as siglip_loss, but no weights.
/// @return L (B), nats.
/// @throws as siglip_loss_grad; std::invalid_argument if there are weights.
template <class DQ, class DP, class Scale>
void siglip_rows(const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DP>& P, const Scale& scale,
                 double bias, const SigLipOptions& options, RowLosses<DQ>& result,
                 Workspace& workspace) {
  detail::require_same_scalar<DQ, DP>();
  const char* function = "siglip_rows";
  const detail::Bound<DQ> q(Q);
  const detail::Bound<DP> p(P);
  detail::refuse_weights(function, options);
  const detail::SigLipLoss<typename DQ::Scalar> core(
      function, q.view(), p.view(), detail::ScaleArgument(scale), bias, options, false, workspace);
  core.write_rows(detail::resized(result, Q.rows(), 1));
}

/// The same, returned.
template <class DQ, class DP, class Scale>
[[nodiscard]] RowLosses<DQ> siglip_rows(const Eigen::MatrixBase<DQ>& Q,
                                        const Eigen::MatrixBase<DP>& P, const Scale& scale,
                                        double bias, const SigLipOptions& options = {},
                                        OptionalWorkspace workspace = {}) {
  RowLosses<DQ> result;
  siglip_rows(Q, P, scale, bias, options, result, workspace.get());
  return result;
}

/// The sigmoid loss of logits from any critic.
///
///     L        = sum_i w_i sum_j softplus(-z_ij (s_ij + bias))
///     dL/ds_ij = -w_i z_ij sigmoid(-z_ij (s_ij + bias))
///
/// @param S        logits (B x B), finite; s_ii is the pair of row i.
/// @param bias     added to every logit.
/// @param options  query_ids, pos_ids, weights.
/// @return loss in nats, dS (B x B), d_bias.
/// @throws as info_nce_logits_loss_grad; std::invalid_argument if the bias is not finite.
/// @par Accuracy
/// 1e-12 in double and 1e-5 in float, relative to the largest entry.
/// @par Complexity
/// O(B B); memory beyond S and dS: strips in parts of at most 4 MiB.
template <class DS>
void siglip_logits_loss_grad(const Eigen::MatrixBase<DS>& S, double bias,
                             const SigLipOptions& options, SigLipLogitsGradient<DS>& result,
                             Workspace& workspace) {
  detail::require_same_scalar<DS>();
  const detail::Bound<DS> s(S);
  using T = typename DS::Scalar;
  detail::LogitsLoss<T> core("siglip_logits_loss_grad", s.view(), bias, options, workspace);
  core.gradient_to(detail::resized(result.dS, S.rows(), S.cols()));
  const auto sums = core.siglip();
  result.loss = T(sums.loss);
  result.d_bias = T(sums.d_bias);
}

template <class DS>
void siglip_logits_loss_grad(const Eigen::MatrixBase<DS>& S, double bias,
                             SigLipLogitsGradient<DS>& result, Workspace& workspace) {
  siglip_logits_loss_grad(S, bias, SigLipOptions{}, result, workspace);
}

/// The same, returned.
template <class DS>
[[nodiscard]] SigLipLogitsGradient<DS> siglip_logits_loss_grad(const Eigen::MatrixBase<DS>& S,
                                                               double bias,
                                                               const SigLipOptions& options = {},
                                                               OptionalWorkspace workspace = {}) {
  SigLipLogitsGradient<DS> result;
  siglip_logits_loss_grad(S, bias, options, result, workspace.get());
  return result;
}

template <class DS>
[[nodiscard]] SigLipLogitsGradient<DS> siglip_logits_loss_grad(const Eigen::MatrixBase<DS>& S,
                                                               double bias, Workspace& workspace) {
  return siglip_logits_loss_grad(S, bias, SigLipOptions{}, workspace);
}

/// The value alone.
template <class DS>
[[nodiscard]] typename DS::Scalar siglip_logits_loss(const Eigen::MatrixBase<DS>& S, double bias,
                                                     const SigLipOptions& options = {},
                                                     OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DS>();
  const detail::Bound<DS> s(S);
  using T = typename DS::Scalar;
  return T(detail::LogitsLoss<T>("siglip_logits_loss", s.view(), bias, options, workspace.get())
               .siglip()
               .loss);
}

template <class DS>
[[nodiscard]] typename DS::Scalar siglip_logits_loss(const Eigen::MatrixBase<DS>& S, double bias,
                                                     Workspace& workspace) {
  return siglip_logits_loss(S, bias, SigLipOptions{}, workspace);
}

}  // namespace contrastive

#endif  // CONTRASTIVE_SIGLIP_HPP
