// Where logits come from and where their gradient goes. The rules of the losses work on either:
//
//     EmbeddingLogits   S = scale Xn Yn^T, and G goes back by dYn = G^T Xn and dXn = G Yn
//     GivenLogits       S is the caller's matrix, G is the result
#ifndef CONTRASTIVE_DETAIL_LOGITS_HPP
#define CONTRASTIVE_DETAIL_LOGITS_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "error.hpp"
#include "side.hpp"
#include "strips.hpp"

namespace contrastive::detail {

/// The logits of two sets of embeddings, made strip by strip and never held whole.
template <class T>
class EmbeddingLogits {
 public:
  using W = Wide<T>;

  EmbeddingLogits() = default;

  /// Rows are those of x, columns those of y and of `more` below.
  EmbeddingLogits(const View<const T>& x, const View<const T>& y, const View<const T>& more,
                  Similarity similarity, long double scale)
      : plan_(x.rows, y.rows + more.rows),
        x_(Side<T>::Role::left, x, {}, similarity),
        y_(Side<T>::Role::right, y, more, similarity),
        scale_(W(scale)) {}

  /// S = scale Zn Zn^T, which is symmetric: rows and columns are those of z and of `more` below.
  static EmbeddingLogits of_itself(const View<const T>& z, const View<const T>& more,
                                   Similarity similarity, long double scale) {
    EmbeddingLogits logits;
    logits.plan_ = StripPlan<T>::of_symmetric(z.rows + more.rows);
    logits.x_ = logits.y_ = Side<T>(Side<T>::Role::both, z, more, similarity);
    logits.scale_ = W(scale);
    return logits;
  }

  [[nodiscard]] const StripPlan<T>& plan() const { return plan_; }
  [[nodiscard]] Index depth() const { return x_.dim(); }
  [[nodiscard]] W scale() const { return scale_; }
  /// |s_ij| is at most this, which may be infinite.
  [[nodiscard]] W bound() const { return scale_ * x_.largest_norm() * y_.largest_norm(); }
  [[nodiscard]] const Side<T>& x() const { return x_; }
  [[nodiscard]] const Side<T>& y() const { return y_; }

  /// Contents are not checked: where a row is not ordinary, that is left to the caller.
  /// `natural_y` asks for Yn beside the operands of S, though there be no gradient.
  void pack(bool gradient, Scratch& scratch, bool natural_y = false) {
    if (plan_.symmetric) {
      y_.pack(way_back(), true, gradient, scratch);
      x_ = y_.as_left();
      return;
    }
    x_.pack(W(1), true, gradient, scratch);
    y_.pack(scale_, natural_y, gradient, scratch);
    // The scale is the right side's. Where an operand alone would leave the range of T (dot
    // products of huge or tiny rows), a power of two moves from one to the other.
    const W left = x_.largest_norm(), right = scale_ * y_.largest_norm();
    const W large = std::sqrt((std::numeric_limits<T>::max)());
    const auto fits = [&](W norm) { return norm == 0 || (norm > 1 / large && norm < large); };
    if ((fits(left) && fits(right)) || !(left * right > 0) || !std::isfinite(left * right)) return;
    const int shift = (std::ilogb(left) - std::ilogb(right)) / 2;
    x_.pack_again(std::ldexp(W(1), -shift), scratch);
    y_.pack_again(std::ldexp(scale_, shift), scratch);
  }

  /// Whether no row is zero, tiny, huge or not finite. After pack().
  [[nodiscard]] bool is_ordinary() const { return x_.is_ordinary() && y_.is_ordinary(); }

  /// The logits of one chunk of a strip.
  void fill(const Strip<T>& strip, Index c) const {
    using K = Kernel<T>;
    const Index begin = c * K::chunk, end = round_up(plan_.chunk_end(c), K::width);
    for (Index k = 0; k < depth(); k += depth_from(k))
      for (Index j = begin; j < end; j += K::width)
        for (Index r = 0; r < strip.rows; r += K::height)
          add_block(strip.first + r, j, k, strip.at(r, j), K::chunk);
  }

