// A batch too large for the memory, all the same: the gradients of a whole batch, encoded chunk by
// chunk and at once, and what both take at their peak.
//
// The encoder is z = W tanh(V x), the same for queries and positives, with a hidden layer that is
// far wider than its embeddings. At once it has to remember 2048 hidden numbers for each of 2 x
// 4096 rows until the loss is known. Chunk by chunk it remembers the embeddings alone, and computes
// the hidden layer again when the gradients come back.
//
// L. Gao, Y. Zhang, J. Han and J. Callan, "Scaling Deep Contrastive Learning Batch Size under
// Memory Limited Setup", 2021, arXiv:2101.06983.
#include <sys/resource.h>

#include <algorithm>
#include <contrastive/contrastive.hpp>
#include <cstdint>
#include <cstdio>
#include <random>

using contrastive::Side;
using Eigen::Index;
using Eigen::MatrixXf;

constexpr Index pair_count = 4096, chunk = 64;
constexpr Index input_size = 32, hidden_size = 2048, embedding_size = 32;

// Uniform numbers, the same with every standard library.
MatrixXf random_matrix(Index rows, Index cols, float size, std::uint64_t seed) {
  std::mt19937_64 bits(seed);
  MatrixXf m(rows, cols);
  for (float& entry : m.reshaped())
    entry = size * (static_cast<float>(bits() >> 40) * 0x1p-23f - 1.0f);
  return m;
}

// The parameters; their gradient is one too.
struct Encoder {
  MatrixXf v, w;  // V' (32 x 2048), W' (2048 x 32)

  MatrixXf hidden(const MatrixXf& x) const { return (x * v).array().tanh(); }

  // Adds the gradient of a few rows x, of which h is the hidden layer, to `sum`.
  void backward(const MatrixXf& x, const MatrixXf& h, const MatrixXf& dz, Encoder& sum) const {
    sum.w.noalias() += h.transpose() * dz;
    MatrixXf da = dz * w.transpose();
    da.array() *= 1 - h.array().square();
    sum.v.noalias() += x.transpose() * da;
  }
};

// The most memory that this process has held so far, in megabytes.
double peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
#else
  return static_cast<double>(usage.ru_maxrss) / (1 << 10);
#endif
}

int main() {
  const MatrixXf queries = random_matrix(pair_count, input_size, 1, 1);
  const MatrixXf positives = queries + random_matrix(pair_count, input_size, 0.5, 2);
  const Encoder encoder{random_matrix(input_size, hidden_size, 0.3f, 3),
                        random_matrix(hidden_size, embedding_size, 0.1f, 4)};
  const auto no_gradient = [&] {
    return Encoder{MatrixXf::Zero(input_size, hidden_size),
                   MatrixXf::Zero(hidden_size, embedding_size)};
  };
  contrastive::Workspace workspace{0};  // CLIP keeps nothing to save time either
  const auto clip = [&](const MatrixXf& q, const MatrixXf& p) {
    return contrastive::clip_loss_grad(q, p, contrastive::Temperature{0.1}, {}, workspace);
  };
  std::printf("%-24s %10s %14s\n", "", "loss", "peak memory");
  std::printf("%-24s %10s %11.0f MB\n", "the data and parameters", "", peak_memory());

  // Chunk by chunk. The seed is for encoders with dropout, which must repeat it.
  Encoder cached = no_gradient();
  const auto rows = [&](Side side, Index first, Index count) -> MatrixXf {
    return (side == Side::query ? queries : positives).middleRows(first, count);
  };
  const auto encode = [&](Side side, Index first, Index count, std::uint64_t /*seed*/) -> MatrixXf {
    return encoder.hidden(rows(side, first, count)) * encoder.w;
  };
  const auto backward = [&](Side side, Index first, Index count, std::uint64_t /*seed*/,
                            const MatrixXf& dz) {
    const MatrixXf x = rows(side, first, count);
    encoder.backward(x, encoder.hidden(x), dz, cached);
  };
  const auto in_chunks = contrastive::grad_cached(pair_count, chunk, encode, clip, backward);
  const double cached_peak = peak_memory();
  std::printf("%-24s %10.6f %11.0f MB\n", "in chunks of 64 rows", in_chunks.loss, cached_peak);

  // All at once.
  Encoder whole = no_gradient();
  const MatrixXf hidden_q = encoder.hidden(queries), hidden_p = encoder.hidden(positives);
  const auto at_once = clip(hidden_q * encoder.w, hidden_p * encoder.w);
  encoder.backward(queries, hidden_q, at_once.dQ, whole);
  encoder.backward(positives, hidden_p, at_once.dP, whole);
  const double whole_peak = peak_memory();
  std::printf("%-24s %10.6f %11.0f MB\n", "4096 rows at once", at_once.loss, whole_peak);

  const auto difference = [](const MatrixXf& a, const MatrixXf& b) {
    return (a - b).cwiseAbs().maxCoeff() / b.cwiseAbs().maxCoeff();
  };
  const float worst = (std::max)(difference(cached.v, whole.v), difference(cached.w, whole.w));
  std::printf("the gradients differ by %.1e of their largest entry\n", worst);

  const bool same = worst < 1e-5f, small = cached_peak < whole_peak / 2;
  if (!same) std::printf("the gradients are not the same\n");
  if (!small) std::printf("the chunks saved no memory\n");
  return same && small ? 0 : 1;
}
