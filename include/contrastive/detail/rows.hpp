// Rows of embeddings read one by one, for the losses that need no product.
#ifndef CONTRASTIVE_DETAIL_ROWS_HPP
#define CONTRASTIVE_DETAIL_ROWS_HPP

#include "../options.hpp"
#include "../workspace.hpp"
#include "norm.hpp"
#include "view.hpp"

namespace contrastive::detail {

/// xn_i = x_i / |x_i| under cosine, else x_i, and the way back through that.
template <class T>
class Rows {
 public:
  using W = Wide<T>;

  Rows(const View<const T>& x, Similarity similarity)
      : x_(x), cosine_(similarity == Similarity::cosine) {}

  /// To be called once before the others, when the contents have been checked.
  void measure(Scratch& scratch) {
    if (!cosine_) return;
    norms_ = scratch.take<Norm<W>>(x_.rows);
    for (Index i = 0; i < x_.rows; ++i) norms_[i] = row_norm(&x_(i, 0), x_.col_stride, x_.cols);
  }

  [[nodiscard]] Index count() const { return x_.rows; }
  [[nodiscard]] Index dim() const { return x_.cols; }

  [[nodiscard]] W unit(Index i, Index k) const {
    return cosine_ ? norms_[i].divide(W(x_(i, k))) : W(x_(i, k));
  }

  /// dx_i = (dxn_i - xn_i (xn_i . dxn_i)) / |x_i| under cosine, else dxn_i. Reads dxn_ik as
  /// `from(k)` and passes each dx_ik to `to(k, value)`.
  template <class From, class To>
  void backward(Index i, const From& from, const To& to) const {
    W radial = 0;
    if (cosine_)
      for (Index k = 0; k < x_.cols; ++k) radial += unit(i, k) * from(k);
    for (Index k = 0; k < x_.cols; ++k)
      to(k, cosine_ ? norms_[i].divide(from(k) - unit(i, k) * radial) : from(k));
  }

 private:
  View<const T> x_{};
  bool cosine_ = true;
  Norm<W>* norms_ = nullptr;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_ROWS_HPP
