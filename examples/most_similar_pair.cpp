// What a bi-encoder is for: the most similar pair of n sentences.
//
//     most_similar_pair [n] [d]        10000 vectors of 384 numbers by default
//
// A cross-encoder reads two sentences at a time, so each of the n (n - 1) / 2 pairs costs a pass
// through the network: for 10,000 sentences about 65 hours. A bi-encoder reads each sentence once
// and leaves a vector, after which a pair costs one dot product. The vectors here are random
// numbers in place of an encoder's output, but for two rows that are nearly the same, so that the
// answer is known.
//
// N. Reimers and I. Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks",
// 2019, arXiv:1908.10084.
#include <chrono>
#include <cmath>
#include <contrastive/contrastive.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>

using Eigen::Index;
using Embeddings = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr Index most_vectors = 1000000, most_numbers = 10000;
constexpr Index fewest_numbers = 16;  // with fewer, chance makes pairs closer than the planted one
constexpr double cross_encoder_hours = 65, cross_encoder_pairs = 49995000;

// Normally distributed numbers by Box and Muller, the same on every platform.
class Normal {
 public:
  float operator()() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return static_cast<float>(radius * std::cos(6.283185307179586 * uniform()));
  }

 private:
  double uniform() { return (static_cast<double>(bits_() >> 11) + 0.5) * 0x1p-53; }  // in (0, 1)

  std::mt19937_64 bits_{1};
};

struct Pair {
  Index first = 0, second = 0;
  float cosine = -2;
};

// Each row's nearest other row is among its two nearest rows, of which at most one is itself. It
// need not be the first: an equal row with a smaller index comes before it.
Pair most_similar_pair(const Embeddings& x) {
  const auto [indices, scores] = contrastive::top_k(x, x, 2);
  Pair best;
  for (Index i = 0; i < x.rows(); ++i) {
    const Index other = indices(i, 0) == i ? 1 : 0;
    if (scores(i, other) > best.cosine) best = {i, indices(i, other), scores(i, other)};
  }
  if (best.first > best.second) std::swap(best.first, best.second);
  return best;
}

// 49995000 as "49,995,000".
std::string with_commas(Index count) {
  std::string text = std::to_string(count);
  for (std::size_t place = text.size(); place > 3; place -= 3) text.insert(place - 3, ",");
  return text;
}

// An argument from `least` to `most`, or 0.
Index size_argument(const char* text, Index least, Index most) {
  char* end = nullptr;
  const long long value = std::strtoll(text, &end, 10);
  return end != text && *end == '\0' && value >= least && value <= most ? static_cast<Index>(value)
                                                                        : 0;
}

int main(int argc, char** argv) {
  const Index n = argc > 1 ? size_argument(argv[1], 2, most_vectors) : 10000;
  const Index d = argc > 2 ? size_argument(argv[2], fewest_numbers, most_numbers) : 384;
  if (n == 0 || d == 0 || argc > 3) {
    std::fprintf(stderr, "usage: most_similar_pair [n from 2 to %s] [d from %s to %s]\n",
                 with_commas(most_vectors).c_str(), with_commas(fewest_numbers).c_str(),
                 with_commas(most_numbers).c_str());
    return 2;
  }

  Normal normal;
  Embeddings x(n, d);
  for (float& entry : x.reshaped()) entry = normal();
  const Index first = n / 3, second = n - 1 - n / 7;
  for (Index k = 0; k < d; ++k) x(second, k) = x(first, k) + 0.01F * normal();

  const auto start = std::chrono::steady_clock::now();
  const Pair pair = most_similar_pair(x);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  const Index pairs = n * (n - 1) / 2;
  std::printf("vectors        %s of %s numbers\n", with_commas(n).c_str(), with_commas(d).c_str());
  std::printf("comparisons    %s\n", with_commas(pairs).c_str());
  std::printf("closest pair   rows %s and %s, cosine %.6f\n", with_commas(pair.first).c_str(),
              with_commas(pair.second).c_str(), static_cast<double>(pair.cosine));
  std::printf("time           %.3g s, once each sentence is a vector\n", seconds);
  std::printf("cross-encoder  %.3g hours, at 65 hours for 49,995,000 pairs\n",
              cross_encoder_hours * static_cast<double>(pairs) / cross_encoder_pairs);

  if (pair.first == first && pair.second == second) return 0;
  std::printf("wrong: rows %s and %s are nearly the same\n", with_commas(first).c_str(),
              with_commas(second).c_str());
  return 1;
}
