// InfoNCE: each query picks its own positive out of the batch.
#ifndef CONTRASTIVE_INFO_NCE_HPP
#define CONTRASTIVE_INFO_NCE_HPP

#include <Eigen/Core>

#include "detail/logits_loss.hpp"
#include "detail/row_loss.hpp"
#include "detail/view.hpp"
#include "options.hpp"
#include "results.hpp"
#include "temperature.hpp"
#include "workspace.hpp"

namespace contrastive {

/// InfoNCE: the cross-entropy of finding each query's positive among the batch's.
///
///     s_ij = scale c_ij                       c_ij = qn_i . pn_j with xn = x / |x| (or q_i . p_j)
///     L_i  = log sum_j e^(s_ij) - s_ii
///     L    = sum_i w_i L_i                    w_i = 1/B, or weights_i / sum(weights)
///
///     A_ij = e^(s_ij) / sum_k e^(s_ik)        G_ij = dL/ds_ij = w_i (A_ij - [i = j])
///     dqn_i = scale sum_j G_ij pn_j            dpn_j = scale sum_i G_ij qn_i
///     dq_i = (dqn_i - qn_i (qn_i . dqn_i)) / |q_i|, dp_j likewise (cosine)
///     d_log_scale = sum_ij G_ij s_ij          (0 beyond max_scale, see LogScale)
///
/// j goes over row i's candidates: i itself and the other rows of P, without those that query_ids
/// or pos_ids rule out. A row without another candidate has loss and gradient 0. Rows need not be
/// normalised.
///
/// With label_smoothing e, positive_margin m, log_prior and false_negative_margin f, n_i
/// candidates:
///
///     s_ij = scale c_ij - prior_j              s_ii = scale (c_ii - m) - prior_i
///     L_i  = log sum_j e^(s_ij) - s_ii + e mean_j (s_ii - s_ij)
///     G_ij = w_i (A_ij - [i = j] - e (1/n_i - [i = j]))
///     d_log_scale = sum_ij G_ij scale (c_ij - m [i = j])
///
/// j of c_ij > c_ii - f is no candidate, and has G_ij = 0; a j that equals the positive to the last
/// bit is one at f = 0. Decoupled, i is left out of the log-sum-exp: A_ii = 0, L_i may be negative,
/// and a row that f leaves no negative has loss and gradient 0.
///
/// @param Q        queries (B x d), one embedding a row, finite.
/// @param P        positives (B x d); row i is the positive of query i.
/// @param scale    Temperature, or LogScale for a learned one, which adds d_log_scale.
/// @param options  similarity, query_ids, pos_ids, weights, label_smoothing, positive_margin,
///     decoupled, log_prior, false_negative_margin.
/// @return loss in nats, dQ and dP (B x d), with a LogScale d_log_scale.
/// @throws std::invalid_argument if shapes differ or are empty; the temperature is not positive and
///     finite, or the scale overflows; an option for extra negatives is given; a list is not B
///     long; weights are negative, not finite or sum to 0; label_smoothing is outside [0, 1]; a
///     margin or a prior is not finite; decoupled a row has no negative by B and ids; Q or P is not
///     finite, or has a zero row under cosine.
/// @throws std::overflow_error if a logit (a dot product of huge rows, a margin, a prior) overflows
///     the scalar type.
/// @par Accuracy
/// Losses of 1e-20 keep their digits (decoupled or with smoothed labels they are differences of
/// logits, and have their errors), relative to the error of a logit, which in float is about
/// scale 2^-24. Gradients are, relative to their largest entry, within 1e-12 in double and
/// max(1e-5, 4 scale 2^-24) in float; where what pulls and what pushes nearly cancel (rows that are
/// almost parallel, an encoder that has collapsed), relative to the terms scale G_ij pn_j / |q_i|
/// instead. The gradient of a row shorter than the smallest normal number
/// may overflow to infinity.
/// @par Complexity
/// 3 products of 2 B B d operations, 4 where B is so large that 48 MiB hold less than 64 rows
/// of logits (the value alone: 1). Memory beyond inputs and outputs: 5 B d scalars and a
/// strip of at most 48 MiB.
/// @see van den Oord, Li, Vinyals, "Representation Learning with Contrastive Predictive Coding",
///      2018, arXiv:1807.03748, equation 4.
template <class DQ, class DP, class Scale>
void info_nce_loss_grad(const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DP>& P,
                        const Scale& scale, const SoftmaxOptions& options,
                        InfoNceGradient<DQ, DP, Scale>& result, Workspace& workspace) {
  detail::require_same_scalar<DQ, DP>();
  const char* function = "info_nce_loss_grad";
  const detail::Bound<DQ> q(Q);
  const detail::Bound<DP> p(P);
  detail::RowLoss<typename DQ::Scalar> core(function, q.view(), p.view(),
                                            detail::ScaleArgument(scale), options, true, workspace);
  result.loss = core.loss();
  core.write(detail::resized(result.dQ, Q.rows(), Q.cols()),
             detail::resized(result.dP, P.rows(), P.cols()));
  if constexpr (detail::is_learned<Scale>) result.d_log_scale = core.d_log_scale();
}

/// The same, returned.
template <class DQ, class DP, class Scale>
[[nodiscard]] InfoNceGradient<DQ, DP, Scale> info_nce_loss_grad(const Eigen::MatrixBase<DQ>& Q,
                                                                const Eigen::MatrixBase<DP>& P,
                                                                const Scale& scale,
                                                                const SoftmaxOptions& options = {},
                                                                OptionalWorkspace workspace = {}) {
  InfoNceGradient<DQ, DP, Scale> result;
  info_nce_loss_grad(Q, P, scale, options, result, workspace.get());
  return result;
}

/// The value alone, for one product instead of three.
template <class DQ, class DP, class Scale>
[[nodiscard]] typename DQ::Scalar info_nce_loss(const Eigen::MatrixBase<DQ>& Q,
                                                const Eigen::MatrixBase<DP>& P, const Scale& scale,
                                                const SoftmaxOptions& options = {},
                                                OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DQ, DP>();
  const char* function = "info_nce_loss";
  const detail::Bound<DQ> q(Q);
  const detail::Bound<DP> p(P);
  return detail::RowLoss<typename DQ::Scalar>(function, q.view(), p.view(),
                                              detail::ScaleArgument(scale), options, false,
                                              workspace.get())
      .loss();
}

/// Each row's loss: L_i of info_nce_loss, unweighted, for one product. Their mean is the loss.
///
/// @param options  as info_nce_loss, but no weights.
/// @return L (B), nats.
/// @throws as info_nce_loss_grad; std::invalid_argument if there are weights.
template <class DQ, class DP, class Scale>
void info_nce_rows(const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DP>& P,
                   const Scale& scale, const SoftmaxOptions& options, RowLosses<DQ>& result,
                   Workspace& workspace) {
  detail::require_same_scalar<DQ, DP>();
  const char* function = "info_nce_rows";
  const detail::Bound<DQ> q(Q);
  const detail::Bound<DP> p(P);
  detail::refuse_weights(function, options);
  const detail::RowLoss<typename DQ::Scalar> core(
      function, q.view(), p.view(), detail::ScaleArgument(scale), options, false, workspace);
  core.write_rows(detail::resized(result, Q.rows(), 1));
}

/// The same, returned.
template <class DQ, class DP, class Scale>
[[nodiscard]] RowLosses<DQ> info_nce_rows(const Eigen::MatrixBase<DQ>& Q,
                                          const Eigen::MatrixBase<DP>& P, const Scale& scale,
                                          const SoftmaxOptions& options = {},
                                          OptionalWorkspace workspace = {}) {
  RowLosses<DQ> result;
  info_nce_rows(Q, P, scale, options, result, workspace.get());
  return result;
}

/// InfoNCE of logits from any critic: the rows of S in place of scale * cosines.
///
///     L    = sum_i w_i (log sum_j e^(s_ij) - s_ii)
///     A_ij = e^(s_ij) / sum_k e^(s_ik)        dL/ds_ij = w_i (A_ij - [i = j])
///
/// @param S        logits (B x B), finite; s_ii is the positive of row i.
/// @param options  query_ids, pos_ids, weights, label_smoothing, decoupled, log_prior, as in
///     info_nce_loss; there are no similarities for the margins to be of.
/// @return loss in nats, dS (B x B).
/// @throws std::invalid_argument if S is empty, not square or not finite, an option makes no sense
///     for logits, or a list is not B long.
/// @throws std::overflow_error if a logit is beyond an eighth of the scalar type's range.
/// @par Accuracy
/// 1e-12 in double and 1e-5 in float, relative to the largest entry.
/// @par Complexity
/// O(B B); memory beyond S and dS: a strip of at most 48 MiB.
template <class DS>
void info_nce_logits_loss_grad(const Eigen::MatrixBase<DS>& S, const SoftmaxOptions& options,
                               LogitsGradient<DS>& result, Workspace& workspace) {
  detail::require_same_scalar<DS>();
  const detail::Bound<DS> s(S);
  using T = typename DS::Scalar;
  detail::LogitsLoss<T> core("info_nce_logits_loss_grad", s.view(), options, workspace);
  core.gradient_to(detail::resized(result.dS, S.rows(), S.cols()));
  result.loss = T(core.info_nce());
}

template <class DS>
void info_nce_logits_loss_grad(const Eigen::MatrixBase<DS>& S, LogitsGradient<DS>& result,
                               Workspace& workspace) {
  info_nce_logits_loss_grad(S, SoftmaxOptions{}, result, workspace);
}

/// The same, returned.
template <class DS>
[[nodiscard]] LogitsGradient<DS> info_nce_logits_loss_grad(const Eigen::MatrixBase<DS>& S,
                                                           const SoftmaxOptions& options = {},
                                                           OptionalWorkspace workspace = {}) {
  LogitsGradient<DS> result;
  info_nce_logits_loss_grad(S, options, result, workspace.get());
  return result;
}

template <class DS>
[[nodiscard]] LogitsGradient<DS> info_nce_logits_loss_grad(const Eigen::MatrixBase<DS>& S,
                                                           Workspace& workspace) {
  return info_nce_logits_loss_grad(S, SoftmaxOptions{}, workspace);
}

/// The value alone.
template <class DS>
[[nodiscard]] typename DS::Scalar info_nce_logits_loss(const Eigen::MatrixBase<DS>& S,
                                                       const SoftmaxOptions& options = {},
                                                       OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DS>();
  const detail::Bound<DS> s(S);
  using T = typename DS::Scalar;
  return T(
      detail::LogitsLoss<T>("info_nce_logits_loss", s.view(), options, workspace.get()).info_nce());
}

template <class DS>
[[nodiscard]] typename DS::Scalar info_nce_logits_loss(const Eigen::MatrixBase<DS>& S,
                                                       Workspace& workspace) {
  return info_nce_logits_loss(S, SoftmaxOptions{}, workspace);
}

}  // namespace contrastive

#endif  // CONTRASTIVE_INFO_NCE_HPP
