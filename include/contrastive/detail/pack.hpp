// Packs: entries that are computed with side by side.
//
// This is the one header that touches Eigen's internals (packet_traits, PacketBlock and the packet
// functions). Where Eigen has no packets for a scalar type, and everywhere if the whole program
// defines CONTRASTIVE_EIGEN_PRODUCT, a pack is a short loop.
#ifndef CONTRASTIVE_DETAIL_PACK_HPP
#define CONTRASTIVE_DETAIL_PACK_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>

#include "inline.hpp"

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

/// So many rows of two packets each, as sums, fit the registers of the processor that the program
/// is compiled for, beside two packets of one operand and one of the other: it has 16 or 32.
#if defined(EIGEN_VECTORIZE_AVX512)
inline constexpr Index rows_in_registers = 8;
#elif defined(EIGEN_VECTORIZE_NEON)
inline constexpr Index rows_in_registers = 12;
#else
inline constexpr Index rows_in_registers = 6;
#endif

/// Entries that are computed with side by side: a packet of Eigen's, the largest that the program
/// is compiled for or one of at most 32 bytes, or where there is none a few in a loop.
enum class PackKind { packet, small_packet, loop };

template <class T>
using PacketTraits = Eigen::internal::packet_traits<T>;

/// Whether there are packets, and whether they have all that losses are made of.
template <class T>
inline constexpr bool has_packets = use_packets && (PacketTraits<T>::size > 1);
template <class T>
inline constexpr bool has_packs =
    has_packets<T>&& PacketTraits<T>::HasExp&& PacketTraits<T>::HasCmp;

/// e^x is 0 for x below this, where e^x is twice the smallest normal number: also for -inf, which
/// stands for "no candidate". No denormal number comes up on the way, not by a rounding of the
/// limit either: some processors take long over them.
template <class T>
inline constexpr T lowest_exponent = T(std::numeric_limits<T>::min_exponent
                                       * 0.693147180559945309417232121458L);  // log 2

/// Memory is aligned for packs unless a function says otherwise.
template <class T, PackKind kKind = has_packs<T> ? PackKind::packet : PackKind::loop>
class Pack {
  static constexpr bool small =
      kKind == PackKind::small_packet && PacketTraits<T>::size * sizeof(T) > 32;
  using Packet =
      std::conditional_t<small, typename PacketTraits<T>::half, typename PacketTraits<T>::type>;

 public:
  static constexpr Index size = Eigen::internal::unpacket_traits<Packet>::size;

  /// x in all places.
  CONTRASTIVE_INLINE Pack(T x) : packet_(Eigen::internal::pset1<Packet>(x)) {}
  CONTRASTIVE_INLINE static Pack at(const T* x) { return Eigen::internal::pload<Packet>(x); }
  CONTRASTIVE_INLINE static Pack unaligned(const T* x) {
    return Eigen::internal::ploadu<Packet>(x);
  }
  CONTRASTIVE_INLINE void store(T* x) const { Eigen::internal::pstore(x, packet_); }
  CONTRASTIVE_INLINE void store_unaligned(T* x) const { Eigen::internal::pstoreu(x, packet_); }
  CONTRASTIVE_INLINE void add_to(T* x) const { (at(x) + *this).store(x); }
  CONTRASTIVE_INLINE static void prefetch(const T* x) { Eigen::internal::prefetch(x); }

  CONTRASTIVE_INLINE friend Pack operator+(const Pack& a, const Pack& b) {
    return Eigen::internal::padd(a.packet_, b.packet_);
  }
  CONTRASTIVE_INLINE friend Pack operator-(const Pack& a, const Pack& b) {
    return Eigen::internal::psub(a.packet_, b.packet_);
  }
  CONTRASTIVE_INLINE friend Pack operator*(const Pack& a, const Pack& b) {
    return Eigen::internal::pmul(a.packet_, b.packet_);
  }
  CONTRASTIVE_INLINE friend Pack operator/(const Pack& a, const Pack& b) {
    return Eigen::internal::pdiv(a.packet_, b.packet_);
  }
  CONTRASTIVE_INLINE Pack& operator+=(const Pack& other) { return *this = *this + other; }
  /// a b + c
  CONTRASTIVE_INLINE friend Pack multiply_add(const Pack& a, const Pack& b, const Pack& c) {
    return Eigen::internal::pmadd(a.packet_, b.packet_, c.packet_);
  }

