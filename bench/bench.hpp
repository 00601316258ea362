// What the benchmark programs share: inputs, and the timing of one thing against another.
//
// Absolute times move with the machine's mood, ratios within one run do not. So each benchmark here
// runs two things in turn, ours and another, and reports the median of each and their ratio.
#ifndef CONTRASTIVE_BENCH_BENCH_HPP
#define CONTRASTIVE_BENCH_BENCH_HPP

#include <benchmark/benchmark.h>

#include <Eigen/Core>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bench {

using Eigen::Index;

struct Size {
  Index B = 0;  ///< pairs
  Index d = 0;  ///< columns
};

// Each program defines what it compares with.
void register_benchmarks(const std::vector<Size>& sizes);
std::string other_description();
/// Gives it that many threads, pinned to these cores if there are any. Returns how many it does
/// use, 0 where that is unknown.
int set_other_threads(int threads, const std::vector<int>& cores);

/// Set when two things that ought to be equal are not: the program then exits with 1.
inline bool failed = false;

// ---- Inputs -------------------------------------------------------------------------------------

/// Entries uniform in [-1, 1), from a generator that is cheap and the same everywhere.
template <class Matrix>
Matrix random_matrix(Index rows, Index cols, std::uint64_t seed) {
  using T = typename Matrix::Scalar;
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  Matrix result(rows, cols);
  for (Index k = 0; k < result.size(); ++k) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    result.data()[k] = T(double(state >> 11) * 0x1p-52 - 1);
  }
  return result;
}

/// B pairs as in the middle of a training, their cosines about 0.45, and as many negatives.
template <class Matrix>
struct Batch {
  Matrix Q, P, N;

  Batch(const Size& size, std::uint64_t seed)
      : Q(random_matrix<Matrix>(size.B, size.d, 3 * seed)),
        P(Q / 2 + random_matrix<Matrix>(size.B, size.d, 3 * seed + 1)),
        N(random_matrix<Matrix>(size.B, size.d, 3 * seed + 2)) {}
};

/// Calls take these in turn, so that none meets its own input in the cache or its own result done.
inline constexpr std::size_t batch_count = 3;

template <class Matrix>
std::vector<Batch<Matrix>> random_batches(const Size& size) {
  std::vector<Batch<Matrix>> batches;
  for (std::size_t k = 0; k < batch_count; ++k) batches.emplace_back(size, k);
  return batches;
}

// ---- Timing -------------------------------------------------------------------------------------

/// Wall-clock samples of one thing, `call(k)` with k going round the batches.
///
/// A thread pool that has just worked spins for a while in case there is more to do: OpenBLAS's own
/// pool for 2^26 ticks, 26 ms at 2.6 GHz, OpenMP's for a few. Whoever comes next from another pool
/// then shares the cores with it; bare products right after ours took twice their time. A pause
/// lets all pools fall asleep, and untimed calls wake the one that is needed now.
template <class Call>
class Sampler {
 public:
  explicit Sampler(Call call) : call_(std::move(call)) {
    double seconds = time(1);  // it may allocate
    if (seconds < long_call) seconds = time(1);
    is_long_ = seconds >= long_call;
    calls = std::clamp(int(sample_length / std::max(seconds, 1e-9)), 1, 100000);
  }

  int calls = 1;  ///< as many as make a sample

  void sample() {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    for (double warm = 0; warm < 5e-3 && !is_long_;) warm += time(1);
    samples_.push_back(time(calls) / calls);
  }

  /// Seconds a call.
  [[nodiscard]] double median() const {
    std::vector<double> sorted = samples_;
    const auto middle = sorted.begin() + std::ptrdiff_t(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }

 private:
  static constexpr double sample_length = 20e-3;  // far above the clock's grain
  static constexpr double long_call = 0.5;        // waking threads is nothing beside it

  double time(int count) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    for (int i = 0; i < count; ++i) call_(turn_++ % batch_count);
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  Call call_;
  std::size_t turn_ = 0;
  bool is_long_ = false;
  std::vector<double> samples_{};
};

/// A benchmark of one size, as add_benchmark() registers it: runs the two in turn as long as Google
/// Benchmark wants, five times at least. Its time is the median of ours; counters take the median
/// of the other, in us, and the ratio.
class Alternation {
 public:
  /// Returns the median of ours, in seconds.
  template <class Ours, class Other>
  double run(benchmark::State& state, Ours our_call, const std::string& other_name,
             Other other_call) {
    constexpr int rounds = 5;
    Sampler<Ours> ours(std::move(our_call));
    Sampler<Other> other(std::move(other_call));
    // Repetitions must have as many iterations as the first run.
    if (calls_ == 0) calls_ = ours.calls;
    ours.calls = calls_;
    while (state.KeepRunningBatch(rounds * calls_))
      for (int round = 0; round < rounds; ++round) {
        ours.sample();
        other.sample();
      }
    // Google Benchmark divides what it is given by the number of iterations.
    state.SetIterationTime(ours.median() * double(state.iterations()));
    state.counters[other_name + "_us"] = 1e6 * other.median();
    state.counters["ratio"] = ours.median() / other.median();
    return ours.median();
  }

 private:
  int calls_ = 0;
};

/// Registers run(state, size, alternation) as LOSS/SCALAR/B:.../d:...
template <class Run>
void add_benchmark(const std::string& loss, const std::string& scalar, const Size& size,
                   const Run& run) {
  const std::string name =
      loss + "/" + scalar + "/B:" + std::to_string(size.B) + "/d:" + std::to_string(size.d);
  benchmark::RegisterBenchmark(
      name.c_str(), [run, size, alternation = Alternation()](
                        benchmark::State& state) mutable { run(state, size, alternation); })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace bench

#endif  // CONTRASTIVE_BENCH_BENCH_HPP
