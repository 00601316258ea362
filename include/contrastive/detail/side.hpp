// One side of the matrix of logits: the embeddings, normalised and packed for the kernel, and their
// gradient on its way back.
#ifndef CONTRASTIVE_DETAIL_SIDE_HPP
#define CONTRASTIVE_DETAIL_SIDE_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "../options.hpp"
#include "../workspace.hpp"
#include "kernel.hpp"
#include "norm.hpp"
#include "threads.hpp"
#include "view.hpp"

namespace contrastive::detail {

/// X̂ (n x d), rows of one or two matrices below one another. With cosine x̂ = x / |x|, else x̂ = x.
///
/// Three packings, each made only where it is wanted:
///
///     left     [n / height][d][height]  factor * x̂, the left operand of S = X̂ Ŷ^T
///     right    [n / width][d][width]    factor * x̂, the right operand of S
///     natural  [d / width][n][width]    x̂, the right operand of dŶ = G^T X̂ and dX̂ = G Ŷ;
///                                       the gradient dX̂ has this packing too
template <class T>
class Side {
 public:
  using W = Wide<T>;
  static constexpr Index width = Kernel<T>::width;
  static constexpr Index height = Kernel<T>::height;
  static constexpr Index chunk = Kernel<T>::chunk;

  enum class Role { left, right, own };

  Side() = default;

  /// Measures the rows of x and of `more` below them.
  Side(Role role, const View<const T>& x, const View<const T>& more, Similarity similarity,
       Scratch& scratch)
      : role_(role),
        similarity_(similarity),
        x_(x),
        more_(more),
        n_(x.rows + more.rows),
        d_(x.cols),
        padded_n_(round_up(n_, chunk)),
        padded_d_(round_up(d_, width)),
        norms_(scratch.take<Norm<W>>(n_)) {
    parallel_for(padded_n_ / chunk, double(n_) * double(d_), [&](Index block) {
      for (Index i = block * chunk; i < (std::min)((block + 1) * chunk, n_); ++i)
        norms_[i] = row_norm(row(i), stride(i), d_);
    });
    for (Index i = 0; i < n_; ++i) largest_norm_ = (std::max)(largest_norm_, norms_[i].value());
  }

  [[nodiscard]] Index rows() const { return n_; }
  [[nodiscard]] Index dim() const { return d_; }
  /// 1 under cosine.
  [[nodiscard]] W largest_norm() const {
    return similarity_ == Similarity::cosine ? W(1) : largest_norm_;
  }

  /// Packs the rows: multiplied by `factor` as an operand of S, and as they are where `natural` or
  /// a gradient asks for it.
  void pack(W factor, bool natural, bool gradient, Scratch& scratch) {
    if (role_ != Role::own) operand_ = scratch.take<T>(padded_n_ * d_);
    if (natural || gradient) natural_ = scratch.take<T>(padded_n_ * padded_d_);
    if (gradient) gradient_ = scratch.take<T>(padded_n_ * padded_d_);
    parallel_for(padded_n_ / chunk, double(n_) * double(d_), [&](Index block) {
      for (Index i = block * chunk; i < (block + 1) * chunk; ++i) pack_row(i, factor);
    });
  }

  [[nodiscard]] const T* left(Index i, Index k) const { return operand_ + i * d_ + k * height; }
  [[nodiscard]] const T* right(Index j, Index k) const { return operand_ + j * d_ + k * width; }
  /// Panels of `natural` and `gradient` hold the columns panel * width and following.
  [[nodiscard]] Index panels() const { return padded_d_ / width; }
  [[nodiscard]] const T* natural(Index panel, Index i) const {
    return natural_ + (panel * padded_n_ + i) * width;
  }
  [[nodiscard]] T* gradient(Index panel, Index i) const {
    return gradient_ + (panel * padded_n_ + i) * width;
  }

