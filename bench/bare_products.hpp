// The matrix products that a loss cannot do without, and nothing else: what there is to reach.
#ifndef CONTRASTIVE_BENCH_BARE_PRODUCTS_HPP
#define CONTRASTIVE_BENCH_BARE_PRODUCTS_HPP

#include <Eigen/Core>
#include <string>
#include <vector>

namespace bench {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;

/// Whose products these are.
std::string products_description();

/// Gives them that many threads, pinned to these cores if there are any. Returns how many they do
/// use, 0 where that is unknown.
int set_product_threads(int threads, const std::vector<int>& cores);

/// S = X Y^T
template <class T>
void times_transposed(const Matrix<T>& X, const Matrix<T>& Y, Matrix<T>& S);

/// dX = S Y
template <class T>
void times(const Matrix<T>& S, const Matrix<T>& Y, Matrix<T>& dX);

/// dY = S^T X
template <class T>
void transposed_times(const Matrix<T>& S, const Matrix<T>& X, Matrix<T>& dY);

}  // namespace bench

#endif  // CONTRASTIVE_BENCH_BARE_PRODUCTS_HPP
