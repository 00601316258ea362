// The matrix product of the engine: a register-blocked micro-kernel on Eigen's packets.
//
// This is the one header that touches Eigen's internals (packet_traits, pset1, pload, pstore, padd,
// pmadd). Where Eigen has no packets for a scalar type, and everywhere if the whole program defines
// CONTRASTIVE_EIGEN_PRODUCT, Eigen's own product takes the micro-kernel's place.
#ifndef CONTRASTIVE_DETAIL_KERNEL_HPP
#define CONTRASTIVE_DETAIL_KERNEL_HPP

#include <Eigen/Core>
#include <cstddef>
#include <utility>

#if defined(_MSC_VER)
#define CONTRASTIVE_INLINE __forceinline
#else
#define CONTRASTIVE_INLINE inline __attribute__((always_inline))
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
/// Entry (r, q) of A lies at a[r * kRowStep + q * kDepthStep]. Row q of B (width entries) lies at
/// b + q * width, row r of C at c + r * c_stride; both aligned for packets. Each entry of C sums
/// over q in order, wherever it lies in the block.
template <class T, bool kPackets>
struct BlockProduct {
  using Packet = typename Eigen::internal::packet_traits<T>::type;
  static constexpr Index lanes = Eigen::internal::packet_traits<T>::size;
  static constexpr Index width = 2 * lanes;
  // 2 * height accumulators, two packets of b and one of a fit 16 registers or 32.
#if defined(EIGEN_VECTORIZE_AVX512) || defined(EIGEN_VECTORIZE_NEON)
  static constexpr Index height = 12;
#else
  static constexpr Index height = 6;
#endif

  template <Index kRowStep, Index kDepthStep>
  static void product(Index depth, const T* a, const T* b, T* c, Index c_stride, bool add) {
    product<kRowStep, kDepthStep>(depth, a, b, c, c_stride, add,
                                  std::make_index_sequence<std::size_t(height)>{});
  }

 private:
  template <Index kRowStep, Index kDepthStep, std::size_t... Row>
  CONTRASTIVE_INLINE static void product(Index depth, const T* a, const T* b, T* c, Index c_stride,
                                         bool add, std::index_sequence<Row...>) {
    using namespace Eigen::internal;
    Packet left[] = {(static_cast<void>(Row), pset1<Packet>(T(0)))...};
    Packet right[] = {(static_cast<void>(Row), pset1<Packet>(T(0)))...};
    for (Index q = 0; q < depth; ++q) {
      const Packet b_left = pload<Packet>(b);
      const Packet b_right = pload<Packet>(b + lanes);
      (multiply_add(a[Index(Row) * kRowStep], b_left, b_right, left[Row], right[Row]), ...);
      a += kDepthStep;
      b += width;
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

  template <Index kRowStep, Index kDepthStep>
  static void product(Index depth, const T* a, const T* b, T* c, Index c_stride, bool add) {
    using Eigen::Dynamic;
    using Eigen::RowMajor;
    const Eigen::Map<const Eigen::Matrix<T, height, Dynamic>, 0,
                     Eigen::Stride<kDepthStep, kRowStep>>
        left(a, height, depth);
    const Eigen::Map<const Eigen::Matrix<T, Dynamic, width, RowMajor>> right(b, depth, width);
    Eigen::Map<Eigen::Matrix<T, height, width, RowMajor>, 0, Eigen::OuterStride<>> block(
        c, Eigen::OuterStride<>(c_stride));
    if (add)
      block.noalias() += left * right;
    else
      block.noalias() = left * right;
  }
};

/// The shapes of the engine, all in entries.
///
///     height x width   what a block product computes in registers
///     chunk            columns whose exponentials are taken while they are hot; a multiple of both
///     tile             columns that lie together in a strip of logits; a multiple of chunk
template <class T>
struct Kernel : BlockProduct<T, use_packets && (Eigen::internal::packet_traits<T>::size > 1)> {
  static constexpr Index chunk = 48 % Kernel::width == 0 ? 48 : 96;
  static constexpr Index tile = 5 * chunk;
  static_assert(chunk % Kernel::width == 0 && chunk % Kernel::height == 0, "blocks tile a chunk");
};

/// n rounded up to a multiple of `step`.
constexpr Index round_up(Index n, Index step) {
  return (n + step - 1) / step * step;
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_KERNEL_HPP
