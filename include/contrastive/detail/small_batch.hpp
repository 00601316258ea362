// The plain path of small batches: S, G and the embeddings whole, in memory that fits the
// first-level cache, without strips, chunks and options.
//
//     S    = scale Xn Yn^T                  xn = x / |x| under cosine, else x
//     dXn  = G Yn       dYn = G^T Xn
//     dx   = scale (dxn - xn (xn . dxn)) / |x|    under cosine, else scale dxn
#ifndef CONTRASTIVE_DETAIL_SMALL_BATCH_HPP
#define CONTRASTIVE_DETAIL_SMALL_BATCH_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "../options.hpp"
#include "../workspace.hpp"
#include "kernel.hpp"
#include "norm.hpp"
#include "softmax.hpp"
#include "view.hpp"

namespace contrastive::detail {

/// Whether a batch goes without weights, masks and other targets.
inline bool is_plain(const SoftmaxOptions& options) {
  return options.query_ids.empty() && options.pos_ids.empty() && options.weights.empty()
         && options.label_smoothing == 0 && options.positive_margin == 0 && !options.decoupled
         && options.log_prior.empty() && !options.false_negative_margin.has_value();
}
inline bool is_plain(const SigLipOptions& options) {
  return options.query_ids.empty() && options.pos_ids.empty() && options.weights.empty();
}

template <class T>
class SmallBatch {
 public:
  using W = Wide<T>;
  using K = SmallKernel<T>;
  static constexpr Index largest_batch = 32;
  static constexpr Index largest_dim = 256;    // beyond, sums want to be cut into blocks
  static constexpr Index largest_size = 2048;  // B d

  /// Takes a batch on, or leaves it to the engine: one that is not small, has options, or has
  /// contents that want a closer look (rows that are zero, tiny, huge or not finite, logits that
  /// may exceed `limit`).
  template <class Options>
  bool take(const View<const T>& x, const View<const T>& y, const Options& options,
            long double scale, W limit, bool gradient, Scratch& scratch) {
    if constexpr (K::exists) {
      n_ = x.rows;
      d_ = x.cols;
      if (n_ > largest_batch || d_ > largest_dim || n_ * d_ > largest_size || !is_plain(options))
        return false;
      cosine_ = options.similarity == Similarity::cosine;
      scale_ = W(scale);
      padded_n_ = round_up(n_, block);
      padded_d_ = round_up(d_, block);
      const Index size = padded_n_ * padded_d_, logits = padded_n_ * padded_n_;
      lengths_ = scratch.take<W>(2 * padded_n_);
      x_ = scratch.take<T>((gradient ? 4 : 3) * size + 2 * logits);
      y_ = x_ + size;
      dx_ = y_ + size;
      dy_ = dx_ + size;  // with a gradient
      s_ = gradient ? dy_ + size : dy_;
      columns_ = s_ + logits;
      load(x, x_);
      load(y, y_);
      W largest_x = 1, largest_y = 1;
      taken_ = normalise(x_, lengths_, largest_x) && normalise(y_, lengths_ + padded_n_, largest_y)
               && scale_ * largest_x * largest_y <= limit;
      return taken_;
    }
    return false;
  }

  [[nodiscard]] bool taken() const { return taken_; }

  /// L_i of the rows, and the mean over them; G if there is to be a gradient.
  W row_loss(bool gradient, W* losses) {
    fill(0);
    const W share = 1 / W(n_);
    W positives[std::size_t(largest_batch)];
    LineSoftmax<W> rows[std::size_t(largest_batch)];
    take_positives(positives);
    row_softmax(positives, rows);
    for (Index i = 0; i < n_; ++i) {
      losses[i] = rows[i].loss;
      if (!gradient) continue;
      T* s = s_ + i * padded_n_;
      multiply(s, T(share * rows[i].factor));
      s[i] = T(-share * rows[i].miss);
    }
    return mean(losses);
  }

