// The matrix product of the engine: a register-blocked micro-kernel of packs. Where Eigen has no
// packets for a scalar type, and everywhere if the whole program defines CONTRASTIVE_EIGEN_PRODUCT,
// Eigen's own product takes its place.
#ifndef CONTRASTIVE_DETAIL_KERNEL_HPP
#define CONTRASTIVE_DETAIL_KERNEL_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "pack.hpp"

namespace contrastive::detail {

/// The product of a block: C (height x width) = A B, or C += A B.
///
/// Entry (r, q) of A lies at a[r * kRowStep + q * kDepthStep] for q < kPart; the next kPart columns
/// of A lie part_step further, and so on (kPart of 0: all are in one part). Row q of B lies at
/// b + q * kWidth, row r of C at c + r * c_stride; both aligned for packets. Each entry of C sums
/// over q in order, wherever it lies in the block.
///
/// A block is kWidth wide: `width`, or `narrow` for what remains of a matrix, at a lower rate.
template <class T, bool kPackets>
struct BlockProduct {
  using P = Pack<T, PackKind::packet>;
  static constexpr Index width = 2 * P::size;
  // Where a packet is short there is little to save.
  static constexpr Index narrow = P::size * Index(sizeof(T)) >= 32 ? P::size : width;
  static constexpr Index height = rows_in_registers;

  template <Index kRowStep, Index kDepthStep, Index kPart, Index kWidth = width>
  CONTRASTIVE_NOINLINE static void product(Index depth, const T* a, Index part_step, const T* b,
                                           T* c, Index c_stride, bool add) {
    product<kRowStep, kDepthStep, kPart, kWidth>(depth, a, part_step, b, c, c_stride, add,
                                                 std::make_index_sequence<std::size_t(height)>{});
  }

  /// out = the transpose of `in` (rows x cols, multiples of `narrow`); rows are in_stride and
  /// out_stride apart.
  static void transpose(Index rows, Index cols, const T* in, Index in_stride, T* out,
                        Index out_stride) {
    for (Index i = 0; i < rows; i += P::size)
      for (Index j = 0; j < cols; j += P::size)
        P::transpose(in + i * in_stride + j, in_stride, out + j * out_stride + i, out_stride);
  }

 private:
  template <Index kRowStep, Index kDepthStep, Index kPart, Index kWidth, std::size_t... Row>
  CONTRASTIVE_INLINE static void product(Index depth, const T* a, Index part_step, const T* b, T* c,
                                         Index c_stride, bool add, std::index_sequence<Row...>) {
    constexpr bool wide = kWidth == width;
    (prefetch(c + Index(Row) * c_stride), ...);
    P left[] = {(static_cast<void>(Row), P(T(0)))...};
    P right[] = {(static_cast<void>(Row), P(T(0)))...};
    for (Index begin = 0; begin < depth; begin += kPart) {
      const Index part = kPart == 0 ? depth : (std::min)(kPart, depth - begin);
      const T* a_part = a;
      for (Index q = 0; q < part; ++q) {
        const P b_left = P::at(b), b_right = P::at(b + kWidth - P::size);
        (step<wide>(a_part[Index(Row) * kRowStep], b_left, b_right, left[Row], right[Row]), ...);
        a_part += kDepthStep;
        b += kWidth;
      }
      if (kPart == 0) break;
      a += part_step;
    }
    (store<wide>(c + Index(Row) * c_stride, add, left[Row], right[Row]), ...);
  }

  CONTRASTIVE_INLINE static void prefetch(const T* c) {
    P::prefetch(c);
    if (width * Index(sizeof(T)) > 64) P::prefetch(c + P::size);
  }
  template <bool kWide>
  CONTRASTIVE_INLINE static void step(T a, const P& b_left, const P& b_right, P& left, P& right) {
    const P broadcast(a);
    left = multiply_add(broadcast, b_left, left);
    if (kWide) right = multiply_add(broadcast, b_right, right);
  }
  template <bool kWide>
  CONTRASTIVE_INLINE static void store(T* c, bool add, const P& left, const P& right) {
    (add ? P::at(c) + left : left).store(c);
    if (kWide) (add ? P::at(c + P::size) + right : right).store(c + P::size);
  }
};

/// The same by Eigen's product. The block's fixed height keeps Eigen from sharing one block out to
/// threads, which would make the order of its sums depend on their number.
template <class T>
struct BlockProduct<T, false> {
  static constexpr Index height = 24;
  static constexpr Index width = 16;
  static constexpr Index narrow = width;

  template <Index kRowStep, Index kDepthStep, Index kPart, Index kWidth = width>
  static void product(Index depth, const T* a, Index part_step, const T* b, T* c, Index c_stride,
                      bool add) {
    using Eigen::Dynamic;
    using Eigen::RowMajor;
    Eigen::Map<Eigen::Matrix<T, height, width, RowMajor>, 0, Eigen::OuterStride<>> block(
        c, Eigen::OuterStride<>(c_stride));
    if (!add) block.setZero();
    for (Index begin = 0; begin < depth; begin += kPart) {
      const Index part = kPart == 0 ? depth : (std::min)(kPart, depth - begin);
      const Eigen::Map<const Eigen::Matrix<T, height, Dynamic>, 0,
                       Eigen::Stride<kDepthStep, kRowStep>>
          left(a, height, part);
      const Eigen::Map<const Eigen::Matrix<T, Dynamic, width, RowMajor>> right(b, part, width);
      block.noalias() += left * right;
      if (kPart == 0) break;
      a += part_step;
      b += part * width;
    }
  }