  /// Carries the gradient, times `scale`, through the normalisation, and writes it:
  ///
  ///     dx = scale (dx̂ - x̂ (x̂ . dx̂)) / |x|    under cosine, else dx = scale dx̂
  void unpack(W scale, const View<T>& dx, const View<T>& dmore) const {
    parallel_for(padded_n_ / chunk, double(n_) * double(d_), [&](Index block) {
      for (Index i = block * chunk; i < (std::min)((block + 1) * chunk, n_); ++i)
        if (i < x_.rows)
          unpack_row(i, scale, &dx(i, 0), dx.col_stride);
        else
          unpack_row(i, scale, &dmore(i - x_.rows, 0), dmore.col_stride);
    });
  }

  /// sum_i x̂_i . dx̂_i, which times the scale is the derivative by the log of the scale.
  [[nodiscard]] W dot_with_gradient(Scratch& scratch) const {
    W* dots = scratch.take<W>(n_);
    parallel_for(padded_n_ / chunk, double(n_) * double(d_), [&](Index block) {
      for (Index i = block * chunk; i < (std::min)((block + 1) * chunk, n_); ++i) dots[i] = dot(i);
    });
    W sum = 0;
    for (Index i = 0; i < n_; ++i) sum += dots[i];
    return sum;
  }

 private:
  [[nodiscard]] const T* row(Index i) const {
    return i < x_.rows ? &x_(i, 0) : &more_(i - x_.rows, 0);
  }
  [[nodiscard]] Index stride(Index i) const {
    return i < x_.rows ? x_.col_stride : more_.col_stride;
  }

  void pack_row(Index i, W factor) {
    const bool inside = i < n_;  // rows of padding are zero
    const T* x = inside ? row(i) : nullptr;
    const Index step = inside ? stride(i) : 0;
    const bool cosine = similarity_ == Similarity::cosine;
    const auto unit = [&](Index k) -> W {
      if (!inside) return 0;
      return cosine ? norms_[i].divide(W(x[k * step])) : W(x[k * step]);
    };
    if (operand_ != nullptr) {
      const Index group = role_ == Role::left ? height : width;
      T* operand = operand_ + i / group * group * d_ + i % group;
      for (Index k = 0; k < d_; ++k) operand[k * group] = T(unit(k) * factor);
    }
    if (natural_ != nullptr)
      for (Index k = 0; k < padded_d_; ++k)
        natural_[(k / width * padded_n_ + i) * width + k % width] = k < d_ ? T(unit(k)) : T(0);
  }

  [[nodiscard]] W dot(Index i) const {
    W lanes[std::size_t(width)] = {};
    for (Index panel = 0; panel < panels(); ++panel)
      for (Index l = 0; l < width; ++l)
        lanes[l] += W(natural(panel, i)[l]) * W(gradient(panel, i)[l]);
    W sum = 0;
    for (const W lane : lanes) sum += lane;
    return sum;
  }

  void unpack_row(Index i, W scale, T* dx, Index step) const {
    const bool cosine = similarity_ == Similarity::cosine;
    const W radial = cosine ? dot(i) : W(0);
    for (Index k = 0; k < d_; ++k) {
      const W hat = W(natural(k / width, i)[k % width]);
      const W d_hat = W(gradient(k / width, i)[k % width]);
      dx[k * step] =
          cosine ? T(norms_[i].divide(scale * (d_hat - hat * radial))) : T(scale * d_hat);
    }
  }

  Role role_ = Role::left;
  Similarity similarity_ = Similarity::cosine;
  View<const T> x_{};
  View<const T> more_{};
  Index n_ = 0;
  Index d_ = 0;
  Index padded_n_ = 0;
  Index padded_d_ = 0;
  Norm<W>* norms_ = nullptr;
  W largest_norm_ = 0;
  T* operand_ = nullptr;
  T* natural_ = nullptr;
  T* gradient_ = nullptr;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_SIDE_HPP
