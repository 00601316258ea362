// NT-Xent: two views of each item, each to be told from all other views of the batch.
#ifndef CONTRASTIVE_NT_XENT_HPP
#define CONTRASTIVE_NT_XENT_HPP

#include <Eigen/Core>

#include "detail/nt_xent_loss.hpp"
#include "detail/view.hpp"
#include "options.hpp"
#include "results.hpp"
#include "temperature.hpp"
#include "workspace.hpp"

namespace contrastive {

/// NT-Xent, the loss of SimCLR: each of 2B views picks the other view of its own item.
///
///     Z    = [Za; Zb] (2B x d)                p(i) = i + B for i < B, else i - B
///     s_ij = scale c_ij                       c_ij = zn_i . zn_j with zn = z / |z| (or z_i . z_j)
///     L_i  = log sum_j e^(s_ij) - s_i,p(i)    j over all rows but i
///     L    = sum_i w_i L_i                    w_i = 1/2B, or weights of i's item / 2 sum(weights)
///
///     A_ij = e^(s_ij) / sum_k e^(s_ik)        G_ij = dL/ds_ij = w_i (A_ij - [j = p(i)]), G_ii = 0
///     dzn_i = scale sum_j (G_ij + G_ji) zn_j
///     dz_i = (dzn_i - zn_i (zn_i . dzn_i)) / |z_i| (cosine)
///     d_log_scale = sum_ij G_ij scale (c_ij - positive_margin [j = p(i)])
///                                             (0 beyond max_scale, see LogScale)
///
/// Ids and weights are those of the B items and serve both views; the further options change L_i as
/// in info_nce_loss_grad. A row whose positive is its only candidate (B = 1, or ids rule out all
/// others) has loss and gradient 0.
///
/// @param Za       one view of each item (B x d), one embedding a row, finite.
/// @param Zb       the other (B x d).
/// @param scale    Temperature (SimCLR: 0.5), or LogScale for a learned one.
/// @param options  similarity, query_ids, pos_ids, weights, label_smoothing, positive_margin,
///                 decoupled, false_negative_margin.
/// @return loss in nats, dZa and dZb (B x d), with a LogScale d_log_scale.
/// @throws as info_nce_loss_grad; std::invalid_argument if log_prior is given.
/// @par Accuracy
/// as info_nce_loss_grad.
/// @par Complexity
/// S is symmetric: of three products of 2 (2B)^2 d operations half is computed (the value alone: a
/// sixth), and two thirds where exponentials do not fit the workspace's budget. Memory beyond
/// inputs and outputs: 6 B d scalars, strips in parts of at most 4 MiB, and the budget.
/// @see Chen, Kornblith, Norouzi, Hinton, "A Simple Framework for Contrastive Learning of Visual
///      Representations", 2020, arXiv:2002.05709, equation 1.
template <class DA, class DB, class Scale>
void nt_xent_loss_grad(const Eigen::MatrixBase<DA>& Za, const Eigen::MatrixBase<DB>& Zb,
                       const Scale& scale, const SoftmaxOptions& options,
                       NtXentGradient<DA, DB, Scale>& result, Workspace& workspace) {
  detail::require_same_scalar<DA, DB>();
  const detail::Bound<DA> za(Za);
  const detail::Bound<DB> zb(Zb);
  detail::NtXentLoss<typename DA::Scalar> core("nt_xent_loss_grad", za.view(), zb.view(),
                                               detail::ScaleArgument(scale), options, true,
                                               workspace);
  result.loss = core.loss();
  core.write(detail::resized(result.dZa, Za.rows(), Za.cols()),
             detail::resized(result.dZb, Zb.rows(), Zb.cols()));
  if constexpr (detail::is_learned<Scale>) result.d_log_scale = core.d_log_scale();
}

/// The same, returned.
template <class DA, class DB, class Scale>
[[nodiscard]] NtXentGradient<DA, DB, Scale> nt_xent_loss_grad(const Eigen::MatrixBase<DA>& Za,
                                                              const Eigen::MatrixBase<DB>& Zb,
                                                              const Scale& scale,
                                                              const SoftmaxOptions& options = {},
                                                              OptionalWorkspace workspace = {}) {
  NtXentGradient<DA, DB, Scale> result;
  nt_xent_loss_grad(Za, Zb, scale, options, result, workspace.get());
  return result;
}

/// The value alone, for half a product instead of one and a half.
template <class DA, class DB, class Scale>
[[nodiscard]] typename DA::Scalar nt_xent_loss(const Eigen::MatrixBase<DA>& Za,
                                               const Eigen::MatrixBase<DB>& Zb, const Scale& scale,
                                               const SoftmaxOptions& options = {},
                                               OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DA, DB>();
  const detail::Bound<DA> za(Za);
  const detail::Bound<DB> zb(Zb);
  return detail::NtXentLoss<typename DA::Scalar>("nt_xent_loss", za.view(), zb.view(),
                                                 detail::ScaleArgument(scale), options, false,
                                                 workspace.get())
      .loss();
}

/// Each row's loss L_i (2B: those of Za's rows, then those of Zb's), unweighted.
///
/// @throws as nt_xent_loss; std::invalid_argument if weights are given.
template <class DA, class DB, class Scale>
void nt_xent_rows(const Eigen::MatrixBase<DA>& Za, const Eigen::MatrixBase<DB>& Zb,
                  const Scale& scale, const SoftmaxOptions& options, RowLosses<DA>& result,
                  Workspace& workspace) {
  detail::require_same_scalar<DA, DB>();
  const char* function = "nt_xent_rows";
  const detail::Bound<DA> za(Za);
  const detail::Bound<DB> zb(Zb);
  detail::refuse_weights(function, options);
  const detail::NtXentLoss<typename DA::Scalar> core(
      function, za.view(), zb.view(), detail::ScaleArgument(scale), options, false, workspace);
  core.write_rows(detail::resized(result, 2 * Za.rows(), 1));
}

/// The same, returned.
template <class DA, class DB, class Scale>
[[nodiscard]] RowLosses<DA> nt_xent_rows(const Eigen::MatrixBase<DA>& Za,
                                         const Eigen::MatrixBase<DB>& Zb, const Scale& scale,
                                         const SoftmaxOptions& options = {},
                                         OptionalWorkspace workspace = {}) {
  RowLosses<DA> result;
  nt_xent_rows(Za, Zb, scale, options, result, workspace.get());
  return result;
}

}  // namespace contrastive

#endif  // CONTRASTIVE_NT_XENT_HPP
