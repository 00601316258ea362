// Every loss, with its gradients unless it says value, against as many bare matrix products as it
// needs at least.
#include <cmath>
#include <contrastive/contrastive.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bare_products.hpp"
#include "bench.hpp"

namespace bench {
namespace {

using namespace contrastive;

/// What a loss cannot do without.
struct Cost {
  int products = 3;  ///< 1: S = X Y^T; 3: also dX = S Y and dY = S^T X; 4: S twice; 0: a copy
  Index rows = 1;    ///< of X, and
  Index cols = 1;    ///< of Y, both in units of B

  [[nodiscard]] double operations(const Size& size) const {
    return 2.0 * products * double(rows * size.B) * double(cols * size.B) * double(size.d);
  }
};

/// That, on buffers made and touched before. Where there are no products: inputs copied to outputs.
template <class T>
class Bare {
 public:
  Bare(const Cost& cost, const Size& size)
      : products_(cost.products),
        S_(cost.products > 0 ? cost.rows * size.B : 0, cost.cols * size.B),
        dX_(cost.rows * size.B, size.d),
        dY_(cost.cols * size.B, size.d) {
    for (Matrix<T>* buffer : {&S_, &dX_, &dY_}) buffer->setOnes();
    for (std::uint64_t k = 0; k < batch_count; ++k) {
      X_.push_back(random_matrix<Matrix<T>>(cost.rows * size.B, size.d, 100 + k));
      Y_.push_back(random_matrix<Matrix<T>>(cost.cols * size.B, size.d, 200 + k));
    }
  }

  void operator()(std::size_t k) {
    if (products_ == 0) {
      dX_ = X_[k];
      dY_ = Y_[k];
    }
    if (products_ >= 1) times_transposed(X_[k], Y_[k], S_);
    if (products_ >= 4) times_transposed(X_[k], Y_[k], S_);
    if (products_ >= 3) {
      times(S_, Y_[k], dX_);
      transposed_times(S_, X_[k], dY_);
    }
    for (Matrix<T>* buffer : {&S_, &dX_, &dY_}) benchmark::DoNotOptimize(buffer->data());
    benchmark::ClobberMemory();
  }

 private:
  int products_;
  Matrix<T> S_, dX_, dY_;
  std::vector<Matrix<T>> X_{}, Y_{};
};

/// Registers call(batch, result, workspace), the batch in matrices of type M, at every size. Result
/// and workspace are kept from call to call, as in a training loop.
template <class M, class Result, class Call>
void add(const std::vector<Size>& sizes, const std::string& name, const Cost& cost,
         const Call& call, std::size_t budget = Workspace::default_budget) {
  using T = typename M::Scalar;
  const auto run = [cost, call, budget](benchmark::State& state, const Size& size,
                                        Alternation& alternation) {
    const std::vector<Batch<M>> batches = random_batches<M>(size);
    Result result{};
    Workspace workspace(budget);
    const auto ours = [&](std::size_t k) {
      call(batches[k], result, workspace);
      benchmark::DoNotOptimize(&result);
      benchmark::ClobberMemory();
    };
    const double seconds = alternation.run(state, ours, "bare", Bare<T>(cost, size));
    state.counters["GFLOP/s"] = 1e-9 * cost.operations(size) / seconds;
    state.counters["workspace_bytes"] = double(workspace.size());
  };
  const bool is_double = std::is_same_v<T, double>;
  for (const Size& size : sizes)
    if (!is_double || size.B <= 4096)
      add_benchmark(name, is_double ? "double" : "float", size, run);
}

template <class T>
void add_all(const std::vector<Size>& sizes) {
  using M = Matrix<T>;
  using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  constexpr std::size_t no_limit_to_budget = std::size_t(-1);
  constexpr Temperature tau{0.07};
  const LogScale scale{std::log(1 / 0.07)};
  const LogScale sigmoid_scale{std::log(10.0), no_limit};  // and a bias of -10, as the paper starts
  const SoftmaxOptions options;

  add<M, InfoNceGradient<M, M, Temperature>>(
      sizes, "info_nce", {3},
      [=](auto& b, auto& r, auto& w) { info_nce_loss_grad(b.Q, b.P, tau, options, r, w); });
  add<RowMajor, InfoNceGradient<RowMajor, RowMajor, Temperature>>(
      sizes, "info_nce_row_major", {3},
      [=](auto& b, auto& r, auto& w) { info_nce_loss_grad(b.Q, b.P, tau, options, r, w); });
  add<M, ClipGradient<M, M, LogScale>>(
      sizes, "clip", {3},
      [=](auto& b, auto& r, auto& w) { clip_loss_grad(b.Q, b.P, scale, options, r, w); },
      no_limit_to_budget);
  add<M, ClipGradient<M, M, LogScale>>(
      sizes, "clip_no_budget", {4},
      [=](auto& b, auto& r, auto& w) { clip_loss_grad(b.Q, b.P, scale, options, r, w); }, 0);
  add<M, HardNegativeGradient<M, M, M, Temperature>>(
      sizes, "hard_negatives", {3, 1, 2}, [=](auto& b, auto& r, auto& w) {
        hard_negative_loss_grad(b.Q, b.P, b.N, tau, options, r, w);
      });
  add<M, SigLipGradient<M, M, LogScale>>(sizes, "siglip", {3}, [=](auto& b, auto& r, auto& w) {
    siglip_loss_grad(b.Q, b.P, sigmoid_scale, -10, SigLipOptions{}, r, w);
  });
  add<M, NtXentGradient<M, M, Temperature>>(
      sizes, "nt_xent", {3, 2, 2},
      [=](auto& b, auto& r, auto& w) { nt_xent_loss_grad(b.Q, b.P, tau, options, r, w); });
  add<M, SupConGradient<M, Temperature>>(sizes, "sup_con", {3}, [=](auto& b, auto& r, auto& w) {
    std::vector<int> labels(static_cast<std::size_t>(b.Q.rows()));  // ten classes
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int>(i % 10);
    sup_con_loss_grad(b.Q, labels, tau, options, r, w);
  });
  add<M, UniformityGradient<M>>(sizes, "uniformity", {3}, [](auto& b, auto& r, auto& w) {
    uniformity_loss_grad(b.Q, 2, Similarity::cosine, r, w);
  });
  add<M, T>(sizes, "info_nce_value", {1},
            [=](auto& b, auto& r, auto& w) { r = info_nce_loss(b.Q, b.P, tau, options, w); });
  add<M, T>(sizes, "clip_value", {1},
            [=](auto& b, auto& r, auto& w) { r = clip_loss(b.Q, b.P, scale, options, w); });
  add<M, AlignmentGradient<M, M>>(sizes, "alignment", {0}, [](auto& b, auto& r, auto& w) {
    alignment_loss_grad(b.Q, b.P, 2, Similarity::cosine, r, w);
  });
  add<M, TripletGradient<M, M, M>>(sizes, "triplet", {0, 1, 2}, [](auto& b, auto& r, auto& w) {
    triplet_loss_grad(b.Q, b.P, b.N, 1, r, w);
  });
}

}  // namespace

void register_benchmarks(const std::vector<Size>& sizes) {
  add_all<float>(sizes);
  add_all<double>(sizes);
}

std::string other_description() {
  return "that many bare matrix products by " + products_description();
}

int set_other_threads(int threads, const std::vector<int>& cores) {
  return set_product_threads(threads, cores);
}

}  // namespace bench