  /// The same, of the means of a row and its column. Each takes exponentials of its own.
  W symmetric_loss(bool gradient, W* losses) {
    fill(0);
    const W share = 1 / W(2 * n_);
    W positives[std::size_t(largest_batch)];
    LineSoftmax<W> rows[std::size_t(largest_batch)], columns[std::size_t(largest_batch)];
    take_positives(positives);
    column_softmax(positives, columns);
    row_softmax(positives, rows);
    alignas(64) T factors[std::size_t(largest_batch)] = {};
    for (Index j = 0; j < n_; ++j) factors[j] = T(share * columns[j].factor);
    for (Index i = 0; i < n_; ++i) {
      losses[i] = (rows[i].loss + columns[i].loss) / 2;
      if (!gradient) continue;
      T* s = s_ + i * padded_n_;
      K::combine(s, T(share * rows[i].factor), columns_ + i * padded_n_, factors, padded_n_);
      s[i] = T(-share * (rows[i].miss + columns[i].miss));
    }
    return mean(losses);
  }

  /// L_i = sum_j softplus(t_ij), t = s + bias off the diagonal and -(s + bias) on it; G_ij is
  /// sigmoid(t_ij) / B, and its negative on the diagonal. `d_bias` becomes the sum of G.
  W sigmoid_loss(double bias, W* losses, W& d_bias) {
    fill(W(bias));
    const W share = 1 / W(n_);
    typename K::Sigmoids sums[std::size_t(largest_batch)];
    for (Index i = 0; i < n_; ++i) {
      T* row = line(i);
      row[i] = -row[i];
      sums[i] = K::sigmoids(row, padded_n_);
    }
    d_bias = 0;
    for (Index i = 0; i < n_; ++i) {
      T* row = s_ + i * padded_n_;
      losses[i] = W(sums[i].above) + std::log1p(joined(sums[i].excess));
      d_bias += share * (W(sums[i].sum) - 2 * W(row[i]));
      multiply(row, T(share));
      row[i] = -row[i];
    }
    return mean(losses);
  }

  /// dX and dY; after one of the losses.
  void differentiate() {
    product(padded_d_, n_, s_, padded_n_, 1, y_, padded_d_, dx_);
    product(padded_d_, n_, s_, 1, padded_n_, x_, padded_d_, dy_);
    d_log_scale_ = scale_ * through_norms(x_, lengths_, dx_);
    through_norms(y_, lengths_ + padded_n_, dy_);
  }

  /// sum_ij G_ij s_ij
  [[nodiscard]] W d_log_scale() const { return d_log_scale_; }

  void write(const View<T>& dx, const View<T>& dy) const {
    store(dx_, dx);
    store(dy_, dy);
  }

 private:
  static constexpr Index block = (std::max)(K::lanes, K::height);

  /// Row i of S, what pads it at -inf.
  [[nodiscard]] T* line(Index i) const {
    T* result = s_ + i * padded_n_;
    std::fill(result + n_, result + padded_n_, minus_infinity<T>);
    return result;
  }

  [[nodiscard]] W mean(const W* losses) const {
    W sum = 0;
    for (Index i = 0; i < n_; ++i) sum += losses[i];
    return sum / W(n_);
  }

  /// C (n x cols) = A B, where entry (r, q) of A lies at a[r * a_row + q * a_depth] and rows of B
  /// and C lie `row` apart.
  void product(Index cols, Index depth, const T* a, Index a_row, Index a_depth, const T* b,
               Index row, T* c) const {
    for (Index k = 0; k < cols; k += K::lanes)
      for (Index i = 0; i < n_; i += K::height)
        K::product(depth, a + i * a_row, a_row, a_depth, b + k, row, c + i * row + k, row);
  }

  void multiply(T* row, T factor) const {
    for (Index j = 0; j < padded_n_; j += block)
      for (Index l = 0; l < block; ++l) row[j + l] *= factor;
  }

