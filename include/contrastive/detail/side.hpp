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
///     natural   [d / width][n][width]   xn: the left operand of S = Xn Yn^T, and the right one of
///                                       dYn = G^T Xn and dXn = G Yn
///     right     [n / width][d][width]   factor * xn, the right operand of S
///     gradient  as natural              dXn
///
/// The last panel of `natural` is narrow where that holds what remains of d.
///
/// The rows that are both sides of a symmetric S have factor * xn as their natural packing too, so
/// that s_ij and s_ji have the same bits, and the gradient comes back by as much too large.
///
/// Work goes in tiles of width x width entries, so that matrices in either storage order are read
/// and written along their memory.
template <class T>
class Side {
 public:
  using W = Wide<T>;
  using K = Kernel<T>;
  static constexpr Index width = K::width;
  static constexpr Index narrow = K::narrow;
  static constexpr Index chunk = K::chunk;

  enum class Role { left, right, both, own };

  Side() = default;

  /// The rows of x and of `more` below them.
  Side(Role role, const View<const T>& x, const View<const T>& more, Similarity similarity)
      : role_(role),
        similarity_(similarity),
        x_(x),
        more_(more),
        n_(x.rows + more.rows),
        d_(x.cols),
        padded_n_(round_up(n_, chunk)),
        padded_d_(round_up(d_, narrow)) {}

  /// The same rows as the left side of a symmetric S: what is packed is shared.
  [[nodiscard]] Side as_left() const {
    Side left = *this;
    left.role_ = Role::left;
    left.operand_ = nullptr;
    return left;
  }

  [[nodiscard]] Index rows() const { return n_; }
  [[nodiscard]] Index dim() const { return d_; }
  /// Packs the rows: as operands of S, that of the right side multiplied by `factor`, and as
  /// operands of the way back where `natural` or `gradient` asks for them. Rows that are not finite
  /// or have no direction are packed as something: see is_ordinary().
  void pack(W factor, bool natural, bool gradient, Scratch& scratch) {
    norms_ = scratch.take<Norm<W>>(n_);
    if (is_right()) operand_ = scratch.take<T>(padded_n_ * padded_d_);
    if (natural || gradient) natural_ = scratch.take<T>(padded_n_ * padded_d_);
    if (gradient) {
      gradient_ = scratch.take<T>(padded_n_ * padded_d_);
      radials_ = scratch.take<W>(padded_n_);
    }
    for_blocks([&](Index begin, Index end) {
      const Index middle = (std::min)((std::max)(x_.rows, begin), end);
      row_norms(x_, begin, middle, norms_ + begin);
      row_norms(more_, middle - x_.rows, end - x_.rows, norms_ + middle);
      pack_rows(begin, end, factor);
    });
    ordinary_ = true;
    for (Index i = 0; i < n_; ++i) {
      ordinary_ = ordinary_ && norms_[i].is_ordinary();
      largest_norm_ = (std::max)(largest_norm_, norms_[i].value());
    }
  }

  /// Packs the operand of S once more, multiplied by `factor`, also that of the left side.
  void pack_again(W factor, Scratch& scratch) {
    if (operand_ == nullptr) operand_ = scratch.take<T>(padded_n_ * padded_d_);
    for_blocks([&](Index begin, Index end) { pack_rows(begin, end, factor); });
  }

  /// Whether no row is zero, tiny, huge or not finite. After pack().
  [[nodiscard]] bool is_ordinary() const { return ordinary_; }
  /// 1 under cosine. After pack().
  [[nodiscard]] W largest_norm() const {
    return similarity_ == Similarity::cosine ? W(1) : largest_norm_;
  }

