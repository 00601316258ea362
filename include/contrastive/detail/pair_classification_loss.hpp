// The core of Sentence-BERT's objective: a linear classifier over pairs of embeddings.
#ifndef CONTRASTIVE_DETAIL_PAIR_CLASSIFICATION_LOSS_HPP
#define CONTRASTIVE_DETAIL_PAIR_CLASSIFICATION_LOSS_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "../labels.hpp"
#include "../workspace.hpp"
#include "checks.hpp"
#include "option_checks.hpp"
#include "softmax.hpp"
#include "threads.hpp"
#include "view.hpp"

namespace contrastive::detail {

/// With x_i = (u_i, v_i, |u_i - v_i|), 3d features:
///
///     l_ic = W_c . x_i + b_c                  G_ic = dL/dl_ic = (A_ic - [c = y_i]) / B
///     dW_c = sum_i G_ic x_i                   db_c = sum_i G_ic
///     dx_i = sum_c G_ic W_c                   = (p, q, r)
///     du_i = p + sgn(u_i - v_i) r             dv_i = q - sgn(u_i - v_i) r
///
/// Classes are few, so these are dot products and sums of rows that stay in the cache, in Wide<T>.
/// The batch is divided into parts, as its shape says, that have sums for dW and db of their own,
/// which are added in order.
///
/// Made, it has checked its arguments and computed the loss.
template <class T>
class PairClassificationLoss {
 public:
  using Real = Wide<T>;

  PairClassificationLoss(const char* function, const View<const T>& u, const View<const T>& v,
                         const Labels& labels, const View<const T>& w, const View<const T>& b,
                         bool gradient, Workspace& workspace)
      : u_(u), v_(v), labels_(labels), classes_(w.rows), stride_(round_up(3 * u.cols, kLanes)) {
    check(function, w, b);
    take_memory(gradient, workspace);
    for (Index c = 0; c < classes_; ++c) {
      for (Index k = 0; k < w.cols; ++k) weights_[c * stride_ + k] = Real(w(c, k));
      for (Index k = w.cols; k < stride_; ++k) weights_[c * stride_ + k] = 0;
      biases_[c] = Real(b.rows == 1 ? b(0, c) : b(c, 0));
    }
    for_parts([&](const Part& part, Index begin, Index end) {
      for (Index i = begin; i < end; ++i) losses_[i] = row_loss(i, features(part, i));
    });
    for (Index i = 0; i < u_.rows; ++i) {
      if (!std::isfinite(losses_[i]))
        refuse_overflow(function, "a logit of row %lld overflows the scalar type", number(i));
      loss_ += losses_[i] / Real(u_.rows);
    }
  }

  PairClassificationLoss(const PairClassificationLoss&) = delete;
  PairClassificationLoss& operator=(const PairClassificationLoss&) = delete;

  [[nodiscard]] T loss() const { return T(loss_); }

  void write(const View<T>& du, const View<T>& dv, const View<T>& dw, const View<T>& db) const {
    for_parts([&](const Part& part, Index begin, Index end) {
      for (Index k = 0; k < classes_ * stride_; ++k) part.dw[k] = 0;
      for (Index c = 0; c < classes_; ++c) part.db[c] = 0;
      for (Index i = begin; i < end; ++i) {
        const Row x = features(part, i);
        Row dx(part.dx, stride_);
        dx.setZero();
        for (Index c = 0; c < classes_; ++c) {
          const Real g = g_[i * classes_ + c];
          dx += g * weights(c);
          Row(part.dw + c * stride_, stride_) += g * x;
          part.db[c] += g;
        }
        write_pair(i, part.dx, du, dv);
      }
    });
    for (Index c = 0; c < classes_; ++c) {
      for (Index k = 0; k < dw.cols; ++k)
        dw(c, k) = sum_of_parts([&](const Part& part) { return part.dw[c * stride_ + k]; });
      (db.rows == 1 ? db(0, c) : db(c, 0)) =
          sum_of_parts([&](const Part& part) { return part.db[c]; });
    }
  }

 private:
  static constexpr Index kLanes = 8;  // rows begin at multiples of it, so that all are aligned
  static constexpr Index kPartRows = 64, kMostParts = 16;
  static constexpr Index kMostSums = Index{1} << 22;  // entries of dW in all parts together

  using Row = Eigen::Map<Eigen::Array<Real, Eigen::Dynamic, 1>, Eigen::AlignedMax>;
  using ConstRow = Eigen::Map<const Eigen::Array<Real, Eigen::Dynamic, 1>, Eigen::AlignedMax>;

  /// What one part of the batch works on.
  struct Part {
    Real* x;   // of the row at hand
    Real* dx;  // likewise
    Real* dw;
    Real* db;
  };

