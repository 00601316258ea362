// The matrix product of the engine: a register-blocked micro-kernel on Eigen's packets.
//
// This is the one header that touches Eigen's internals (packet_traits, PacketBlock and the packet
// functions). Where Eigen has no packets for a scalar type, and everywhere if the whole program
// defines CONTRASTIVE_EIGEN_PRODUCT, Eigen's own product takes the micro-kernel's place.
#ifndef CONTRASTIVE_DETAIL_KERNEL_HPP
#define CONTRASTIVE_DETAIL_KERNEL_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>

#if defined(_MSC_VER)
#define CONTRASTIVE_INLINE __forceinline
#else
#define CONTRASTIVE_INLINE inline __attribute__((always_inline))
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"  // a packet's, as a template argument
#endif

namespace contrastive::detail {

using Eigen::Index;

#ifdef CONTRASTIVE_EIGEN_PRODUCT
inline constexpr bool use_packets = false;
#else
inline constexpr bool use_packets = true;
#endif

/// The product of a block: C (height x width) = A B, or C += A B.
///
/// Entry (r, q) of A lies at a[r * kRowStep + q * kDepthStep] for q < kPart; the next kPart columns
/// of A lie part_step further, and so on (kPart of 0: all are in one part). Row q of B (width
/// entries) lies at b + q * width, row r of C at c + r * c_stride; both aligned for packets. Each
/// entry of C sums over q in order, wherever it lies in the block.
template <class T, bool kPackets>
struct BlockProduct {
  using Packet = typename Eigen::internal::packet_traits<T>::type;
  static constexpr Index lanes = Eigen::internal::packet_traits<T>::size;
  static constexpr Index width = 2 * lanes;
  // 2 * height accumulators, two packets of b and one of a fit 16 registers or 32.
#if defined(EIGEN_VECTORIZE_AVX512)
  static constexpr Index height = 8;
#elif defined(EIGEN_VECTORIZE_NEON)
  static constexpr Index height = 12;
#else
  static constexpr Index height = 6;
#endif

  template <Index kRowStep, Index kDepthStep, Index kPart>
  static void product(Index depth, const T* a, Index part_step, const T* b, T* c, Index c_stride,
                      bool add) {
    product<kRowStep, kDepthStep, kPart>(depth, a, part_step, b, c, c_stride, add,
                                         std::make_index_sequence<std::size_t(height)>{});
  }

  /// out = the transpose of `in`, both width x width, rows out_stride and in_stride apart.
  static void transpose(const T* in, Index in_stride, T* out, Index out_stride) {
    using namespace Eigen::internal;
    for (Index i = 0; i < width; i += lanes)
      for (Index j = 0; j < width; j += lanes) {
        Square block;
        for (Index l = 0; l < lanes; ++l)
          block.packet[l] = ploadu<Packet>(in + (i + l) * in_stride + j);
        ptranspose(block);
        for (Index l = 0; l < lanes; ++l) pstoreu(out + (j + l) * out_stride + i, block.packet[l]);
      }
  }

 private:
  using Square = Eigen::internal::PacketBlock<Packet, int(lanes)>;

  template <Index kRowStep, Index kDepthStep, Index kPart, std::size_t... Row>
  CONTRASTIVE_INLINE static void product(Index depth, const T* a, Index part_step, const T* b, T* c,
                                         Index c_stride, bool add, std::index_sequence<Row...>) {
    using namespace Eigen::internal;
    (prefetch(c + Index(Row) * c_stride), ...);
    if (width * Index(sizeof(T)) > 64) (prefetch(c + Index(Row) * c_stride + lanes), ...);
    Packet left[] = {(static_cast<void>(Row), pset1<Packet>(T(0)))...};
    Packet right[] = {(static_cast<void>(Row), pset1<Packet>(T(0)))...};
    for (Index begin = 0; begin < depth; begin += kPart) {
      const Index part = kPart == 0 ? depth : (std::min)(kPart, depth - begin);
      const T* a_part = a;
      for (Index q = 0; q < part; ++q) {
        const Packet b_left = pload<Packet>(b);
        const Packet b_right = pload<Packet>(b + lanes);
        (multiply_add(a_part[Index(Row) * kRowStep], b_left, b_right, left[Row], right[Row]), ...);
        a_part += kDepthStep;
        b += width;
      }
      if (kPart == 0) break;
      a += part_step;
    }
    if (add) {
      ((left[Row] = padd(pload<Packet>(c + Index(Row) * c_stride), left[Row])), ...);
      ((right[Row] = padd(pload<Packet>(c + Index(Row) * c_stride + lanes), right[Row])), ...);
    }
    (pstore(c + Index(Row) * c_stride, left[Row]), ...);
    (pstore(c + Index(Row) * c_stride + lanes, right[Row]), ...);
  }