  /// Entries k and following of the left operand's row i; the next panel is panel_size() away.
  [[nodiscard]] const T* left(Index i, Index k) const {
    return (operand_ != nullptr ? operand_ : natural_) + place(k / width, i);
  }
  [[nodiscard]] const T* right(Index j, Index k) const {
    return operand_ + j * padded_d_ + k * width;
  }
  /// Panels of `natural` and `gradient` hold the columns panel * width and following.
  [[nodiscard]] Index panels() const { return (padded_d_ + width - 1) / width; }
  [[nodiscard]] Index panel_size() const { return padded_n_ * width; }
  [[nodiscard]] Index panel_width(Index panel) const {
    return (std::min)(width, padded_d_ - panel * width);
  }
  [[nodiscard]] bool is_wide(Index panel) const {
    return narrow == width || panel_width(panel) == width;
  }
  /// Columns that are in panels of full width.
  [[nodiscard]] Index wide_d() const { return padded_d_ % width == 0 ? d_ : padded_d_ - narrow; }
  [[nodiscard]] const T* natural(Index panel, Index i) const { return natural_ + place(panel, i); }
  [[nodiscard]] T* gradient(Index panel, Index i) const { return gradient_ + place(panel, i); }

  /// f(l) for the entries of a row of a panel.
  template <class F>
  CONTRASTIVE_INLINE void for_entries(Index panel, const F& f) const {
    if (is_wide(panel))
      for (Index l = 0; l < width; ++l) f(l);
    else
      for (Index l = 0; l < narrow; ++l) f(l);
  }

  /// dxn_i += sign multiples[i] xn_i
  void add_multiple_of_rows(const W* multiples, W sign) const {
    for_blocks([&](Index begin, Index end) {
      for (Index panel = 0; panel < panels(); ++panel)
        for (Index i = begin; i < end; ++i) {
          const T* unit = natural(panel, i);
          T* d_unit = gradient(panel, i);
          for_entries(panel, [&](Index l) {
            d_unit[l] = T(W(d_unit[l]) + sign * multiples[i] * W(unit[l]));
          });
        }
    });
  }

  /// Carries the gradient, times `scale`, through the normalisation, and writes it:
  ///
  ///     dx = scale (dxn - xn (xn . dxn)) / |x|    under cosine, else dx = scale dxn
  ///
  /// What is packed with a factor does not have the length that the factor says to all digits of W,
  /// so there the multiple of xn is (xn . dxn) / |xn|^2 of what is packed.
  void unpack(W scale, const View<T>& dx, const View<T>& dmore) const {
    for_blocks([&](Index begin, Index end) {
      if (similarity_ == Similarity::cosine) radials(begin, end);
      for (Index panel = 0; panel < panels(); ++panel)
        for (Index i = begin; i < end; i += width) unpack_tile(i, panel, scale, dx, dmore);
    });
  }

  /// sum_i xn_i . dxn_i of what is packed.
  [[nodiscard]] W dot_with_gradient() const {
    for_blocks([&](Index begin, Index end) { dots(gradient_, begin, end, radials_ + begin); });
    W sum = 0;
    for (Index i = 0; i < n_; ++i) sum += radials_[i];
    return sum;
  }

 private:
  [[nodiscard]] bool is_right() const { return role_ == Role::right || role_ == Role::both; }

  [[nodiscard]] Index place(Index panel, Index i) const {
    return panel * panel_size() + i * panel_width(panel);
  }

  /// f(begin, end) for the rows chunk by chunk.
  template <class F>
  void for_blocks(const F& f) const {
    parallel_for(padded_n_ / chunk, 8 * double(n_) * double(d_),
                 [&](Index block) { f(block * chunk, (std::min)((block + 1) * chunk, n_)); });
  }

  /// A tile's part of `values`, which may lie in `x` or in `more` or in both: f(view, first row in
  /// it, first row in the tile, number of rows).
  template <class V, class F>
  void for_parts(const View<V>& x, const View<V>& more, Index i, const F& f) const {
    const Index end = (std::min)(i + width, n_);
    const Index middle = (std::min)((std::max)(x_.rows, i), end);
    if (i < middle) f(x, i, Index{0}, middle - i);
    if (middle < end) f(more, middle - x_.rows, middle - i, end - middle);
  }

