// Random numbers that are the same on every platform, compiler and standard library.
#ifndef CONTRASTIVE_TESTS_SUPPORT_RANDOM_HPP
#define CONTRASTIVE_TESTS_SUPPORT_RANDOM_HPP

#include <cmath>
#include <cstdint>

#include "problem.hpp"

namespace contrastive_tests {

/// splitmix64 (Steele, Lea, Flood 2014): 64 bits of state, passes BigCrush.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    state_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31U);
  }

  /// In (0, 1), never an end point.
  double uniform() { return (static_cast<double>(bits() >> 12U) + 0.5) * 0x1p-52; }

  /// From 0 to n - 1.
  std::int64_t integer(std::int64_t n) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n));
  }

  /// Standard normal by Box and Muller, rounded to a multiple of 2^-14: the rounding hides the last
  /// bits in which one libm differs from another, and makes the number exact in float too, so that
  /// one set of inputs serves float, double and long double.
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    const double x = radius * std::cos(6.283185307179586 * uniform());
    return std::nearbyint(x * 0x1p14) * 0x1p-14;
  }

  Matrix normal_matrix(Index rows, Index cols) {
    Matrix m(rows, cols);
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < cols; ++j) m(i, j) = normal();
    return m;
  }

 private:
  std::uint64_t state_;
};

}  // namespace contrastive_tests

#endif
