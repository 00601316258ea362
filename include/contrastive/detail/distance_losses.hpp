// The cores of the losses over distances of rows: alignment and triplet. No products, O(B d).
#ifndef CONTRASTIVE_DETAIL_DISTANCE_LOSSES_HPP
#define CONTRASTIVE_DETAIL_DISTANCE_LOSSES_HPP

#include <cmath>

#include "checks.hpp"
#include "option_checks.hpp"
#include "rows.hpp"

namespace contrastive::detail {

/// A difference of two rows: its length, and its direction, which is 0 where the length is.
template <class T>
class Difference {
 public:
  using W = Wide<T>;

  explicit Difference(W* memory) : delta_(memory) {}

  void set(const Rows<T>& x, const Rows<T>& y, Index i) {
    bool finite = true;
    for (Index k = 0; k < x.dim(); ++k) {
      delta_[k] = x.unit(i, k) - y.unit(i, k);
      finite = finite && std::isfinite(delta_[k]);
    }
    norm_ = finite ? row_norm(delta_, 1, x.dim()) : Norm<W>{};
    length_ = finite ? norm_.value() : std::numeric_limits<W>::infinity();
  }
  [[nodiscard]] W length() const { return length_; }
  [[nodiscard]] W direction(Index k) const { return norm_.divide(delta_[k]); }

 private:
  W* delta_;
  Norm<W> norm_{};
  W length_ = 0;
};

/// Throws where row i's loss leaves the range of T.
template <class T>
void check_row_loss(const char* function, Index i, Wide<T> loss) {
  if (!(std::fabs(loss) <= largest_logit<T>(1)))
    refuse_overflow(function, {"the loss of row ", number(i), " overflows the scalar type"});
}

/// L = mean_i |an_i - bn_i|^alpha
template <class T>
class AlignmentLoss {
 public:
  using W = Wide<T>;

  AlignmentLoss(const char* function, const View<const T>& za, const View<const T>& zb,
                double alpha, Similarity similarity, Workspace& workspace)
      : scratch_(workspace), a_(za, similarity), b_(zb, similarity), alpha_(W(alpha)) {
    check_same_shape(function, "Za", za, "Zb", zb);
    check_not_empty(function, "Za", za);
    check_positive(function, "alpha", alpha);
    check_embeddings(function, "Za", za, similarity);
    check_embeddings(function, "Zb", zb, similarity);
    a_.measure(scratch_);
    b_.measure(scratch_);
    delta_ = scratch_.template take<W>(za.cols);
    Difference<T> difference(delta_);
    for (Index i = 0; i < a_.count(); ++i) {
      difference.set(a_, b_, i);
      const W row = std::pow(difference.length(), alpha_);
      check_row_loss<T>(function, i, row);
      loss_ += row / W(a_.count());
    }
  }

  AlignmentLoss(const AlignmentLoss&) = delete;
  AlignmentLoss& operator=(const AlignmentLoss&) = delete;

  [[nodiscard]] T loss() const { return T(loss_); }

  /// dan = alpha |D|^(alpha - 1) D / |D| / B, dbn = -dan; 0 at D = 0.
  void write(const View<T>& dza, const View<T>& dzb) const {
    Difference<T> difference(delta_);
    for (Index i = 0; i < a_.count(); ++i) {
      difference.set(a_, b_, i);
      const W slope = alpha_ * std::pow(difference.length(), alpha_ - 1) / W(a_.count());
      const auto dunit = [&](Index k) {
        const W u = difference.direction(k);
        return u == 0 ? W(0) : slope * u;
      };
      a_.backward(i, dunit, [&](Index k, W value) { dza(i, k) = T(value); });
      b_.backward(
          i, [&](Index k) { return -dunit(k); }, [&](Index k, W value) { dzb(i, k) = T(value); });
    }
  }

 private:
  Scratch scratch_;
  Rows<T> a_;
  Rows<T> b_;
  W alpha_ = 2;
  W* delta_ = nullptr;
  W loss_ = 0;
};

/// L = mean_i max(0, |a_i - p_i| - |a_i - n_i| + margin), rows as given.
template <class T>
class TripletLoss {
 public:
  using W = Wide<T>;

  TripletLoss(const char* function, const View<const T>& a, const View<const T>& p,
              const View<const T>& n, double margin, Workspace& workspace)
      : scratch_(workspace),
        a_(a, Similarity::dot),
        p_(p, Similarity::dot),
        n_(n, Similarity::dot),
        margin_(W(margin)) {
    check_same_shape(function, "A", a, "P", p);
    check_same_shape(function, "A", a, "N", n);
    check_not_empty(function, "A", a);
    check_finite(function, "margin", margin);
    check_finite(function, "A", a);
    check_finite(function, "P", p);
    check_finite(function, "N", n);
    near_ = scratch_.template take<W>(a.cols);
    far_ = scratch_.template take<W>(a.cols);
    Difference<T> to_positive(near_), to_negative(far_);
    for (Index i = 0; i < a_.count(); ++i) {
      const W row = hinge(i, to_positive, to_negative);
      check_row_loss<T>(function, i, row);
      if (row > 0) loss_ += row / W(a_.count());
    }
  }

  TripletLoss(const TripletLoss&) = delete;
  TripletLoss& operator=(const TripletLoss&) = delete;

  [[nodiscard]] T loss() const { return T(loss_); }

  /// With u the unit vector from p to a and v that from n to a, where the hinge is above 0:
  /// da = (u - v) / B, dp = -u / B, dn = v / B.
  void write(const View<T>& da, const View<T>& dp, const View<T>& dn) const {
    Difference<T> to_positive(near_), to_negative(far_);
    for (Index i = 0; i < a_.count(); ++i) {
      const W share = hinge(i, to_positive, to_negative) > 0 ? 1 / W(a_.count()) : W(0);
      for (Index k = 0; k < a_.dim(); ++k) {
        const W u = share * to_positive.direction(k), v = share * to_negative.direction(k);
        da(i, k) = T(u - v);
        dp(i, k) = T(W(0) - u);
        dn(i, k) = T(v);
      }
    }
  }

 private:
  W hinge(Index i, Difference<T>& to_positive, Difference<T>& to_negative) const {
    to_positive.set(a_, p_, i);
    to_negative.set(a_, n_, i);
    return to_positive.length() - to_negative.length() + margin_;
  }

  Scratch scratch_;
  Rows<T> a_;
  Rows<T> p_;
  Rows<T> n_;
  W margin_ = 1;
  W* near_ = nullptr;
  W* far_ = nullptr;
  W loss_ = 0;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_DISTANCE_LOSSES_HPP
