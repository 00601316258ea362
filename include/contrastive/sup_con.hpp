// SupCon: rows of one class attract each other, all others repel.
#ifndef CONTRASTIVE_SUP_CON_HPP
#define CONTRASTIVE_SUP_CON_HPP

#include <Eigen/Core>

#include "detail/sup_con_loss.hpp"
#include "detail/view.hpp"
#include "labels.hpp"
#include "options.hpp"
#include "results.hpp"
#include "temperature.hpp"
#include "workspace.hpp"

namespace contrastive {

/// The supervised contrastive loss, in its form L_out (the mean stands outside of the logarithm).
///
///     s_ij = scale c_ij                       c_ij = zn_i . zn_j with zn = z / |z| (or z_i . z_j)
///     P_i  = the other rows with i's label, m_i of them
///     L_i  = log sum_a e^(s_ia) - 1/m_i sum_p s_ip        a over all rows but i, p over P_i
///     L    = sum_i w_i L_i                    w_i = 1 / number of anchors, or by weights
///
///     A_ia = e^(s_ia) / sum_b e^(s_ib)        G_ia = dL/ds_ia = w_i (A_ia - [a in P_i] / m_i)
///     dzn_i = scale sum_j (G_ij + G_ji) zn_j
///     dz_i = (dzn_i - zn_i (zn_i . dzn_i)) / |z_i| (cosine)
///     d_log_scale = sum_ia G_ia s_ia          (0 beyond max_scale, see LogScale)
///
/// A row without a positive is no anchor: it is left out of the mean, and stays a negative of the
/// others. Without an anchor, or where those have no weight, loss and gradient are 0. For two views
/// of each item put both into Z, under one label.
///
/// @param Z        embeddings (N x d), one a row, finite.
/// @param labels   N integers of any type: a std::vector or an Eigen vector.
/// @param scale    Temperature (the paper: 0.1), or LogScale for a learned one.
/// @param options  similarity, weights (of anchors).
/// @return loss in nats, dZ (N x d), with a LogScale d_log_scale.
/// @throws std::invalid_argument if Z is empty; labels are not N; the temperature is not positive
///     and finite, or the scale overflows; another option is given; weights are not N long,
///     negative, not finite or sum to 0; Z is not finite, or has a zero row under cosine.
/// @throws std::overflow_error if a logit overflows the scalar type.
/// @par Accuracy
/// as info_nce_loss_grad; with one positive a row a loss of 1e-20 keeps its digits.
/// @par Complexity
/// as nt_xent_loss_grad with 2B = N, and O(N log N) for the labels.
/// @see Khosla et al., "Supervised Contrastive Learning", 2020, arXiv:2004.11362, equation 2.
template <class DZ, class Scale>
void sup_con_loss_grad(const Eigen::MatrixBase<DZ>& Z, const Labels& labels, const Scale& scale,
                       const SoftmaxOptions& options, SupConGradient<DZ, Scale>& result,
                       Workspace& workspace) {
  detail::require_same_scalar<DZ>();
  const detail::Bound<DZ> z(Z);
  detail::SupConLoss<typename DZ::Scalar> core("sup_con_loss_grad", z.view(), labels,
                                               detail::ScaleArgument(scale), options, true,
                                               workspace);
  result.loss = core.loss();
  core.write(detail::resized(result.dZ, Z.rows(), Z.cols()), {});
  if constexpr (detail::is_learned<Scale>) result.d_log_scale = core.d_log_scale();
}

/// The same, returned.
template <class DZ, class Scale>
[[nodiscard]] SupConGradient<DZ, Scale> sup_con_loss_grad(const Eigen::MatrixBase<DZ>& Z,
                                                          const Labels& labels, const Scale& scale,
                                                          const SoftmaxOptions& options = {},
                                                          OptionalWorkspace workspace = {}) {
  SupConGradient<DZ, Scale> result;
  sup_con_loss_grad(Z, labels, scale, options, result, workspace.get());
  return result;
}

/// The value alone, for half a product instead of one and a half.
template <class DZ, class Scale>
[[nodiscard]] typename DZ::Scalar sup_con_loss(const Eigen::MatrixBase<DZ>& Z, const Labels& labels,
                                               const Scale& scale,
                                               const SoftmaxOptions& options = {},
                                               OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DZ>();
  const detail::Bound<DZ> z(Z);
  return detail::SupConLoss<typename DZ::Scalar>("sup_con_loss", z.view(), labels,
                                                 detail::ScaleArgument(scale), options, false,
                                                 workspace.get())
      .loss();
}

/// Each row's loss L_i (N), unweighted; 0 for a row that is no anchor.
///
/// @throws as sup_con_loss; std::invalid_argument if weights are given.
template <class DZ, class Scale>
void sup_con_rows(const Eigen::MatrixBase<DZ>& Z, const Labels& labels, const Scale& scale,
                  const SoftmaxOptions& options, RowLosses<DZ>& result, Workspace& workspace) {
  detail::require_same_scalar<DZ>();
  const char* function = "sup_con_rows";
  const detail::Bound<DZ> z(Z);
  detail::refuse_weights(function, options);
  const detail::SupConLoss<typename DZ::Scalar> core(
      function, z.view(), labels, detail::ScaleArgument(scale), options, false, workspace);
  core.write_rows(detail::resized(result, Z.rows(), 1));
}

/// The same, returned.
template <class DZ, class Scale>
[[nodiscard]] RowLosses<DZ> sup_con_rows(const Eigen::MatrixBase<DZ>& Z, const Labels& labels,
                                         const Scale& scale, const SoftmaxOptions& options = {},
                                         OptionalWorkspace workspace = {}) {
  RowLosses<DZ> result;
  sup_con_rows(Z, labels, scale, options, result, workspace.get());
  return result;
}

}  // namespace contrastive

#endif  // CONTRASTIVE_SUP_CON_HPP
