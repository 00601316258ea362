#include "bare_products.hpp"

#include <cstddef>
#include <type_traits>

#ifdef CONTRASTIVE_BENCH_OPENBLAS_AFFINITY
#include <sched.h>
#endif
#ifdef CONTRASTIVE_BENCH_CBLAS
#include <cblas.h>
#endif

namespace bench {

#ifdef CONTRASTIVE_BENCH_CBLAS

namespace {

template <class T>
void gemm(CBLAS_TRANSPOSE op_a, const Matrix<T>& A, CBLAS_TRANSPOSE op_b, const Matrix<T>& B,
          Matrix<T>& C) {
  const auto size = [](Eigen::Index n) { return static_cast<int>(n); };
  const auto product = [&] {
    if constexpr (std::is_same_v<T, float>)
      return cblas_sgemm;
    else
      return cblas_dgemm;
  }();
  product(CblasColMajor, op_a, op_b, size(C.rows()), size(C.cols()),
          size(op_a == CblasNoTrans ? A.cols() : A.rows()), 1, A.data(), size(A.rows()), B.data(),
          size(B.rows()), 0, C.data(), size(C.rows()));
}

}  // namespace

template <class T>
void times_transposed(const Matrix<T>& X, const Matrix<T>& Y, Matrix<T>& S) {
  gemm(CblasNoTrans, X, CblasTrans, Y, S);
}
template <class T>
void times(const Matrix<T>& S, const Matrix<T>& Y, Matrix<T>& dX) {
  gemm(CblasNoTrans, S, CblasNoTrans, Y, dX);
}
template <class T>
void transposed_times(const Matrix<T>& S, const Matrix<T>& X, Matrix<T>& dY) {
  gemm(CblasTrans, S, CblasNoTrans, X, dY);
}

#else

template <class T>
void times_transposed(const Matrix<T>& X, const Matrix<T>& Y, Matrix<T>& S) {
  S.noalias() = X * Y.transpose();
}
template <class T>
void times(const Matrix<T>& S, const Matrix<T>& Y, Matrix<T>& dX) {
  dX.noalias() = S * Y;
}
template <class T>
void transposed_times(const Matrix<T>& S, const Matrix<T>& X, Matrix<T>& dY) {
  dY.noalias() = S.transpose() * X;
}

#endif

template void times_transposed(const Matrix<float>&, const Matrix<float>&, Matrix<float>&);
template void times_transposed(const Matrix<double>&, const Matrix<double>&, Matrix<double>&);
template void times(const Matrix<float>&, const Matrix<float>&, Matrix<float>&);
template void times(const Matrix<double>&, const Matrix<double>&, Matrix<double>&);
template void transposed_times(const Matrix<float>&, const Matrix<float>&, Matrix<float>&);
template void transposed_times(const Matrix<double>&, const Matrix<double>&, Matrix<double>&);

#if defined(CONTRASTIVE_BENCH_OPENBLAS)

std::string products_description() {
  return std::string(openblas_get_config()) + ", kernels for " + openblas_get_corename();
}
int set_product_threads(int threads, [[maybe_unused]] const std::vector<int>& cores) {
  openblas_set_num_threads(threads);
#ifdef CONTRASTIVE_BENCH_OPENBLAS_AFFINITY
  // The calling thread does its part, so a pool of OpenBLAS's own has one less.
  if (openblas_get_parallel() == OPENBLAS_THREAD)
    for (std::size_t k = 1; k < cores.size(); ++k) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(std::size_t(cores[k]), &set);
      openblas_setaffinity(int(k) - 1, sizeof set, &set);
    }
#endif
  return openblas_get_num_threads();
}

#elif defined(CONTRASTIVE_BENCH_CBLAS)

// A BLAS that cannot be asked, and that has its own idea of threads.
std::string products_description() {
  return "an unknown BLAS";
}
int set_product_threads(int, const std::vector<int>&) {
  return 0;
}

#else

std::string products_description() {
  return "Eigen's own products";
}
int set_product_threads(int threads, const std::vector<int>&) {
  Eigen::setNbThreads(threads);
  return Eigen::nbThreads();
}

#endif

}  // namespace bench