  /// The rows of a tile where they are, `step` apart, if the matrix has their entries side by side
  /// as a tile does; else null.
  template <class V>
  V* in_place(const View<V>& x, const View<V>& more, Index i, Index panel, Index& step) const {
    const bool in_x = (std::min)(i + width, n_) <= x_.rows;
    const View<V>& part = in_x ? x : more;
    if ((!in_x && i < x_.rows) || part.col_stride != 1 || panel * width + panel_width(panel) > d_)
      return nullptr;
    step = part.row_stride;
    return &part(in_x ? i : i - x_.rows, panel * width);
  }

  /// Rows i .. i + width - 1 and columns of one panel of x; padding is zero.
  void load_tile(Index i, Index panel, T* tile) const {
    const Index k = panel * width, step = panel_width(panel), cols = (std::min)(step, d_ - k);
    if (i + width > n_ || cols < step) std::fill(tile, tile + width * step, T(0));
    for_parts(x_, more_, i, [&](const View<const T>& x, Index first, Index r, Index rows) {
      if (x.row_stride == 1 && cols == step && rows == width)
        K::transpose(step, width, &x(first, k), x.col_stride, tile, step);
      else
        for (Index row = 0; row < rows; ++row)
          for (Index l = 0; l < cols; ++l) tile[(r + row) * step + l] = x(first + row, k + l);
    });
  }

  void store_tile(Index i, Index panel, const T* tile, const View<T>& dx,
                  const View<T>& dmore) const {
    const Index k = panel * width, step = panel_width(panel), cols = (std::min)(step, d_ - k);
    for_parts(dx, dmore, i, [&](const View<T>& x, Index first, Index r, Index rows) {
      if (x.row_stride == 1 && cols == step && rows == width)
        K::transpose(width, step, tile, step, &x(first, k), x.col_stride);
      else
        for (Index row = 0; row < rows; ++row)
          for (Index l = 0; l < cols; ++l) x(first + row, k + l) = tile[(r + row) * step + l];
    });
  }

  void pack_rows(Index begin, Index end, W factor) {
    for (Index panel = 0; panel < panels(); ++panel)
      for (Index i = begin; i < end; i += width) pack_tile(i, panel, factor);
  }

  void pack_tile(Index i, Index panel, W factor) {
    alignas(64) T loaded[std::size_t(width * width)], scaled[std::size_t(width * width)];
    alignas(64) T spare[std::size_t(width)];
    const Index at = place(panel, i), step = panel_width(panel);
    const Index rows = (std::min)(width, n_ - i);
    Index in_step = step;
    const T* in = in_place(x_, more_, i, panel, in_step);
    if (in == nullptr) {
      load_tile(i, panel, loaded);
      in = loaded;
    }
    for (Index r = 0; r < rows; ++r) {
      T* natural = natural_ != nullptr ? natural_ + at + r * step : spare;
      normalise(i + r, panel, factor, in + r * in_step, scaled + r * step, natural);
    }
    if (operand_ == nullptr) return;
    std::fill(scaled + rows * step, scaled + width * step, T(0));
    if (is_right())
      K::transpose(width, step, scaled, step, operand_ + i * padded_d_ + panel * width * width,
                   width);
    else
      std::copy_n(scaled, width * step, operand_ + at);
  }

  /// Part of a row of x as that of factor * xn, and of xn, which goes to `natural`.
  void normalise(Index i, Index panel, W factor, const T* x, T* scaled, T* natural) const {
    const Norm<W> norm = similarity_ == Similarity::cosine ? norms_[i] : Norm<W>{1, 0};
    const W natural_factor = role_ == Role::both ? factor : W(1);
    if (norm.exponent != 0)
      for_entries(panel, [&](Index l) {
        const W unit = norm.divide(W(x[l]));
        natural[l] = T(unit * natural_factor);
        scaled[l] = T(unit * factor);
      });
    else if (is_wide(panel))
      normalise<width>(x, norm.length, factor, natural_factor, scaled, natural);
    else
      normalise<narrow>(x, norm.length, factor, natural_factor, scaled, natural);
  }