  /// Rows one by one, padded with zeros.
  void load(const View<const T>& from, T* to) const {
    if (n_ < padded_n_ || d_ < padded_d_) std::fill_n(to, padded_n_ * padded_d_, T(0));
    copy(n_, d_, from.data, from.row_stride, from.col_stride, to, padded_d_, 1);
  }

  void store(const T* from, const View<T>& to) const {
    if (to.row_stride == 1)  // the lines that lie together are the same side of `to` as in load()
      copy(d_, n_, from, 1, padded_d_, to.data, to.col_stride, 1);
    else
      copy(n_, d_, from, padded_d_, 1, to.data, to.row_stride, to.col_stride);
  }

  /// Entry (i, k) from from[i * from_i + k * from_k] to to[i * to_i + k * to_k].
  CONTRASTIVE_NOINLINE static void copy(Index rows, Index cols, const T* from, Index from_i,
                                        Index from_k, T* to, Index to_i, Index to_k) {
    const bool packets = to_k == 1 && (from_k == 1 || from_i == 1);
    const Index tiled_cols = packets ? cols / K::lanes * K::lanes : 0;
    Index i = 0;
    if (packets && from_k != 1)
      for (; i + K::lanes <= rows; i += K::lanes)
        for (Index k = 0; k < tiled_cols; k += K::lanes)
          K::transpose(from + i + k * from_k, from_k, to + i * to_i + k, to_i);
    const Index tiled_rows = i;
    for (i = 0; i < rows; ++i) {
      const T* in = from + i * from_i;
      T* out = to + i * to_i;
      Index k = i < tiled_rows ? tiled_cols : 0;
      if (from_k == 1 && packets)
        for (; k < tiled_cols; k += K::lanes) K::copy(in + k, out + k);
      for (; k < cols; ++k) out[k * to_k] = in[k * from_k];
    }
  }

  /// prod (1 + q_l) - 1
  [[nodiscard]] static W joined(const T* q) {
    W products[std::size_t(K::lanes)];
    for (Index l = 0; l < K::lanes; ++l) products[l] = W(q[l]);
    for (Index half = K::lanes / 2; half > 0; half /= 2)
      for (Index l = 0; l < half; ++l)
        products[l] += products[l + half] + products[l] * products[l + half];
    return products[0];
  }

  [[nodiscard]] W dot(const T* a, const T* b) const {
    W lanes[std::size_t(norm_lanes)];
    for (Index l = 0; l < norm_lanes; ++l) lanes[l] = W(a[l]) * W(b[l]);
    for (Index k = norm_lanes; k < padded_d_; k += norm_lanes)
      for (Index l = 0; l < norm_lanes; ++l) lanes[l] += W(a[k + l]) * W(b[k + l]);
    return sum_of_lanes(lanes, 1);
  }

  /// xn in place of x, and whether all rows are ordinary. `largest` becomes that of the norms under
  /// dot, where products of rows must not leave the range of T either.
  CONTRASTIVE_NOINLINE bool normalise(T* x, W* lengths, W& largest) const {
    const W limit = std::sqrt(std::sqrt(W((std::numeric_limits<T>::max)())));
    // One step of all rows after another, so that no row waits for the last.
    for (Index i = 0; i < n_; ++i) lengths[i] = dot(x + i * padded_d_, x + i * padded_d_);
    for (Index i = 0; i < n_; ++i) {
      if (!is_ordinary(lengths[i])) return false;
      lengths[i] = std::sqrt(lengths[i]);
      if (cosine_) continue;
      if (!(lengths[i] > 1 / limit && lengths[i] < limit)) return false;
      largest = (std::max)(largest, lengths[i]);
    }
    for (Index i = 0; i < n_ && cosine_; ++i, x += padded_d_) {
      const W length = lengths[i], inverse = 1 / length;
      for (Index k = 0; k < padded_d_; k += block)
        for (Index l = 0; l < block; ++l)
          x[k + l] = std::is_same_v<T, W> ? T(W(x[k + l]) / length) : T(W(x[k + l]) * inverse);
    }
    return true;
  }

