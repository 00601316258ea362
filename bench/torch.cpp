// InfoNCE and CLIP, with their gradients, against libtorch's with autograd. Before anything is
// timed both must give the same loss and the same gradients.
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <contrastive/contrastive.hpp>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "bench.hpp"

namespace bench {
namespace {

using namespace contrastive;
using M = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;  // as torch's are

constexpr double tau = 0.07;

torch::Tensor parameter(const M& matrix) {
  return torch::tensor(at::ArrayRef<float>(matrix.data(), std::size_t(matrix.size())))
      .view({matrix.rows(), matrix.cols()})
      .requires_grad_();
}

/// What a user of libtorch writes.
struct Torch {
  torch::Tensor Q, P;
  torch::Tensor rows = torch::arange(Q.size(0));

  explicit Torch(const Batch<M>& batch) : Q(parameter(batch.Q)), P(parameter(batch.P)) {}

  torch::Tensor info_nce() const { return torch::nn::functional::cross_entropy(logits(), rows); }
  torch::Tensor clip() const {
    namespace F = torch::nn::functional;
    const torch::Tensor S = logits();
    return (F::cross_entropy(S, rows) + F::cross_entropy(S.t(), rows)) / 2;
  }
  void zero_grad() {
    Q.mutable_grad().reset();
    P.mutable_grad().reset();
  }

 private:
  torch::Tensor logits() const {
    namespace F = torch::nn::functional;
    return torch::matmul(F::normalize(Q), F::normalize(P).t()) / tau;
  }
};

/// The largest difference of two gradients relative to the largest entry.
double difference(const M& ours, const torch::Tensor& tensor) {
  const torch::Tensor theirs = tensor.contiguous();
  const Eigen::Map<const M> map(theirs.data_ptr<float>(), ours.rows(), ours.cols());
  return double((ours - map).cwiseAbs().maxCoeff() / ours.cwiseAbs().maxCoeff());
}

/// Registers ours(batch, result, workspace) against theirs(torch), which returns the loss.
template <class Result, class Ours, class Theirs>
void add(const std::vector<Size>& sizes, const std::string& name, const Ours& ours,
         const Theirs& theirs) {
  const auto run = [ours, theirs](benchmark::State& state, const Size& size,
                                  Alternation& alternation) {
    const std::vector<Batch<M>> batches = random_batches<M>(size);
    std::vector<Torch> torches(batches.begin(), batches.end());
    Result result;
    Workspace workspace;
    torch::Tensor loss;
    const auto run_ours = [&](std::size_t k) {
      ours(batches[k], result, workspace);
      benchmark::DoNotOptimize(&result);
      benchmark::ClobberMemory();
    };
    const auto run_theirs = [&](std::size_t k) {
      torches[k].zero_grad();
      loss = theirs(torches[k]);
      loss.backward();
    };

    // A logit, and with it the loss, carries an error of about 1/tau 2^-24 in float.
    run_ours(0);
    run_theirs(0);
    const double loss_error = std::abs(double(result.loss) - loss.item<double>());
    const double error = std::max(
        {difference(result.dQ, torches[0].Q.grad()), difference(result.dP, torches[0].P.grad())});
    if (!(loss_error < 4 / tau * 0x1p-24 * std::max(1.0, loss.item<double>()) && error < 1e-5)) {
      failed = true;
      state.SkipWithError("libtorch's loss or gradients are not the same");
      return;
    }
    alternation.run(state, run_ours, "torch", run_theirs);
    state.counters["difference"] = error;
  };
  for (const Size& size : sizes) add_benchmark(name, "float", size, run);
}

}  // namespace

void register_benchmarks(const std::vector<Size>& sizes) {
  const SoftmaxOptions options;
  add<InfoNceGradient<M, M, Temperature>>(
      sizes, "info_nce",
      [=](auto& b, auto& r, auto& w) {
        info_nce_loss_grad(b.Q, b.P, Temperature{tau}, options, r, w);
      },
      [](const Torch& torch) { return torch.info_nce(); });
  add<ClipGradient<M, M, Temperature>>(
      sizes, "clip",
      [=](auto& b, auto& r, auto& w) { clip_loss_grad(b.Q, b.P, Temperature{tau}, options, r, w); },
      [](const Torch& torch) { return torch.clip(); });
}

std::string other_description() {
  return std::string("libtorch ") + TORCH_VERSION + " with autograd";
}

int set_other_threads(int threads, const std::vector<int>&) {  // its OpenMP threads are ours
  torch::set_num_threads(threads);
  return torch::get_num_threads();
}

}  // namespace bench
