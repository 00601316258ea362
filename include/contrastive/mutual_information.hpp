// The lower bound on mutual information that InfoNCE gives.
#ifndef CONTRASTIVE_MUTUAL_INFORMATION_HPP
#define CONTRASTIVE_MUTUAL_INFORMATION_HPP

#include <Eigen/Core>
#include <cmath>

#include "detail/logits_loss.hpp"
#include "detail/view.hpp"
#include "options.hpp"
#include "results.hpp"
#include "workspace.hpp"

namespace contrastive {

/// The InfoNCE bound: what a batch of N pairs certifies of the information that they share.
///
///     I(x; y) >= log N - E[L],   L = mean_i (log sum_j e^(s_ij) - s_ii)
///     nats     = log N - L       dnats/ds_ij = -(A_ij - [i = j]) / N
///     A_ij     = e^(s_ij) / sum_k e^(s_ik)
///
/// It never exceeds log N, however much the pairs share, and it may be negative. The bound holds in
/// expectation, for pairs drawn independently: the other candidates must be samples of the
/// marginal. Mined hard negatives and masked candidates break it, so there are no options.
///
/// @param S  logits (N x N) of a critic, finite; s_ii belongs to pair i.
/// @return nats, dS (N x N).
/// @throws as info_nce_logits_loss_grad.
/// @par Accuracy
/// 1e-12 in double and 1e-5 in float, relative to the largest entry of dS; nats relative to log N.
/// @par Complexity
/// O(N N); memory beyond S and dS: a strip of at most 48 MiB.
/// @see van den Oord, Li, Vinyals, 2018, arXiv:1807.03748, section 2.3; Poole et al., "On
///      Variational Bounds of Mutual Information", 2019, arXiv:1905.06922, equation 10.
template <class DS>
void mutual_information_bound_grad(const Eigen::MatrixBase<DS>& S,
                                   MutualInformationGradient<DS>& result, Workspace& workspace) {
  detail::require_same_scalar<DS>();
  const detail::Bound<DS> s(S);
  using T = typename DS::Scalar;
  detail::LogitsLoss<T> core("mutual_information_bound_grad", s.view(), SoftmaxOptions{},
                             workspace);
  core.gradient_to(detail::resized(result.dS, S.rows(), S.cols()), T(-1));
  result.nats = T(std::log(detail::Wide<T>(S.rows())) - core.info_nce());
}

/// The same, returned.
template <class DS>
[[nodiscard]] MutualInformationGradient<DS> mutual_information_bound_grad(
    const Eigen::MatrixBase<DS>& S, OptionalWorkspace workspace = {}) {
  MutualInformationGradient<DS> result;
  mutual_information_bound_grad(S, result, workspace.get());
  return result;
}

/// The value alone.
template <class DS>
[[nodiscard]] typename DS::Scalar mutual_information_bound(const Eigen::MatrixBase<DS>& S,
                                                           OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DS>();
  const detail::Bound<DS> s(S);
  using T = typename DS::Scalar;
  detail::LogitsLoss<T> core("mutual_information_bound", s.view(), SoftmaxOptions{},
                             workspace.get());
  return T(std::log(detail::Wide<T>(S.rows())) - core.info_nce());
}

}  // namespace contrastive

#endif  // CONTRASTIVE_MUTUAL_INFORMATION_HPP