  /// The logits s_ij with j = i + shift of all rows that have one, by the same sums as in fill():
  /// equal rows have equal bits.
  void diagonal(T* s, Index shift = 0) const {
    using K = Kernel<T>;
    const Index rows = (std::min)(plan_.rows, plan_.cols - shift);
    const double work = double(rows) * double(K::height + K::width) * double(depth());
    parallel_for((rows + K::height - 1) / K::height, work, [&](Index group) {
      const Index first = group * K::height, last = (std::min)(first + K::height, rows);
      alignas(64) T block[std::size_t(K::height * K::width)];
      const Index begin = (first + shift) / K::width * K::width;
      for (Index j = begin; j < last + shift; j += K::width) {
        for (Index k = 0; k < depth(); k += depth_from(k)) add_block(first, j, k, block, K::width);
        const Index from = (std::max)(first, j - shift);
        const Index to = (std::min)(last, j - shift + K::width);
        for (Index i = from; i < to; ++i) s[i] = block[(i - first) * K::width + i + shift - j];
      }
    });
  }

  /// dYn += G^T Xn for the rows of Yn of one chunk; the first strip sets dYn.
  void add_right(const Strip<T>& strip, Index c) const {
    using K = Kernel<T>;
    const Index begin = c * K::chunk, end = round_up(plan_.chunk_end(c), K::height);
    for_panels([&](Index panel, auto width) {
      for (Index j = begin; j < end; j += K::height)
        K::template product<1, K::chunk, 0, width>(strip.rows, strip.at(0, j), 0,
                                                   x_.natural(panel, strip.first),
                                                   y_.gradient(panel, j), width, strip.first > 0);
    });
  }

  /// dXn += G Yn for the rows begin .. end - 1 of a strip; begin is a multiple of the height. The
  /// first column sets dXn: where S is symmetric dXn is dYn, and what earlier strips added to these
  /// rows stays.
  void set_left(const Strip<T>& strip, Index begin, Index end) const {
    using K = Kernel<T>;
    constexpr Index kColumns = StripPlan<T>::block_cols;
    for (Index j = strip.origin; j < strip.beyond; j += kColumns)
      for_panels([&](Index panel, auto width) {
        for (Index r = begin; r < end; r += K::height)
          K::template product<K::chunk, 1, K::chunk, width>(
              (std::min)(kColumns, strip.beyond - j), strip.at(r, j), strip.chunk_size(),
              y_.natural(panel, j), x_.gradient(panel, strip.first + r), width, j > 0);
      });
  }

  /// Where S is symmetric, `dx` is that of z, `dy` that of `more`.
  void unpack(const View<T>& dx, const View<T>& dy, const View<T>& dmore) const {
    if (plan_.symmetric) return y_.unpack(way_back(), dx, dy);
    x_.unpack(scale_, dx, {});
    y_.unpack(scale_, dy, dmore);
  }

  /// sum_ij G_ij s_ij. Where S is symmetric the strips hold G + G^T.
  [[nodiscard]] W d_log_scale() const {
    return (plan_.symmetric ? W(0.5) : scale_) * x_.dot_with_gradient();
  }

  /// What the gradients of packed rows are to be multiplied by: the scale, or what one of two equal
  /// sides has of it.
  [[nodiscard]] W way_back() const { return plan_.symmetric ? std::sqrt(scale_) : scale_; }

