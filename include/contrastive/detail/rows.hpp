// Rows of embeddings read one by one, for the losses that need no product.
#ifndef CONTRASTIVE_DETAIL_ROWS_HPP
#define CONTRASTIVE_DETAIL_ROWS_HPP

#include <algorithm>
#include <type_traits>

#include "../options.hpp"
#include "../workspace.hpp"
#include "norm.hpp"
#include "threads.hpp"
#include "view.hpp"

namespace contrastive::detail {

/// xn_i = x_i / |x_i| under cosine, else x_i, and the way back through that.
template <class T>
class Rows {
 public:
  using W = Wide<T>;
  static constexpr Index block = 16;

  Rows(const View<const T>& x, Similarity similarity)
      : x_(x), cosine_(similarity == Similarity::cosine) {}

  /// To be called once before the others, when the contents have been checked. Rows that do not lie
  /// along memory are copied.
  void measure(Scratch& scratch) {
    if (cosine_) norms_ = scratch.take<Norm<W>>(x_.rows);
    const bool copies = x_.col_stride != 1;
    T* copy = copies ? scratch.take<T>(x_.rows * x_.cols) : nullptr;
    for_blocks([&](Index begin, Index end) {
      if (cosine_) row_norms(x_, begin, end, norms_ + begin);
      if (copies)
        for (Index k = 0; k < x_.cols; ++k)
          for (Index i = begin; i < end; ++i) copy[i * x_.cols + k] = x_(i, k);
    });
    if (copies) x_ = View<const T>{copy, x_.rows, x_.cols, x_.cols, 1};
  }

  [[nodiscard]] Index count() const { return x_.rows; }
  [[nodiscard]] Index dim() const { return x_.cols; }

  /// f(begin, end) for the rows in blocks of `block`.
  template <class F>
  void for_blocks(const F& f) const {
    parallel_for((x_.rows + block - 1) / block, 8 * double(x_.rows) * double(x_.cols),
                 [&](Index b) { f(b * block, (std::min)((b + 1) * block, x_.rows)); });
  }

  /// Entries begin .. begin + count - 1 of xn_i.
  void unit(Index i, Index begin, Index count, W* result) const {
    const T* x = &x_(i, begin);
    for (Index k = 0; k < count; ++k) result[k] = W(x[k]);
    divide(i, count, result);
  }
  void unit(Index i, W* result) const { unit(i, 0, x_.cols, result); }

  /// Divides by |x_i| under cosine. Where W is wider than T a product does.
  void divide(Index i, Index count, W* values) const {
    if (!cosine_) return;
    const Norm<W>& norm = norms_[i];
    const W inverse = 1 / norm.length;
    if (norm.exponent != 0)
      for (Index k = 0; k < count; ++k) values[k] = norm.divide(values[k]);
    else if (std::is_same_v<T, W>)
      for (Index k = 0; k < count; ++k) values[k] /= norm.length;
    else
      for (Index k = 0; k < count; ++k) values[k] *= inverse;
  }

  /// Turns dxn_i, a W[d], into dx_i = (dxn_i - xn_i (xn_i . dxn_i)) / |x_i| under cosine; `unit` is
  /// xn_i.
  void backward(Index i, const W* unit, W* gradient) const {
    if (!cosine_) return;
    W radial = 0;
    for (Index k = 0; k < x_.cols; ++k) radial += unit[k] * gradient[k];
    for (Index k = 0; k < x_.cols; ++k) gradient[k] -= unit[k] * radial;
    divide(i, x_.cols, gradient);
  }

  /// The same for all rows, from T[n][d] to a matrix in any storage order.
  void backward(const T* gradient, const View<T>& result) const {
    constexpr Index kPiece = 64;
    for_blocks([&](Index begin, Index end) {
      W unit_piece[std::size_t(kPiece)], values[std::size_t(kPiece)];
      W radial[std::size_t(block)] = {};
      for (Index i = begin; i < end && cosine_; ++i)
        for (Index k = 0; k < x_.cols; k += kPiece) {
          const Index count = (std::min)(kPiece, x_.cols - k);
          unit(i, k, count, unit_piece);
          const T* from = gradient + i * x_.cols + k;
          for (Index l = 0; l < count; ++l) radial[i - begin] += unit_piece[l] * W(from[l]);
        }
      for (Index k = 0; k < x_.cols; k += kPiece) {
        const Index count = (std::min)(kPiece, x_.cols - k);
        T tile[std::size_t(block)][std::size_t(kPiece)];
        for (Index i = begin; i < end; ++i) {
          unit(i, k, count, unit_piece);
          const T* from = gradient + i * x_.cols + k;
          for (Index l = 0; l < count; ++l)
            values[l] = W(from[l]) - unit_piece[l] * radial[i - begin];
          divide(i, count, values);
          for (Index l = 0; l < count; ++l) tile[i - begin][l] = T(values[l]);
        }
        for (Index l = 0; l < count; ++l)
          for (Index i = begin; i < end; ++i) result(i, k + l) = tile[i - begin][l];
      }
    });
  }

 private:
  View<const T> x_{};
  bool cosine_ = true;
  Norm<W>* norms_ = nullptr;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_ROWS_HPP
