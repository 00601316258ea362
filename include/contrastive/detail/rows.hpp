// Rows of embeddings read one by one, for the losses that need no product.
#ifndef CONTRASTIVE_DETAIL_ROWS_HPP
#define CONTRASTIVE_DETAIL_ROWS_HPP

#include <type_traits>

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

  /// xn_i as W[d].
  void unit(Index i, W* result) const {
    for (Index k = 0; k < x_.cols; ++k) result[k] = W(x_(i, k));
    if (cosine_) divide(i, result);
  }

  /// Turns dxn_i, a W[d], into dx_i = (dxn_i - xn_i (xn_i . dxn_i)) / |x_i| under cosine; `unit` is
  /// xn_i.
  void backward(Index i, const W* unit, W* gradient) const {
    if (!cosine_) return;
    W radial = 0;
    for (Index k = 0; k < x_.cols; ++k) radial += unit[k] * gradient[k];
    for (Index k = 0; k < x_.cols; ++k) gradient[k] -= unit[k] * radial;
    divide(i, gradient);
  }

 private:
  /// Divides W[d] by |x_i|. Where W is wider than T a product does.
  void divide(Index i, W* values) const {
    const Norm<W>& norm = norms_[i];
    const W inverse = 1 / norm.length;
    if (norm.exponent != 0)
      for (Index k = 0; k < x_.cols; ++k) values[k] = norm.divide(values[k]);
    else if (std::is_same_v<T, W>)
      for (Index k = 0; k < x_.cols; ++k) values[k] /= norm.length;
    else
      for (Index k = 0; k < x_.cols; ++k) values[k] *= inverse;
  }

  View<const T> x_{};
  bool cosine_ = true;
  Norm<W>* norms_ = nullptr;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_ROWS_HPP