  void check(const char* function, const View<const T>& w, const View<const T>& b) const {
    check_same_shape(function, "U", u_, "V", v_);
    check_not_empty(function, "U", u_);
    check_not_empty(function, "W", w);
    if (w.cols != 3 * u_.cols)
      refuse(function, "W is %lld x %lld but U is %lld x %lld, W must have 3 * %lld columns",
             number(w.rows), number(w.cols), number(u_.rows), number(u_.cols), number(u_.cols));
    if (b.rows * b.cols != classes_)
      refuse(function, "W is %lld x %lld but b is %lld x %lld, b must have %lld entries",
             number(w.rows), number(w.cols), number(b.rows), number(b.cols), number(classes_));
    check_length(function, "labels", labels_.size(), u_.rows, "U");
    for (Index i = 0; i < u_.rows; ++i)
      if (labels_[i] < 0 || labels_[i] >= classes_)
        refuse(function, "labels[%lld] is %lld, it must be from 0 to %lld", number(i),
               number(labels_[i]), number(classes_ - 1));
    check_finite(function, "U", u_);
    check_finite(function, "V", v_);
    check_finite(function, "W", w);
    check_finite(function, "b", b);
  }

  void take_memory(bool gradient, Workspace& workspace) {
    Scratch scratch(workspace);
    const Index most = (std::min)(kMostParts, kMostSums / (classes_ * stride_));
    parts_ = (std::max)(Index{1}, (std::min)(most, u_.rows / kPartRows));
    losses_ = scratch.take<Real>(u_.rows);
    g_ = scratch.take<Real>(u_.rows * classes_);
    weights_ = scratch.take<Real>(classes_ * stride_);
    biases_ = scratch.take<Real>(classes_);
    rows_ = scratch.take<Real>(parts_ * 2 * stride_);
    if (!gradient) return;
    dw_ = scratch.take<Real>(parts_ * classes_ * stride_);
    db_ = scratch.take<Real>(parts_ * classes_);
  }

  [[nodiscard]] Part part(Index p) const {
    return {rows_ + 2 * p * stride_, rows_ + (2 * p + 1) * stride_, dw_ + p * classes_ * stride_,
            db_ + p * classes_};
  }

  /// f(part, begin, end) for the parts of the batch.
  template <class F>
  void for_parts(const F& f) const {
    const double work = double(u_.rows) * double(classes_) * double(stride_);
    parallel_for(parts_, work,
                 [&](Index p) { f(part(p), p * u_.rows / parts_, (p + 1) * u_.rows / parts_); });
  }

  template <class F>
  T sum_of_parts(const F& f) const {
    Real sum = 0;
    for (Index p = 0; p < parts_; ++p) sum += f(part(p));
    return T(sum);
  }

  [[nodiscard]] ConstRow weights(Index c) const { return {weights_ + c * stride_, stride_}; }

  /// x_i, and zeros up to the stride.
  Row features(const Part& part, Index i) const {
    const Index d = u_.cols;
    for (Index k = 0; k < d; ++k) {
      const Real u = Real(u_(i, k)), v = Real(v_(i, k));
      part.x[k] = u;
      part.x[d + k] = v;
      part.x[2 * d + k] = std::fabs(u - v);
    }
    for (Index k = 3 * d; k < stride_; ++k) part.x[k] = 0;
    return {part.x, stride_};
  }

  /// L_i, and G_i beside it; infinite where a logit is out of range.
  Real row_loss(Index i, const Row& x) const {
    Real* g = g_ + i * classes_;
    const Index y = Index(labels_[i]);
    ExpSum<Real> others;
    for (Index c = 0; c < classes_; ++c) {
      g[c] = (weights(c) * x).sum() + biases_[c];
      if (!(std::fabs(g[c]) <= largest_logit<T>(1))) return std::numeric_limits<Real>::infinity();
      if (c != y) others.reference = (std::max)(others.reference, g[c]);
    }
    const Real positive = g[y];
    for (Index c = 0; c < classes_; ++c) {
      if (c == y) continue;
      g[c] = std::exp(g[c] - others.reference);
      others.sum += g[c];
    }
    const auto softmax = coupled_softmax(positive, others);
    const Real share = 1 / Real(u_.rows);
    for (Index c = 0; c < classes_; ++c)
      g[c] = share * (c == y ? -softmax.miss : softmax.factor * g[c]);
    return softmax.loss;
  }

  /// du_i and dv_i of dx_i = (p, q, r).
  void write_pair(Index i, const Real* dx, const View<T>& du, const View<T>& dv) const {
    const Index d = u_.cols;
    for (Index k = 0; k < d; ++k) {
      const Real u = Real(u_(i, k)), v = Real(v_(i, k));
      const Real r = u > v ? dx[2 * d + k] : u < v ? -dx[2 * d + k] : Real(0);
      du(i, k) = T(dx[k] + r);
      dv(i, k) = T(dx[d + k] - r);
    }
  }

  View<const T> u_;
  View<const T> v_;
  Labels labels_;
  Index classes_;
  Index stride_;  // of a row of 3d numbers
  Index parts_ = 1;
  Real* losses_ = nullptr;
  Real* g_ = nullptr;        // G (B x C)
  Real* weights_ = nullptr;  // W
  Real* biases_ = nullptr;
  Real* rows_ = nullptr;  // x and dx of each part
  Real* dw_ = nullptr;    // dW of each part
  Real* db_ = nullptr;
  Real loss_ = 0;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_PAIR_CLASSIFICATION_LOSS_HPP
