// What a good embedding space looks like, in two numbers: pairs agree, everything else spreads.
#ifndef CONTRASTIVE_ALIGNMENT_UNIFORMITY_HPP
#define CONTRASTIVE_ALIGNMENT_UNIFORMITY_HPP

#include <Eigen/Core>

#include "detail/distance_losses.hpp"
#include "detail/uniformity_loss.hpp"
#include "detail/view.hpp"
#include "options.hpp"
#include "results.hpp"
#include "workspace.hpp"

namespace contrastive {

/// Alignment: how far apart the two members of a pair are.
///
///     L     = mean_i |an_i - bn_i|^alpha
///     dan_i = alpha |D_i|^(alpha - 2) D_i / B,  D_i = an_i - bn_i,  dbn_i = -dan_i
///     da    = (dan - an (an . dan)) / |a|, db likewise  (cosine)
///
/// a is a row of Za, b of Zb; an = a / |a| with Similarity::cosine, a as given with `dot`. At D = 0
/// the derivative is 0; close to it, with alpha below 1, the derivative may overflow to infinity.
///
/// @param Za, Zb      pairs (B x d), one embedding a row, finite.
/// @param alpha       exponent, positive.
/// @param similarity  whether rows are normalised.
/// @return loss, dZa, dZb (B x d).
/// @throws std::invalid_argument if shapes differ or are empty, alpha is not positive and finite,
///     or a matrix is not finite or has a zero row under cosine.
/// @throws std::overflow_error if a row's loss overflows the scalar type.
/// @par Accuracy
/// 1e-12 in double and 1e-5 in float, relative to the largest entry.
/// @par Complexity
/// O(B d); memory beyond inputs and outputs O(B + d), and 2 B d scalars where rows do not lie along
/// memory.
/// @see Wang, Isola, "Understanding Contrastive Representation Learning through Alignment and
///      Uniformity on the Hypersphere", 2020, arXiv:2005.10242, section 4.1.
template <class DA, class DB>
void alignment_loss_grad(const Eigen::MatrixBase<DA>& Za, const Eigen::MatrixBase<DB>& Zb,
                         double alpha, Similarity similarity, AlignmentGradient<DA, DB>& result,
                         Workspace& workspace) {
  detail::require_same_scalar<DA, DB>();
  const detail::Bound<DA> a(Za);
  const detail::Bound<DB> b(Zb);
  const detail::AlignmentLoss<typename DA::Scalar> core("alignment_loss_grad", a.view(), b.view(),
                                                        alpha, similarity, workspace);
  result.loss = core.loss();
  core.write(detail::resized(result.dZa, Za.rows(), Za.cols()),
             detail::resized(result.dZb, Zb.rows(), Zb.cols()));
}

/// The same, returned.
template <class DA, class DB>
[[nodiscard]] AlignmentGradient<DA, DB> alignment_loss_grad(
    const Eigen::MatrixBase<DA>& Za, const Eigen::MatrixBase<DB>& Zb, double alpha = 2,
    Similarity similarity = Similarity::cosine, OptionalWorkspace workspace = {}) {
  AlignmentGradient<DA, DB> result;
  alignment_loss_grad(Za, Zb, alpha, similarity, result, workspace.get());
  return result;
}

/// The value alone.
template <class DA, class DB>
[[nodiscard]] typename DA::Scalar alignment_loss(const Eigen::MatrixBase<DA>& Za,
                                                 const Eigen::MatrixBase<DB>& Zb, double alpha = 2,
                                                 Similarity similarity = Similarity::cosine,
                                                 OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DA, DB>();
  const detail::Bound<DA> a(Za);
  const detail::Bound<DB> b(Zb);
  return detail::AlignmentLoss<typename DA::Scalar>("alignment_loss", a.view(), b.view(), alpha,
                                                    similarity, workspace.get())
      .loss();
}

/// Uniformity: how evenly embeddings spread, by the mean Gaussian potential of their pairs.
///
///     L    = log mean_{i<j} e^(-t |zn_i - zn_j|^2)
///     W_ij = e^(-t |zn_i - zn_j|^2) / sum_{i<j} e^(-t |zn_i - zn_j|^2)
///     dzn_i = -2t sum_{j != i} W_ij (zn_i - zn_j)
///     dz   = (dzn - zn (zn . dzn)) / |z|  (cosine)
///
/// zn = z / |z| with Similarity::cosine, z as given with `dot`. 0 is the worst (all embeddings
/// equal); lower is better. Rows are taken about their mean, which changes no difference and keeps
/// the digits of rows that lie far from the origin or close together.
///
/// @param Z           embeddings (N x d), one a row, finite; N at least 2.
/// @param t           inverse width of the potential, positive.
/// @param similarity  whether rows are normalised.
/// @return loss, dZ (N x d).
/// @throws std::invalid_argument if Z is empty or has one row, t is not positive and finite, or Z
///     is not finite or has a zero row under cosine.
/// @throws std::overflow_error if a squared distance (of huge rows) overflows the scalar type.
/// @par Accuracy
/// 1e-12 in double and 1e-5 in float, for rows whose squared distance from their mean times t is of
/// order one; beyond, in proportion to it. That is relative to the largest |z - mean| times 4t / n,
/// which is about the largest entry unless all rows have duplicates: those count in Z and pull
/// nowhere, and beside them what is far away is lost to rounding.
/// @par Complexity
/// Pairs are symmetric: of three products of 2 N N d operations half is computed (the value alone:
/// a sixth), and a sixth more for rows so far apart that the largest exponential is looked for
/// first. Memory beyond inputs and outputs: 5 N d scalars and strips in parts of at most 4 MiB.
/// @see Wang, Isola, 2020, arXiv:2005.10242, section 4.1.
template <class DZ>
void uniformity_loss_grad(const Eigen::MatrixBase<DZ>& Z, double t, Similarity similarity,
                          UniformityGradient<DZ>& result, Workspace& workspace) {
  detail::require_same_scalar<DZ>();
  const detail::Bound<DZ> z(Z);
  detail::UniformityLoss<typename DZ::Scalar> core("uniformity_loss_grad", "Z", z.view(), t,
                                                   similarity, true, workspace);
  result.loss = core.loss();
  core.write(detail::resized(result.dZ, Z.rows(), Z.cols()));
}

/// The same, returned.
template <class DZ>
[[nodiscard]] UniformityGradient<DZ> uniformity_loss_grad(
    const Eigen::MatrixBase<DZ>& Z, double t = 2, Similarity similarity = Similarity::cosine,
    OptionalWorkspace workspace = {}) {
  UniformityGradient<DZ> result;
  uniformity_loss_grad(Z, t, similarity, result, workspace.get());
  return result;
}

/// The value alone, for half a product instead of one and a half.
template <class DZ>
[[nodiscard]] typename DZ::Scalar uniformity_loss(const Eigen::MatrixBase<DZ>& Z, double t = 2,
                                                  Similarity similarity = Similarity::cosine,
                                                  OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DZ>();
  const detail::Bound<DZ> z(Z);
  return detail::UniformityLoss<typename DZ::Scalar>("uniformity_loss", "Z", z.view(), t,
                                                     similarity, false, workspace.get())
      .loss();
}

/// Both measures of pairs of embeddings; the uniformity is the mean of that of Za and that of Zb.
///
/// @return members alignment, uniformity.
/// @throws as alignment_loss and uniformity_loss.
template <class DA, class DB>
[[nodiscard]] AlignmentUniformity<typename DA::Scalar> alignment_uniformity(
    const Eigen::MatrixBase<DA>& Za, const Eigen::MatrixBase<DB>& Zb, double alpha = 2,
    double t = 2, Similarity similarity = Similarity::cosine, OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DA, DB>();
  using T = typename DA::Scalar;
  const char* function = "alignment_uniformity";
  const detail::Bound<DA> a(Za);
  const detail::Bound<DB> b(Zb);
  AlignmentUniformity<T> result;
  result.alignment =
      detail::AlignmentLoss<T>(function, a.view(), b.view(), alpha, similarity, workspace.get())
          .loss();
  const T of_a =
      detail::UniformityLoss<T>(function, "Za", a.view(), t, similarity, false, workspace.get())
          .loss();
  const T of_b =
      detail::UniformityLoss<T>(function, "Zb", b.view(), t, similarity, false, workspace.get())
          .loss();
  result.uniformity = (of_a + of_b) / 2;
  return result;
}

}  // namespace contrastive

#endif  // CONTRASTIVE_ALIGNMENT_UNIFORMITY_HPP
