// The margin loss that came before: one negative for each anchor.
#ifndef CONTRASTIVE_TRIPLET_HPP
#define CONTRASTIVE_TRIPLET_HPP

#include <Eigen/Core>

#include "detail/distance_losses.hpp"
#include "detail/view.hpp"
#include "results.hpp"
#include "workspace.hpp"

namespace contrastive {

/// The triplet loss: an anchor's positive must be closer than its negative by a margin.
///
///     L    = mean_i max(0, h_i),     h_i = |a_i - p_i| - |a_i - n_i| + margin
///     u_i  = (a_i - p_i) / |a_i - p_i|,     v_i = (a_i - n_i) / |a_i - n_i|
///     da_i = [h_i > 0] (u_i - v_i) / B,  dp_i = -[h_i > 0] u_i / B,  dn_i = [h_i > 0] v_i / B
///
/// Euclidean distances of the rows as given, not squared. At the kinks: h_i = 0 has derivative 0,
/// and so has a distance of 0.
///
/// @param A, P, N  anchors, positives, negatives (B x d), one embedding a row, finite.
/// @param margin   finite; 1 in Sentence-BERT.
/// @return loss, dA, dP, dN (B x d).
/// @throws std::invalid_argument if shapes differ or are empty, or anything is not finite.
/// @throws std::overflow_error if a row's loss overflows the scalar type.
/// @par Accuracy
/// 1e-12 in double and 1e-5 in float, relative to the largest entry.
/// @par Complexity
/// O(B d); memory beyond inputs and outputs O(d), and 3 B d scalars where rows do not lie along
/// memory.
/// @see Schroff, Kalenichenko, Philbin, "FaceNet", 2015, arXiv:1503.03832 (squared distances);
///      Reimers, Gurevych, "Sentence-BERT", 2019, arXiv:1908.10084, section 3.
template <class DA, class DP, class DN>
void triplet_loss_grad(const Eigen::MatrixBase<DA>& A, const Eigen::MatrixBase<DP>& P,
                       const Eigen::MatrixBase<DN>& N, double margin,
                       TripletGradient<DA, DP, DN>& result, Workspace& workspace) {
  detail::require_same_scalar<DA, DP, DN>();
  const detail::Bound<DA> a(A);
  const detail::Bound<DP> p(P);
  const detail::Bound<DN> n(N);
  const detail::TripletLoss<typename DA::Scalar> core("triplet_loss_grad", a.view(), p.view(),
                                                      n.view(), margin, workspace);
  result.loss = core.loss();
  core.write(detail::resized(result.dA, A.rows(), A.cols()),
             detail::resized(result.dP, P.rows(), P.cols()),
             detail::resized(result.dN, N.rows(), N.cols()));
}

/// The same, returned.
template <class DA, class DP, class DN>
[[nodiscard]] TripletGradient<DA, DP, DN> triplet_loss_grad(const Eigen::MatrixBase<DA>& A,
                                                            const Eigen::MatrixBase<DP>& P,
                                                            const Eigen::MatrixBase<DN>& N,
                                                            double margin,
                                                            OptionalWorkspace workspace = {}) {
  TripletGradient<DA, DP, DN> result;
  triplet_loss_grad(A, P, N, margin, result, workspace.get());
  return result;
}

/// The value alone.
template <class DA, class DP, class DN>
[[nodiscard]] typename DA::Scalar triplet_loss(const Eigen::MatrixBase<DA>& A,
                                               const Eigen::MatrixBase<DP>& P,
                                               const Eigen::MatrixBase<DN>& N, double margin,
                                               OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DA, DP, DN>();
  const detail::Bound<DA> a(A);
  const detail::Bound<DP> p(P);
  const detail::Bound<DN> n(N);
  return detail::TripletLoss<typename DA::Scalar>("triplet_loss", a.view(), p.view(), n.view(),
                                                  margin, workspace.get())
      .loss();
}

}  // namespace contrastive

#endif  // CONTRASTIVE_TRIPLET_HPP