  /// S + shift. The transpose of Yn lies where dX will.
  void fill(W shift) {
    for (Index j = 0; j < padded_n_; j += K::lanes)
      for (Index k = 0; k < d_; k += K::lanes)
        K::transpose(y_ + j * padded_d_ + k, padded_d_, dx_ + k * padded_n_ + j, padded_n_);
    product(padded_n_, d_, x_, padded_d_, 1, dx_, padded_n_, s_);
    for (T* s = s_; s < s_ + n_ * padded_n_; s += block)
      for (Index l = 0; l < block; ++l) s[l] = T(W(s[l]) * scale_ + shift);
  }

  /// The diagonal of S, which becomes -inf.
  void take_positives(W* positives) const {
    for (Index i = 0; i < n_; ++i) {
      T* s = line(i);
      positives[i] = W(s[i]);
      s[i] = minus_infinity<T>;
    }
  }

  /// The softmax of each row; S becomes the exponentials. One step of all rows after another, so
  /// that no row waits for the last.
  void row_softmax(const W* positives, LineSoftmax<W>* rows) const {
    ExpSum<W> others[std::size_t(largest_batch)];
    for (Index i = 0; i < n_; ++i) {
      T reference;
      others[i].sum = W(K::exponentials(s_ + i * padded_n_, padded_n_, reference));
      others[i].reference = W(reference);
    }
    for (Index i = 0; i < n_; ++i) rows[i] = coupled_softmax(positives[i], others[i]);
  }

  /// The softmax of each column; the exponentials go beside S.
  void column_softmax(const W* positives, LineSoftmax<W>* columns) const {
    alignas(64) T sums[std::size_t(largest_batch)];
    alignas(64) T references[std::size_t(largest_batch)];
    for (Index j = 0; j < padded_n_; j += K::lanes)
      K::column_exponentials(s_ + j, n_, padded_n_, columns_ + j, references + j, sums + j);
    for (Index j = 0; j < n_; ++j)
      columns[j] = coupled_softmax(positives[j], ExpSum<W>{W(references[j]), W(sums[j])});
  }

  /// dx in place of dxn; returns sum_i xn_i . dxn_i.
  CONTRASTIVE_NOINLINE W through_norms(const T* __restrict unit, const W* lengths,
                                       T* __restrict dx) const {
    const W scale = scale_;
    W along[std::size_t(largest_batch)];
    for (Index i = 0; i < n_; ++i) along[i] = dot(unit + i * padded_d_, dx + i * padded_d_);
    W sum = 0;
    for (Index i = 0; i < n_; ++i, unit += padded_d_, dx += padded_d_) {
      sum += along[i];
      const W radial = cosine_ ? along[i] : W(0), length = cosine_ ? lengths[i] : W(1);
      const W factor = scale / length;
      for (Index k = 0; k < padded_d_; k += block) {
        for (Index l = 0; l < block; ++l) {
          const W tangent = W(dx[k + l]) - W(unit[k + l]) * radial;
          dx[k + l] = std::is_same_v<T, W> ? T(scale * tangent / length) : T(factor * tangent);
        }
      }
    }
    return sum;
  }

  Index n_ = 0, d_ = 0;
  Index padded_n_ = 0, padded_d_ = 0;
  bool taken_ = false;
  bool cosine_ = true;
  W scale_ = 1;
  W d_log_scale_ = 0;
  W* lengths_ = nullptr;
  T* x_ = nullptr;  // padded_n x padded_d, as the next three
  T* y_ = nullptr;
  T* dx_ = nullptr;
  T* dy_ = nullptr;
  T* s_ = nullptr;        // padded_n x padded_n: S, then G
  T* columns_ = nullptr;  // the same: exponentials of columns
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_SMALL_BATCH_HPP