  static void transpose(Index rows, Index cols, const T* in, Index in_stride, T* out,
                        Index out_stride) {
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < cols; ++j) out[j * out_stride + i] = in[i * in_stride + j];
  }
};

/// What small batches are computed with (small_batch.hpp): one packet wide, and that a small one,
/// so that little of it is padding. Pointers are aligned for packets, and what they point to is
/// padded to whole ones.
template <class T>
struct SmallKernel {
  using P = Pack<T, PackKind::small_packet>;
  static constexpr Index lanes = P::size;
  static constexpr Index height = 8;
  /// Where there is none, the engine takes small batches too.
  static constexpr bool exists = has_packs<T> && lanes > 1;

  /// C (height x lanes) = A B; entry (r, q) of A lies at a[r * a_row + q * a_depth], row q of B and
  /// row r of C at b + q * b_row and c + r * c_row.
  CONTRASTIVE_NOINLINE static void product(Index depth, const T* a, Index a_row, Index a_depth,
                                           const T* b, Index b_row, T* c, Index c_row) {
    product(depth, a, a_row, a_depth, b, b_row, c, c_row,
            std::make_index_sequence<std::size_t(height)>{});
  }

  /// A packet's worth of entries; like the next, of any alignment.
  static void copy(const T* in, T* out) { P::unaligned(in).store_unaligned(out); }

  /// out = the transpose of `in`, both lanes x lanes.
  static void transpose(const T* in, Index in_row, T* out, Index out_row) {
    P::transpose(in, in_row, out, out_row);
  }

  /// Replaces s by e^(s - reference) and returns their sum; the reference is the largest s.
  static T exponentials(T* s, Index count, T& reference) {
    P largest = P::at(s);
    for (Index l = lanes; l < count; l += lanes) largest = larger(largest, P::at(s + l));
    reference = largest.largest();
    // Where all are -inf: -inf - -inf would be nan.
    const P finite((std::max)(reference, std::numeric_limits<T>::lowest()));
    P sum(0);
    for (Index l = 0; l < count; l += lanes) {
      const P e = exp_or_zero(P::at(s + l) - finite);
      e.store(s + l);
      sum += e;
    }
    return sum.sum();
  }

  /// The same for a packet's worth of columns of `rows` rows: e becomes the exponentials.
  static void column_exponentials(const T* s, Index rows, Index row, T* e, T* references, T* sums) {
    P largest = P::at(s);
    for (Index i = 1; i < rows; ++i) largest = larger(largest, P::at(s + i * row));
    largest.store(references);
    const P finite = larger(largest, P(std::numeric_limits<T>::lowest()));
    P sum[2] = {P(0), P(0)};
    for (Index i = 0; i < rows; ++i) {
      const P exponential = exp_or_zero(P::at(s + i * row) - finite);
      exponential.store(e + i * row);
      sum[1] += exponential;
      std::swap(sum[0], sum[1]);
    }
    (sum[0] + sum[1]).store(sums);
  }

  /// s = factor s + factors e
  static void combine(T* s, T factor, const T* e, const T* factors, Index count) {
    for (Index l = 0; l < count; l += lanes)
      multiply_add(P::at(s + l), P(factor), P::at(factors + l) * P::at(e + l)).store(s + l);
  }

  struct Sigmoids {
    T above = 0;                   // sum of max(x, 0)
    T sum = 0;                     // sum of the sigmoids
    T excess[std::size_t(lanes)];  // prod (1 + e^-|x|) - 1 over every lanes-th x
  };

  /// Replaces x by sigmoid(x) = (x > 0 ? 1 : e) / (1 + e), e = e^-|x|.
  static Sigmoids sigmoids(T* x, Index count) {
    P above(0), sum(0), excess(0);
    for (Index l = 0; l < count; l += lanes) {
      const P value = P::at(x + l), e = exp_or_zero(P(0) - absolute(value));
      const P sigmoid = where_greater(value, P(0), P(1), e) / (e + P(1));
      sigmoid.store(x + l);
      above += larger(value, P(0));
      sum += sigmoid;
      excess += multiply_add(excess, e, e);
    }
    Sigmoids result;
    result.above = above.sum();
    result.sum = sum.sum();
    excess.store_unaligned(result.excess);
    return result;
  }

 private:
  template <std::size_t... Row>
  CONTRASTIVE_INLINE static void product(Index depth, const T* a, Index a_row, Index a_depth,
                                         const T* b, Index b_row, T* c, Index c_row,
                                         std::index_sequence<Row...>) {
    P sums[] = {(static_cast<void>(Row), P(T(0)))...};
    for (Index q = 0; q < depth; ++q) {
      const P right = P::at(b);
      ((sums[Row] = multiply_add(P(a[Index(Row) * a_row]), right, sums[Row])), ...);
      a += a_depth;
      b += b_row;
    }
    (sums[Row].store(c + Index(Row) * c_row), ...);
  }
};

/// The shapes of the engine, all in entries.
///
///     height x width   what a block product computes in registers
///     chunk            columns of logits that lie together, and whose exponentials are taken while
///                      they are hot; a multiple of both
///     depth            rows of a right operand that stay in the first-level cache
template <class T>
struct Kernel : BlockProduct<T, has_packets<T>> {
  static constexpr Index depth = 256;
  static constexpr Index chunk = 48 % Kernel::width == 0 ? 48 : 64;
  static_assert(chunk % Kernel::width == 0 && chunk % Kernel::height == 0, "blocks tile a chunk");
};

/// n rounded up to a multiple of `step`.
constexpr Index round_up(Index n, Index step) {
  return (n + step - 1) / step * step;
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_KERNEL_HPP