  CONTRASTIVE_INLINE static void multiply_add(T a, const Packet& b_left, const Packet& b_right,
                                              Packet& left, Packet& right) {
    const Packet broadcast = Eigen::internal::pset1<Packet>(a);
    left = Eigen::internal::pmadd(broadcast, b_left, left);
    right = Eigen::internal::pmadd(broadcast, b_right, right);
  }
};

/// The same by Eigen's product. The block's fixed height keeps Eigen from sharing one block out to
/// threads, which would make the order of its sums depend on their number.
template <class T>
struct BlockProduct<T, false> {
  static constexpr Index height = 24;
  static constexpr Index width = 16;

  template <Index kRowStep, Index kDepthStep, Index kPart>
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

  static void transpose(const T* in, Index in_stride, T* out, Index out_stride) {
    for (Index i = 0; i < width; ++i)
      for (Index j = 0; j < width; ++j) out[j * out_stride + i] = in[i * in_stride + j];
  }
};

/// e^x down to twice the smallest normal number, and exactly 0 below: for -inf, which stands for
/// "no candidate", too. No denormal number comes up on the way, not by a rounding of the limit
/// either: some processors take long over them.
template <class T>
struct ExpOrZero {
  T lowest = std::log(2 * (std::numeric_limits<T>::min)());

  T operator()(T x) const { return x >= lowest ? std::exp(x) : T(0); }

  template <class Packet>
  Packet packetOp(const Packet& x) const {
    using namespace Eigen::internal;
    const Packet limit = pset1<Packet>(lowest);
    return pand(pexp(pmax(x, limit)), pcmp_le(limit, x));
  }
};

/// What small batches are computed with (small_batch.hpp): one packet wide, and that at most 32
/// bytes, so that little of it is padding. Pointers are aligned for packets, and what they point to
/// is padded to whole ones.
template <class T>
struct SmallKernel {
  using Traits = Eigen::internal::packet_traits<T>;
  using Packet = std::conditional_t<(Traits::size * sizeof(T) > 32), typename Traits::half,
                                    typename Traits::type>;
  static constexpr Index lanes = Eigen::internal::unpacket_traits<Packet>::size;
  static constexpr Index height = 8;
  /// Where there is none, the engine takes small batches too.
  static constexpr bool exists = use_packets && lanes > 1 && Traits::HasExp&& Traits::HasCmp;

  /// C (height x lanes) = A B; entry (r, q) of A lies at a[r * a_row + q * a_depth], row q of B and
  /// row r of C at b + q * b_row and c + r * c_row.
  static void product(Index depth, const T* a, Index a_row, Index a_depth, const T* b, Index b_row,
                      T* c, Index c_row) {
    product(depth, a, a_row, a_depth, b, b_row, c, c_row,
            std::make_index_sequence<std::size_t(height)>{});
  }

  /// A packet's worth of entries; like the next, of any alignment.
  static void copy(const T* in, T* out) {
    Eigen::internal::pstoreu(out, Eigen::internal::ploadu<Packet>(in));
  }

  /// out = the transpose of `in`, both lanes x lanes.
  static void transpose(const T* in, Index in_row, T* out, Index out_row) {
    Eigen::internal::PacketBlock<Packet, int(lanes)> block;
    for (Index l = 0; l < lanes; ++l)
      block.packet[l] = Eigen::internal::ploadu<Packet>(in + l * in_row);
    Eigen::internal::ptranspose(block);
    for (Index l = 0; l < lanes; ++l) Eigen::internal::pstoreu(out + l * out_row, block.packet[l]);
  }

