// Sentence-BERT's own objective: a classifier over pairs of embeddings.
#ifndef CONTRASTIVE_PAIR_CLASSIFICATION_HPP
#define CONTRASTIVE_PAIR_CLASSIFICATION_HPP

#include <Eigen/Core>

#include "detail/pair_classification_loss.hpp"
#include "detail/view.hpp"
#include "labels.hpp"
#include "results.hpp"
#include "workspace.hpp"

namespace contrastive {

namespace detail {

template <class DU, class DV, class DW, class DB>
constexpr void require_pair_classification() {
  require_same_scalar<DU, DV, DW, DB>();
  static_assert(DB::IsVectorAtCompileTime, "contrastive: b is a vector, a row or a column");
}

}  // namespace detail

/// The pair classification loss: the cross-entropy of a linear classifier that sees two embeddings
/// and their difference, as for premise and hypothesis in natural language inference.
///
///     x_i  = (u_i, v_i, |u_i - v_i|)           |.| entry by entry
///     l_ic = sum_k W_ck x_ik + b_c
///     L    = mean_i log sum_c e^(l_ic) - l_i,y_i
///
///     A_ic = e^(l_ic) / sum_c' e^(l_ic')       G_ic = dL/dl_ic = (A_ic - [c = y_i]) / B
///     dW_ck = sum_i G_ic x_ik                  db_c = sum_i G_ic
///     dx_ik = sum_c G_ic W_ck                  = (p_i, q_i, r_i)
///     du_i = p_i + sgn(u_i - v_i) r_i          dv_i = q_i - sgn(u_i - v_i) r_i
///
/// Rows as given, not normalised. At the kink, u_ik = v_ik, |u_ik - v_ik| has derivative 0, in the
/// middle of the allowed [-1, 1]. A single class has loss and gradient 0.
///
/// @param U, V    pairs of embeddings (B x d), one a row, finite.
/// @param labels  y, B of them from 0 to C - 1, of any integer type.
/// @param W       weights (C x 3d), finite; the columns meet u, v, |u - v| in that order.
/// @param b       biases, C of them, a row or a column vector, finite.
/// @return loss in nats, dU and dV (B x d), dW (C x 3d), db (as b).
/// @throws std::invalid_argument if shapes do not fit or are empty; labels is not B long, or a
/// label
///     is out of range; U, V, W or b is not finite.
/// @throws std::overflow_error if a logit overflows the scalar type.
/// @par Accuracy
/// Losses of 1e-20 keep their digits, relative to the error of a logit. In float everything is
/// computed in double and rounded once at the end. Gradients are within 1e-12 in double and 1e-6 in
/// float, relative to their largest entry.
/// @par Complexity
/// 3 products of 6 B C d operations (the value alone: 1), row by row: meant for few classes. Memory
/// beyond inputs and outputs, in double: B C numbers and, once for the value and with a gradient up
/// to 17 times in large batches, 3 C d.
/// @see Reimers, Gurevych, "Sentence-BERT", 2019, arXiv:1908.10084, section 3.
template <class DU, class DV, class DW, class DB>
void pair_classification_loss_grad(const Eigen::MatrixBase<DU>& U, const Eigen::MatrixBase<DV>& V,
                                   const Labels& labels, const Eigen::MatrixBase<DW>& W,
                                   const Eigen::MatrixBase<DB>& b,
                                   PairClassificationGradient<DU, DV, DW, DB>& result,
                                   Workspace& workspace) {
  detail::require_pair_classification<DU, DV, DW, DB>();
  const detail::Bound<DU> u(U);
  const detail::Bound<DV> v(V);
  const detail::Bound<DW> w(W);
  const detail::Bound<DB> biases(b);
  const detail::PairClassificationLoss<typename DU::Scalar> core(
      "pair_classification_loss_grad", u.view(), v.view(), labels, w.view(), biases.view(), true,
      workspace);
  result.loss = core.loss();
  core.write(detail::resized(result.dU, U.rows(), U.cols()),
             detail::resized(result.dV, V.rows(), V.cols()),
             detail::resized(result.dW, W.rows(), W.cols()),
             detail::resized(result.db, b.rows(), b.cols()));
}

/// The same, returned.
template <class DU, class DV, class DW, class DB>
[[nodiscard]] PairClassificationGradient<DU, DV, DW, DB> pair_classification_loss_grad(
    const Eigen::MatrixBase<DU>& U, const Eigen::MatrixBase<DV>& V, const Labels& labels,
    const Eigen::MatrixBase<DW>& W, const Eigen::MatrixBase<DB>& b,
    OptionalWorkspace workspace = {}) {
  PairClassificationGradient<DU, DV, DW, DB> result;
  pair_classification_loss_grad(U, V, labels, W, b, result, workspace.get());
  return result;
}

/// The value alone, for one product instead of three.
template <class DU, class DV, class DW, class DB>
[[nodiscard]] typename DU::Scalar pair_classification_loss(const Eigen::MatrixBase<DU>& U,
                                                           const Eigen::MatrixBase<DV>& V,
                                                           const Labels& labels,
                                                           const Eigen::MatrixBase<DW>& W,
                                                           const Eigen::MatrixBase<DB>& b,
                                                           OptionalWorkspace workspace = {}) {
  detail::require_pair_classification<DU, DV, DW, DB>();
  const detail::Bound<DU> u(U);
  const detail::Bound<DV> v(V);
  const detail::Bound<DW> w(W);
  const detail::Bound<DB> biases(b);
  return detail::PairClassificationLoss<typename DU::Scalar>("pair_classification_loss", u.view(),
                                                             v.view(), labels, w.view(),
                                                             biases.view(), false, workspace.get())
      .loss();
}

}  // namespace contrastive

#endif  // CONTRASTIVE_PAIR_CLASSIFICATION_HPP