  CONTRASTIVE_INLINE friend Pack larger(const Pack& a, const Pack& b) {
    return Eigen::internal::pmax(a.packet_, b.packet_);
  }
  CONTRASTIVE_INLINE friend Pack smaller(const Pack& a, const Pack& b) {
    return Eigen::internal::pmin(a.packet_, b.packet_);
  }
  CONTRASTIVE_INLINE friend Pack absolute(const Pack& a) {
    return Eigen::internal::pabs(a.packet_);
  }
  /// e^a, see lowest_exponent.
  CONTRASTIVE_INLINE friend Pack exp_or_zero(const Pack& a) {
    using namespace Eigen::internal;
    const Packet limit = pset1<Packet>(lowest_exponent<T>);
    return pand(pexp(pmax(a.packet_, limit)), pcmp_le(limit, a.packet_));
  }
  /// a > b ? x : y
  CONTRASTIVE_INLINE friend Pack where_greater(const Pack& a, const Pack& b, const Pack& x,
                                               const Pack& y) {
    using namespace Eigen::internal;
    return pselect(pcmp_lt(b.packet_, a.packet_), x.packet_, y.packet_);
  }

  [[nodiscard]] CONTRASTIVE_INLINE T sum() const { return Eigen::internal::predux(packet_); }
  [[nodiscard]] CONTRASTIVE_INLINE T largest() const {
    return Eigen::internal::predux_max(packet_);
  }

  /// out = the transpose of `in`, both size x size, rows out_stride and in_stride apart, of any
  /// alignment.
  CONTRASTIVE_INLINE static void transpose(const T* in, Index in_stride, T* out, Index out_stride) {
    transpose(in, in_stride, out, out_stride, std::make_index_sequence<std::size_t(size)>{});
  }

 private:
  template <std::size_t... Row>
  CONTRASTIVE_INLINE static void transpose(const T* in, Index in_stride, T* out, Index out_stride,
                                           std::index_sequence<Row...>) {
    Eigen::internal::PacketBlock<Packet, int(size)> block;
    ((block.packet[Row] = unaligned(in + Index(Row) * in_stride).packet_), ...);
    Eigen::internal::ptranspose(block);
    (Pack(block.packet[Row]).store_unaligned(out + Index(Row) * out_stride), ...);
  }

  CONTRASTIVE_INLINE Pack(const Packet& packet) : packet_(packet) {}

  Packet packet_;
};

/// The same without packets.
template <class T>
class Pack<T, PackKind::loop> {
 public:
  static constexpr Index size = 8;

  Pack(T x) { std::fill_n(values_, size, x); }
  static Pack at(const T* x) {
    return each([&](Index l) { return x[l]; });
  }
  static Pack unaligned(const T* x) { return at(x); }
  void store(T* x) const { std::copy_n(values_, size, x); }
  void add_to(T* x) const { (at(x) + *this).store(x); }

  friend Pack operator+(const Pack& a, const Pack& b) {
    return each([&](Index l) { return a.values_[l] + b.values_[l]; });
  }
  friend Pack operator-(const Pack& a, const Pack& b) {
    return each([&](Index l) { return a.values_[l] - b.values_[l]; });
  }
  friend Pack operator*(const Pack& a, const Pack& b) {
    return each([&](Index l) { return a.values_[l] * b.values_[l]; });
  }
  friend Pack operator/(const Pack& a, const Pack& b) {
    return each([&](Index l) { return a.values_[l] / b.values_[l]; });
  }
  Pack& operator+=(const Pack& other) { return *this = *this + other; }

  friend Pack larger(const Pack& a, const Pack& b) { return where_greater(a, b, a, b); }
  friend Pack smaller(const Pack& a, const Pack& b) { return where_greater(a, b, b, a); }
  friend Pack absolute(const Pack& a) {
    return each([&](Index l) { return std::fabs(a.values_[l]); });
  }
  friend Pack exp_or_zero(const Pack& a) {
    return each([&](Index l) {
      return a.values_[l] >= lowest_exponent<T> ? std::exp(a.values_[l]) : T(0);
    });
  }
  friend Pack where_greater(const Pack& a, const Pack& b, const Pack& x, const Pack& y) {
    return each([&](Index l) { return a.values_[l] > b.values_[l] ? x.values_[l] : y.values_[l]; });
  }

  [[nodiscard]] T sum() const {
    const T* v = values_;
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
  }
  [[nodiscard]] T largest() const { return *std::max_element(values_, values_ + size); }

 private:
  template <class F>
  static Pack each(const F& f) {
    Pack result(0);
    for (Index l = 0; l < size; ++l) result.values_[l] = f(l);
    return result;
  }

  T values_[std::size_t(size)];
};

}  // namespace contrastive::detail

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#endif  // CONTRASTIVE_DETAIL_PACK_HPP