  template <Index kCount>
  static void normalise(const T* __restrict x, W length, W factor, W natural_factor,
                        T* __restrict scaled, T* __restrict natural) {
    const W inverse = 1 / length;
    for (Index l = 0; l < kCount; ++l) {
      const W unit = over(W(x[l]), length, inverse);
      natural[l] = T(unit * natural_factor);
      scaled[l] = T(unit * factor);
    }
  }

  /// x / length. Where W is wider than T a product with the inverse is as exact.
  static CONTRASTIVE_INLINE W over(W x, W length, W inverse) {
    return std::is_same_v<T, W> ? x / length : x * inverse;
  }

  /// radial_i for unpack(), of the rows begin .. end - 1, at most a chunk of them.
  void radials(Index begin, Index end) const {
    dots(gradient_, begin, end, radials_ + begin);
    if (role_ != Role::both) return;
    W squares[std::size_t(chunk)];
    dots(natural_, begin, end, squares);
    for (Index i = begin; i < end; ++i) radials_[i] /= squares[i - begin];
  }

  /// natural_i . other_i of the rows begin .. end - 1, at most a chunk of them.
  void dots(const T* other, Index begin, Index end, W* sums) const {
    W lanes[std::size_t(chunk)][std::size_t(width)];
    std::fill_n(lanes[0], (end - begin) * width, W(0));
    for (Index panel = 0; panel < panels(); ++panel)
      for (Index i = begin; i < end; ++i) {
        const T* a = natural(panel, i);
        const T* b = other + place(panel, i);
        W* lane = lanes[i - begin];
        for_entries(panel, [&](Index l) { lane[l] += W(a[l]) * W(b[l]); });
      }
    for (Index i = begin; i < end; ++i) {
      W sum = 0;
      for (const W lane : lanes[i - begin]) sum += lane;
      sums[i - begin] = sum;
    }
  }

  /// One panel's part of the rows i .. i + width - 1 of dx.
  void unpack_tile(Index i, Index panel, W scale, const View<T>& dx, const View<T>& dmore) const {
    alignas(64) T tile[std::size_t(width * width)];
    Index step = panel_width(panel);
    T* const there = in_place(dx, dmore, i, panel, step);
    T* const out = there != nullptr ? there : tile;
    for (Index r = 0; r < (std::min)(width, n_ - i); ++r)
      through_norm(i + r, panel, scale, out + r * step);
    if (there == nullptr) store_tile(i, panel, tile, dx, dmore);
  }

  /// Part of a row of dx.
  void through_norm(Index i, Index panel, W scale, T* dx) const {
    const T* unit = natural(panel, i);
    const T* d_unit = gradient(panel, i);
    const bool cosine = similarity_ == Similarity::cosine;
    const Norm<W> norm = cosine ? norms_[i] : Norm<W>{1, 0};
    const W radial = cosine ? radials_[i] : W(0);
    if (norm.exponent != 0)
      for_entries(panel, [&](Index l) {
        dx[l] = T(norm.divide(scale * (W(d_unit[l]) - W(unit[l]) * radial)));
      });
    else if (is_wide(panel))
      through_norm<width>(unit, d_unit, radial, norm.length, scale, dx);
    else
      through_norm<narrow>(unit, d_unit, radial, norm.length, scale, dx);
  }

  template <Index kCount>
  static void through_norm(const T* __restrict unit, const T* __restrict d_unit, W radial, W length,
                           W scale, T* __restrict dx) {
    const W inverse = 1 / length;
    for (Index l = 0; l < kCount; ++l)
      dx[l] = T(over(scale * (W(d_unit[l]) - W(unit[l]) * radial), length, inverse));
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
  bool ordinary_ = false;
  T* operand_ = nullptr;
  T* natural_ = nullptr;
  T* gradient_ = nullptr;
  W* radials_ = nullptr;  // of dxn_i the multiple of xn_i, both as packed
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_SIDE_HPP
