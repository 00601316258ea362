// What the cores see of a matrix: a pointer and two strides, so that they are compiled once per
// scalar whatever the storage order.
#ifndef CONTRASTIVE_DETAIL_VIEW_HPP
#define CONTRASTIVE_DETAIL_VIEW_HPP

#include <Eigen/Core>
#include <type_traits>
#include <utility>

namespace contrastive::detail {

using Eigen::Index;

/// The type in which sums go: double, or long double for long double.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, long double>, long double, double>;

/// A matrix of `T` that somebody else owns.
template <class T>
struct View {
  T* data = nullptr;
  Index rows = 0;
  Index cols = 0;
  Index row_stride = 0;
  Index col_stride = 0;

  T& operator()(Index i, Index j) const { return data[i * row_stride + j * col_stride]; }
};

template <class Derived>
View<const typename Derived::Scalar> strided_view(const Derived& x) {
  const Index inner = x.innerStride();
  const Index outer = x.outerStride();
  return {x.data(), x.rows(), x.cols(), Derived::IsRowMajor ? outer : inner,
          Derived::IsRowMajor ? inner : outer};
}

template <class Derived, class = void>
struct HasData : std::false_type {};
template <class Derived>
struct HasData<Derived, std::void_t<decltype(std::declval<const Derived&>().data())>>
    : std::true_type {};

/// Whether an expression's coefficients lie in memory. Some of Eigen's indexed views set the flag
/// but give no pointer.
template <class Derived>
inline constexpr bool is_in_memory = (int(Derived::Flags) & int(Eigen::DirectAccessBit)) != 0
                                     && HasData<Derived>::value;

/// A view of any Eigen expression, for the duration of one full expression: matrices, maps and
/// blocks are read where they are, anything else is evaluated once.
template <class Derived, bool kInMemory = is_in_memory<Derived>>
class Bound {
 public:
  explicit Bound(const Eigen::MatrixBase<Derived>& x) : view_(strided_view(x.derived())) {}
  [[nodiscard]] View<const typename Derived::Scalar> view() const { return view_; }

 private:
  View<const typename Derived::Scalar> view_;
};

template <class Derived>
class Bound<Derived, false> {
 public:
  explicit Bound(const Eigen::MatrixBase<Derived>& x) : value_(x) {}
  [[nodiscard]] View<const typename Derived::Scalar> view() const { return strided_view(value_); }

 private:
  Eigen::Matrix<typename Derived::Scalar, Eigen::Dynamic, Eigen::Dynamic,
                Derived::IsRowMajor ? Eigen::RowMajor : Eigen::ColMajor>
      value_;
};

/// Gives `matrix` a shape and returns a view to write to. Called when nothing can fail any more but
/// memory.
template <class Matrix>
View<typename Matrix::Scalar> resized(Matrix& matrix, Index rows, Index cols) {
  matrix.resize(rows, cols);
  const Index outer = matrix.outerStride();
  return {matrix.data(), rows, cols, Matrix::IsRowMajor ? outer : 1,
          Matrix::IsRowMajor ? 1 : outer};
}

template <class T>
inline constexpr bool is_supported_scalar =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, long double>;

/// The compile-time half of the argument checks.
template <class First, class... Others>
constexpr void require_same_scalar() {
  static_assert(is_supported_scalar<typename First::Scalar>,
                "contrastive: matrices hold float, double or long double");
  static_assert((std::is_same_v<typename First::Scalar, typename Others::Scalar> && ...),
                "contrastive: all matrices of one call have the same scalar type; use "
                ".cast<...>() on the others");
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_VIEW_HPP