 private:
  /// How many of the columns k and following of Xn a block product takes: not from panels of both
  /// widths.
  [[nodiscard]] Index depth_from(Index k) const {
    return k < x_.wide_d() ? (std::min)(Index{Kernel<T>::depth}, x_.wide_d() - k) : depth() - k;
  }
  /// Adds the part of so many columns to the logits of a block; the first sets them.
  void add_block(Index i, Index j, Index k, T* s, Index s_stride) const {
    using K = Kernel<T>;
    if (K::narrow == K::width || k < x_.wide_d())
      K::template product<K::width, 1, K::width>(depth_from(k), x_.left(i, k), x_.panel_size(),
                                                 y_.right(j, k), s, s_stride, k > 0);
    else
      K::template product<K::narrow, 1, 0>(depth_from(k), x_.left(i, k), 0, y_.right(j, k), s,
                                           s_stride, k > 0);
  }

  /// f(panel, its width as a constant) for the panels of natural and gradient.
  template <class F>
  void for_panels(const F& f) const {
    using K = Kernel<T>;
    for (Index panel = 0; panel < x_.panels(); ++panel)
      if (x_.is_wide(panel))
        f(panel, std::integral_constant<Index, K::width>{});
      else
        f(panel, std::integral_constant<Index, K::narrow>{});
  }

  StripPlan<T> plan_{};
  Side<T> x_{};
  Side<T> y_{};
  W scale_ = 1;
};

/// Logits that the caller computed, by whatever critic.
template <class T>
class GivenLogits {
 public:
  explicit GivenLogits(const View<const T>& s) : s_(s), plan_(s.rows, s.cols) {}

  /// Where G goes, times `sign`; without it only values are computed.
  void gradient_to(const View<T>& g, T sign) {
    g_ = g;
    sign_ = sign;
  }

  [[nodiscard]] const StripPlan<T>& plan() const { return plan_; }
  [[nodiscard]] Index depth() const { return 4; }
  [[nodiscard]] Wide<T> bound() const { return std::numeric_limits<Wide<T>>::infinity(); }

  void fill(const Strip<T>& strip, Index c) const {
    for (Index r = 0; r < strip.rows; ++r)
      for (Index j = c * StripPlan<T>::chunk; j < plan_.chunk_end(c); ++j)
        *strip.at(r, j) = s_(strip.first + r, j);
  }

  void add_right(const Strip<T>& strip, Index c) const {
    for (Index r = 0; r < strip.rows; ++r)
      for (Index j = c * StripPlan<T>::chunk; j < plan_.chunk_end(c); ++j)
        g_(strip.first + r, j) = sign_ * *strip.at(r, j);
  }

  void set_left(const Strip<T>& /*strip*/, Index /*begin*/, Index /*end*/) const {}

 private:
  View<const T> s_{};
  View<T> g_{};
  T sign_ = 1;
  StripPlan<T> plan_{};
};

/// Refuses logits beyond `limit` in magnitude. Norms bound them beforehand; only where that bound
/// fails does a sweep look at each.
template <class T>
void check_logits(const char* function, const EmbeddingLogits<T>& logits, Wide<T> limit,
                  T* strip_data) {
  if (logits.bound() <= limit) return;
  const StripPlan<T>& plan = logits.plan();
  plan.for_parts(strip_data, false, [&](Index /*index*/, const Strip<T>& strip) {
    strip.for_chunks(plan.part_work(logits.depth()), [&](Index c) { logits.fill(strip, c); });
    for (Index r = 0; r < strip.rows; ++r)
      for (Index j = strip.origin; j < strip.beyond; ++j)
        if (!(std::fabs(Wide<T>(*strip.at(r, j))) <= limit))
          refuse_overflow(function,
                          "the logit of row %lld and column %lld overflows the scalar type",
                          number(strip.first + r), number(j));
  });
}

/// The same for the caller's logits.
template <class T>
void check_logits(const char* function, const View<const T>& s, Wide<T> limit) {
  for (Index i = 0; i < s.rows; ++i)
    for (Index j = 0; j < s.cols; ++j)
      if (!(std::fabs(Wide<T>(s(i, j))) <= limit))
        refuse_overflow(function,
                        "the logit of row %lld and column %lld is so large that the loss overflows "
                        "the scalar type",
                        number(i), number(j));
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_LOGITS_HPP
