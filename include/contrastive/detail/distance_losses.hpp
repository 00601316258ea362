// The cores of the losses over distances of rows: alignment and triplet. No products, O(B d).
#ifndef CONTRASTIVE_DETAIL_DISTANCE_LOSSES_HPP
#define CONTRASTIVE_DETAIL_DISTANCE_LOSSES_HPP

#include <cmath>

#include "checks.hpp"
#include "option_checks.hpp"
#include "rows.hpp"

namespace contrastive::detail {

/// A difference of two rows: its length, and its direction, which is 0 where the length is.
template <class W>
struct Difference {
  Norm<W> norm{};
  W length = 0;

  /// x becomes x - y, all W[d].
  Difference(W* x, const W* y, Index d) {
    W checked = 0;  // 0 * x is 0 for a finite x and nan otherwise
    for (Index k = 0; k < d; ++k) {
      x[k] -= y[k];
      checked += W(0) * x[k];
    }
    norm = checked == 0 ? row_norm(x, 1, d) : Norm<W>{};
    length = checked == 0 ? norm.value() : std::numeric_limits<W>::infinity();
  }

  /// x / |x|
  void make_direction(W* x, Index d) const {
    if (norm.is_ordinary())
      for (Index k = 0; k < d; ++k) x[k] /= norm.length;
    else
      for (Index k = 0; k < d; ++k) x[k] = norm.divide(x[k]);
  }
};

/// Throws where row i's loss leaves the range of T.
template <class T>
void check_row_loss(const char* function, Index i, Wide<T> loss) {
  if (!(std::fabs(loss) <= largest_logit<T>(1)))
    refuse_overflow(function, "the loss of row %lld overflows the scalar type", number(i));
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
    for (W*& row : rows_) row = scratch_.template take<W>(za.cols);
    for (Index i = 0; i < a_.count(); ++i) {
      a_.unit(i, rows_[0]);
      b_.unit(i, rows_[1]);
      const W row = power(Difference<W>(rows_[0], rows_[1], za.cols).length, alpha_);
      check_row_loss<T>(function, i, row);
      loss_ += row / W(a_.count());
    }
  }

  AlignmentLoss(const AlignmentLoss&) = delete;
  AlignmentLoss& operator=(const AlignmentLoss&) = delete;

  [[nodiscard]] T loss() const { return T(loss_); }

  /// dan = alpha |D|^(alpha - 1) D / |D| / B, dbn = -dan; 0 at D = 0.
  void write(const View<T>& dza, const View<T>& dzb) const {
    const Index d = a_.dim();
    W *a = rows_[0], *b = rows_[1], *da = rows_[2], *db = rows_[3];
    for (Index i = 0; i < a_.count(); ++i) {
      a_.unit(i, a);
      b_.unit(i, b);
      for (Index k = 0; k < d; ++k) da[k] = a[k];
      const Difference<W> difference(da, b, d);
      difference.make_direction(da, d);
      const W slope = alpha_ * power(difference.length, alpha_ - 1) / W(a_.count());
      for (Index k = 0; k < d; ++k) {
        da[k] = da[k] == 0 ? W(0) : slope * da[k];
        db[k] = -da[k];
      }
      a_.backward(i, a, da);
      b_.backward(i, b, db);
      for (Index k = 0; k < d; ++k) dza(i, k) = T(da[k]);
      for (Index k = 0; k < d; ++k) dzb(i, k) = T(db[k]);
    }
  }

 private:
  static W power(W x, W exponent) {
    if (exponent == 2) return x * x;
    return exponent == 1 ? x : std::pow(x, exponent);
  }

  Scratch scratch_;
  Rows<T> a_;
  Rows<T> b_;
  W alpha_ = 2;
  W* rows_[4] = {};
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
    for (Rows<T>* rows : {&a_, &p_, &n_}) rows->measure(scratch_);
    for (W*& row : rows_) row = scratch_.template take<W>(a.cols);
    for (Index i = 0; i < a_.count(); ++i) {
      const auto [to_positive, to_negative] = differences(i);
      const W row = to_positive.length - to_negative.length + margin_;
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
    const Index d = a_.dim();
    W *u = rows_[0], *v = rows_[1];
    for (Index i = 0; i < a_.count(); ++i) {
      const auto [to_positive, to_negative] = differences(i);
      const bool active = to_positive.length - to_negative.length + margin_ > 0;
      const W share = active ? 1 / W(a_.count()) : W(0);
      to_positive.make_direction(u, d);
      to_negative.make_direction(v, d);
      for (Index k = 0; k < d; ++k) da(i, k) = T(share * u[k] - share * v[k]);
      for (Index k = 0; k < d; ++k) dp(i, k) = T(W(0) - share * u[k]);
      for (Index k = 0; k < d; ++k) dn(i, k) = T(share * v[k]);
    }
  }

 private:
  struct Differences {
    Difference<W> to_positive;
    Difference<W> to_negative;
  };

  /// a_i - p_i and a_i - n_i, in rows_[0] and rows_[1].
  Differences differences(Index i) const {
    a_.unit(i, rows_[0]);
    a_.unit(i, rows_[1]);
    p_.unit(i, rows_[2]);
    const Difference<W> to_positive(rows_[0], rows_[2], a_.dim());
    n_.unit(i, rows_[2]);
    return {to_positive, Difference<W>(rows_[1], rows_[2], a_.dim())};
  }

  Scratch scratch_;
  Rows<T> a_;
  Rows<T> p_;
  Rows<T> n_;
  W margin_ = 1;
  W* rows_[3] = {};
  W loss_ = 0;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_DISTANCE_LOSSES_HPP
