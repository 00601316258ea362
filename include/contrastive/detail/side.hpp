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

/// Xn (n x d), rows of one or two matrices below one another: xn = x / |x| under cosine, else x.
///
/// Three packings, each made only where it is wanted:
///
///     left     [n / height][d][height]  factor * xn, the left operand of S = Xn Yn^T
///     right    [n / width][d][width]    factor * xn, the right operand of S
///     natural  [d / width][n][width]    xn, the right operand of dYn = G^T Xn and dXn = G Yn;
///                                       the gradient dXn has this packing too
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
    for_blocks([&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) norms_[i] = row_norm(row(i), stride(i), d_);
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
    for_blocks([&](Index begin, Index /*end*/) { pack_block(begin, factor); });
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
  ///     dx = scale (dxn - xn (xn . dxn)) / |x|    under cosine, else dx = scale dxn
  void unpack(W scale, const View<T>& dx, const View<T>& dmore) const {
    for_blocks([&](Index begin, Index end) {
      W radial[std::size_t(chunk)] = {};
      if (similarity_ == Similarity::cosine) dots(begin, end, radial);
      for (Index panel = 0; panel < panels(); ++panel)
        for (Index i = begin; i < end; ++i)
          if (i < x_.rows)
            unpack_part(i, panel, scale, radial[i - begin], &dx(i, 0), dx.col_stride);
          else
            unpack_part(i, panel, scale, radial[i - begin], &dmore(i - x_.rows, 0),
                        dmore.col_stride);
    });
  }

  /// sum_i xn_i . dxn_i, which times the scale is the derivative by the log of the scale.
  [[nodiscard]] W dot_with_gradient(Scratch& scratch) const {
    W* all = scratch.take<W>(padded_n_);
    for_blocks([&](Index begin, Index end) { dots(begin, end, all + begin); });
    W sum = 0;
    for (Index i = 0; i < n_; ++i) sum += all[i];
    return sum;
  }

 private:
  /// f(begin, end) for the rows chunk by chunk.
  template <class F>
  void for_blocks(const F& f) const {
    parallel_for(padded_n_ / chunk, 8 * double(n_) * double(d_),
                 [&](Index block) { f(block * chunk, (std::min)((block + 1) * chunk, n_)); });
  }

  [[nodiscard]] const T* row(Index i) const {
    return i < x_.rows ? &x_(i, 0) : &more_(i - x_.rows, 0);
  }
  [[nodiscard]] Index stride(Index i) const {
    return i < x_.rows ? x_.col_stride : more_.col_stride;
  }

  /// Entries panel * width and following of xn_i as a W[width]; padding is zero.
  void load(Index i, Index panel, W* unit) const {
    const Index begin = panel * width, count = (std::min)(width, d_ - begin);
    const Index step = stride(i);
    const T* x = row(i) + begin * step;
    if (step == 1 && count == width)
      for (Index l = 0; l < width; ++l) unit[l] = W(x[l]);
    else
      for (Index l = 0; l < width; ++l) unit[l] = l < count ? W(x[l * step]) : W(0);
    if (similarity_ == Similarity::cosine) divide(i, unit);
  }

  /// Divides W[width] by |x_i|. Where W is wider than T a product does.
  void divide(Index i, W* values) const {
    const Norm<W>& norm = norms_[i];
    if (!std::is_same_v<T, W> && norm.exponent == 0) {
      const W inverse = 1 / norm.length;
      for (Index l = 0; l < width; ++l) values[l] *= inverse;
    } else {
      for (Index l = 0; l < width; ++l) values[l] = norm.divide(values[l]);
    }
  }

  /// The rows begin .. begin + chunk - 1. An operand's last group is filled up with zeros.
  void pack_block(Index begin, W factor) {
    const Index group = role_ == Role::left ? height : width;
    const Index end = (std::min)(begin + chunk, round_up(n_, group));
    for (Index panel = 0; panel < padded_d_ / width; ++panel) {
      const Index count = (std::min)(width, d_ - panel * width);
      for (Index i = begin; i < end; ++i) {
        W unit[std::size_t(width)] = {};
        if (i < n_) load(i, panel, unit);
        if (natural_ != nullptr) {
          T* natural = natural_ + (panel * padded_n_ + i) * width;
          for (Index l = 0; l < width; ++l) natural[l] = T(unit[l]);
        }
        if (operand_ != nullptr) {
          T* operand = operand_ + i / group * group * d_ + panel * width * group + i % group;
          if (count == width)
            for (Index l = 0; l < width; ++l) operand[l * group] = T(unit[l] * factor);
          else
            for (Index l = 0; l < count; ++l) operand[l * group] = T(unit[l] * factor);
        }
      }
    }
  }

  /// xn_i . dxn_i of the rows begin .. end - 1, at most a chunk of them.
  void dots(Index begin, Index end, W* result) const {
    W lanes[std::size_t(chunk)][std::size_t(width)] = {};
    for (Index panel = 0; panel < panels(); ++panel)
      for (Index i = begin; i < end; ++i) {
        const T* hat = natural(panel, i);
        const T* d_hat = gradient(panel, i);
        W* lane = lanes[i - begin];
        for (Index l = 0; l < width; ++l) lane[l] += W(hat[l]) * W(d_hat[l]);
      }
    for (Index i = begin; i < end; ++i) {
      W sum = 0;
      for (const W lane : lanes[i - begin]) sum += lane;
      result[i - begin] = sum;
    }
  }

  /// One panel's part of dx_i.
  void unpack_part(Index i, Index panel, W scale, W radial, T* dx, Index step) const {
    const T* d_hat = gradient(panel, i);
    W values[std::size_t(width)];
    if (similarity_ == Similarity::cosine) {
      const T* hat = natural(panel, i);
      for (Index l = 0; l < width; ++l) values[l] = scale * (W(d_hat[l]) - W(hat[l]) * radial);
      divide(i, values);
    } else {
      for (Index l = 0; l < width; ++l) values[l] = scale * W(d_hat[l]);
    }
    const Index count = (std::min)(width, d_ - panel * width);
    dx += panel * width * step;
    if (step == 1 && count == width)
      for (Index l = 0; l < width; ++l) dx[l] = T(values[l]);
    else
      for (Index l = 0; l < count; ++l) dx[l * step] = T(values[l]);
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
