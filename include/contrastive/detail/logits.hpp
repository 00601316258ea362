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
                  Similarity similarity, long double scale, Scratch& scratch)
      : x_(Side<T>::Role::left, x, {}, similarity, scratch),
        y_(Side<T>::Role::right, y, more, similarity, scratch),
        scale_(W(scale)),
        plan_(x.rows, y_.rows()) {}

  [[nodiscard]] const StripPlan<T>& plan() const { return plan_; }
  [[nodiscard]] Index depth() const { return x_.dim(); }
  [[nodiscard]] W scale() const { return scale_; }
  /// |s_ij| is at most this, which may be infinite.
  [[nodiscard]] W bound() const { return scale_ * x_.largest_norm() * y_.largest_norm(); }
  [[nodiscard]] const Side<T>& x() const { return x_; }
  [[nodiscard]] const Side<T>& y() const { return y_; }

  /// `natural` asks for Xn and Yn beside the operands of S, though there be no gradient.
  void pack(bool natural, bool gradient, Scratch& scratch) {
    // The scale goes to the left side. Where that side alone would leave the range of T (dot
    // products of huge or tiny rows), a power of two moves to the other side.
    const W left = scale_ * x_.largest_norm(), right = y_.largest_norm();
    const W large = std::sqrt((std::numeric_limits<T>::max)());
    const auto ordinary = [&](W norm) { return norm == 0 || (norm > 1 / large && norm < large); };
    int shift = 0;
    if (!(ordinary(left) && ordinary(right)) && std::isfinite(left * right) && left * right > 0)
      shift = (std::ilogb(left) - std::ilogb(right)) / 2;
    x_.pack(std::ldexp(scale_, -shift), natural, gradient, scratch);
    y_.pack(std::ldexp(W(1), shift), natural, gradient, scratch);
  }

  /// The logits of one chunk of a strip.
  void fill(const Strip<T>& strip, Index c) const {
    using K = Kernel<T>;
    constexpr Index kDepthBlock = 256;  // what stays in the first-level cache
    const Index begin = c * K::chunk, end = round_up(plan_.chunk_end(c), K::width);
    for (Index k = 0; k < depth(); k += kDepthBlock) {
      const Index block = (std::min)(kDepthBlock, depth() - k);
      for (Index j = begin; j < end; j += K::width)
        for (Index r = 0; r < strip.rows; r += K::height)
          K::template product<1, K::height>(block, x_.left(strip.first + r, k), y_.right(j, k),
                                            strip.at(r, j), K::tile, k > 0);
    }
  }

  /// The logits s_ii of all rows, by the same sums as in fill(): equal rows have equal bits.
  void diagonal(T* s) const {
    using K = Kernel<T>;
    constexpr Index kDepthBlock = 256;  // as in fill()
    const double work = double(plan_.rows) * double(K::height + K::width) * double(depth());
    parallel_for((plan_.rows + K::height - 1) / K::height, work, [&](Index group) {
      const Index first = group * K::height, last = (std::min)(first + K::height, plan_.rows);
      alignas(64) T block[std::size_t(K::height * K::width)];
      for (Index j = first / K::width * K::width; j < last; j += K::width) {
        for (Index k = 0; k < depth(); k += kDepthBlock)
          K::template product<1, K::height>((std::min)(kDepthBlock, depth() - k), x_.left(first, k),
                                            y_.right(j, k), block, K::width, k > 0);
        for (Index i = (std::max)(first, j); i < (std::min)(last, j + K::width); ++i)
          s[i] = block[(i - first) * K::width + i - j];
      }
    });
  }

  /// dYn += G^T Xn for the rows of Yn of one chunk; the first strip sets dYn.
  void add_right(const Strip<T>& strip, Index c) const {
    using K = Kernel<T>;
    const Index begin = c * K::chunk, end = round_up(plan_.chunk_end(c), K::height);
    for (Index panel = 0; panel < x_.panels(); ++panel)
      for (Index j = begin; j < end; j += K::height)
        K::template product<1, K::tile>(strip.rows, strip.at(0, j), x_.natural(panel, strip.first),
                                        y_.gradient(panel, j), K::width, strip.first > 0);
  }

  /// dXn = G Yn for the rows begin .. end - 1 of a strip; begin is a multiple of the height.
  void set_left(const Strip<T>& strip, Index begin, Index end) const {
    using K = Kernel<T>;
    for (Index j = 0; j < plan_.cols; j += K::tile)
      for (Index panel = 0; panel < y_.panels(); ++panel)
        for (Index r = begin; r < end; r += K::height)
          K::template product<K::tile, 1>((std::min)(K::tile, plan_.cols - j), strip.at(r, j),
                                          y_.natural(panel, j), x_.gradient(panel, strip.first + r),
                                          K::width, j > 0);
  }

  void unpack(const View<T>& dx, const View<T>& dy, const View<T>& dmore) const {
    x_.unpack(scale_, dx, {});
    y_.unpack(scale_, dy, dmore);
  }

  /// sum_ij G_ij s_ij
  [[nodiscard]] W d_log_scale(Scratch& scratch) const {
    return scale_ * x_.dot_with_gradient(scratch);
  }

 private:
  Side<T> x_{};
  Side<T> y_{};
  W scale_ = 1;
  StripPlan<T> plan_{};
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
  for (Index index = 0; index < plan.strips(); ++index) {
    const Strip<T> strip = plan.strip(index, strip_data);
    parallel_for(plan.chunks(), plan.strip_work(logits.depth()),
                 [&](Index c) { logits.fill(strip, c); });
    for (Index r = 0; r < strip.rows; ++r)
      for (Index j = 0; j < plan.cols; ++j)
        if (!(std::fabs(Wide<T>(*strip.at(r, j))) <= limit))
          refuse_overflow(function, "the logit of row " + number(strip.first + r) + " and column "
                                        + number(j) + " overflows the scalar type");
  }
}

/// The same for the caller's logits.
template <class T>
void check_logits(const char* function, const View<const T>& s, Wide<T> limit) {
  for (Index i = 0; i < s.rows; ++i)
    for (Index j = 0; j < s.cols; ++j)
      if (!(std::fabs(Wide<T>(s(i, j))) <= limit))
        refuse_overflow(function, "the logit of row " + number(i) + " and column " + number(j)
                                      + " is so large that the loss overflows the scalar type");
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_LOGITS_HPP