  /// Replaces s by e^(s - reference) and returns their sum; the reference is the largest s.
  static T exponentials(T* s, Index count, T& reference) {
    using namespace Eigen::internal;
    Packet largest = pload<Packet>(s);
    for (Index l = lanes; l < count; l += lanes) largest = pmax(largest, pload<Packet>(s + l));
    reference = predux_max(largest);
    // Where all are -inf: -inf - -inf would be nan.
    const Packet finite = pset1<Packet>((std::max)(reference, std::numeric_limits<T>::lowest()));
    const ExpOrZero<T> exp;
    Packet sum = pset1<Packet>(T(0));
    for (Index l = 0; l < count; l += lanes) {
      const Packet e = exp.packetOp(psub(pload<Packet>(s + l), finite));
      pstore(s + l, e);
      sum = padd(sum, e);
    }
    return predux(sum);
  }

  struct Sigmoids {
    T above = 0;                   // sum of max(x, 0)
    T sum = 0;                     // sum of the sigmoids
    T excess[std::size_t(lanes)];  // prod (1 + e^-|x|) - 1 over every lanes-th x
  };

  /// Replaces x by sigmoid(x) = (x > 0 ? 1 : e) / (1 + e), e = e^-|x|.
  static Sigmoids sigmoids(T* x, Index count) {
    using namespace Eigen::internal;
    const Packet zero = pset1<Packet>(T(0)), one = pset1<Packet>(T(1));
    const ExpOrZero<T> exp;
    Packet above = zero, sum = zero, excess = zero;
    for (Index l = 0; l < count; l += lanes) {
      const Packet value = pload<Packet>(x + l);
      const Packet e = exp.packetOp(pnegate(pabs(value)));
      const Packet sigmoid = pdiv(pselect(pcmp_lt(zero, value), one, e), padd(one, e));
      pstore(x + l, sigmoid);
      above = padd(above, pmax(value, zero));
      sum = padd(sum, sigmoid);
      excess = padd(excess, pmadd(excess, e, e));
    }
    Sigmoids result;
    result.above = predux(above);
    result.sum = predux(sum);
    pstoreu(result.excess, excess);
    return result;
  }

 private:
  template <std::size_t... Row>
  CONTRASTIVE_INLINE static void product(Index depth, const T* a, Index a_row, Index a_depth,
                                         const T* b, Index b_row, T* c, Index c_row,
                                         std::index_sequence<Row...>) {
    using namespace Eigen::internal;
    Packet sums[] = {(static_cast<void>(Row), pset1<Packet>(T(0)))...};
    for (Index q = 0; q < depth; ++q) {
      const Packet right = pload<Packet>(b);
      ((sums[Row] = pmadd(pset1<Packet>(a[Index(Row) * a_row]), right, sums[Row])), ...);
      a += a_depth;
      b += b_row;
    }
    (pstore(c + Index(Row) * c_row, sums[Row]), ...);
  }
};

/// The shapes of the engine, all in entries.
///
///     height x width   what a block product computes in registers
///     chunk            columns of logits that lie together, and whose exponentials are taken while
///                      they are hot; a multiple of both
template <class T>
struct Kernel : BlockProduct<T, use_packets && (Eigen::internal::packet_traits<T>::size > 1)> {
  static constexpr Index chunk = 48 % Kernel::width == 0 ? 48 : 64;
  static_assert(chunk % Kernel::width == 0 && chunk % Kernel::height == 0, "blocks tile a chunk");
};

/// n rounded up to a multiple of `step`.
constexpr Index round_up(Index n, Index step) {
  return (n + step - 1) / step * step;
}

}  // namespace contrastive::detail

namespace Eigen::internal {

template <class T>
struct functor_traits<contrastive::detail::ExpOrZero<T>> {
  enum {
    Cost = functor_traits<scalar_exp_op<T>>::Cost,
    PacketAccess =
        contrastive::detail::use_packets && packet_traits<T>::HasExp && packet_traits<T>::HasCmp
  };
};

}  // namespace Eigen::internal

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#endif  // CONTRASTIVE_DETAIL_KERNEL_HPP
