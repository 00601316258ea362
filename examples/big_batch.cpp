// A batch that is far too big for its matrix of similarities: loss, gradients, time and memory.
//
//     big_batch [B [d [clip | info_nce]]]        32768 512 clip unless given
//
// CLIP runs with nothing kept between its two sweeps, so what is needed beside the embeddings and
// their gradients is a few copies of them, whatever B.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <contrastive/contrastive.hpp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#if defined(__unix__) || defined(__APPLE__)
#include <sys/resource.h>
#include <unistd.h>
#endif

namespace {

using namespace contrastive;
using Eigen::Index;
using Eigen::MatrixXf;

double seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

/// Peak resident memory of the process in bytes; 0 where it cannot be asked for.
double peak_memory() {
#if defined(__APPLE__)
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_maxrss);
#elif defined(__unix__)
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return 1024 * double(usage.ru_maxrss);
#else
  return 0;
#endif
}

bool is_terminal() {
#if defined(__unix__) || defined(__APPLE__)
  return isatty(STDOUT_FILENO) != 0;
#else
  return false;
#endif
}

// ---- The batch ----------------------------------------------------------------------------------

/// Embeddings and what comes back for them.
struct Batch {
  MatrixXf Q, P;
  ClipGradient<MatrixXf, MatrixXf, LogScale> gradient{};  // InfoNCE's is the same type

  Batch(Index B, Index d) : Q(B, d), P(B, d) {
    std::uint64_t state = 1;
    const auto random = [&state] {  // uniform in [-1, 1)
      state = state * 6364136223846793005u + 1442695040888963407u;
      return float(double(state >> 11) * 0x1p-52 - 1);
    };
    for (Index k = 0; k < Q.size(); ++k) {  // so near that any set of pairs beats a blind guess
      Q.data()[k] = random();
      P.data()[k] = Q.data()[k] + random() / 16;
    }
  }

  /// Loss and gradients, and how long they took.
  double run(bool clip) {
    const LogScale scale{std::log(1 / 0.07), 100.0};
    Workspace workspace(0);
    const double begin = seconds();
    if (clip)
      clip_loss_grad(Q, P, scale, {}, gradient, workspace);
    else
      info_nce_loss_grad(Q, P, scale, {}, gradient, workspace);
    return seconds() - begin;
  }
};

/// A cosine does not feel the length of a row, so each row's gradient is perpendicular to the row.
/// The largest |x . dx| / |x| of a thousand rows, as a part of their largest |dx|.
double along_rows(const MatrixXf& X, const MatrixXf& dX) {
  double along = 0, largest = 0;
  for (Index i = 0; i < X.rows(); i += std::max<Index>(X.rows() / 1000, 1)) {
    const Eigen::RowVectorXd x = X.row(i).cast<double>(), dx = dX.row(i).cast<double>();
    along = std::max(along, std::abs(x.dot(dx)) / x.norm());
    largest = std::max(largest, dx.norm());
  }
  return along / largest;
}

// ---- Progress -----------------------------------------------------------------------------------

/// A bar that is drawn until it goes out of scope. The library does not say how far it is, so it is
/// an estimate: the time gone by as a part of the time expected, and never more than 99%.
class Bar {
 public:
  explicit Bar(double expected) : expected_(expected), begin_(seconds()) {
    if (is_terminal()) ticker_ = std::thread([this] { tick(); });
  }
  ~Bar() {
    if (!ticker_.joinable()) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      done_ = true;
    }
    wake_.notify_one();
    ticker_.join();
    std::printf("\r%79s\r", "");
  }
  Bar(const Bar&) = delete;
  Bar& operator=(const Bar&) = delete;

 private:
  void tick() {
    std::unique_lock<std::mutex> lock(mutex_);
    do draw();
    while (!wake_.wait_for(lock, std::chrono::milliseconds(250), [this] { return done_; }));
  }

  void draw() const {
    constexpr int width = 40;
    const double elapsed = seconds() - begin_;
    const double share = std::min(elapsed / expected_, 0.99);
    std::string bar(std::size_t(share * width), '#');
    bar.resize(width, '.');
    if (elapsed < expected_)
      std::printf("\r[%s] %2.0f%%, %.0f s left, estimated  ", bar.c_str(), 100 * share,
                  std::ceil(expected_ - elapsed));
    else
      std::printf("\r[%s] longer than expected, %.0f s  ", bar.c_str(), elapsed);
    std::fflush(stdout);
  }

  double expected_, begin_;
  bool done_ = false;
  std::mutex mutex_{};
  std::condition_variable wake_{};
  std::thread ticker_{};
};

/// What a call of B pairs will take: the time of a smaller one, scaled by the square of the number
/// of pairs.
double estimate(Index B, Index d, bool clip) {
  for (Index small = 512;; small *= 2) {
    small = std::min(small, B);
    Batch batch(small, d);
    const double once = batch.run(clip);
    if (once > 0.3 || small == B) return once * std::pow(double(B) / double(small), 2);
  }
}

// ---- The program --------------------------------------------------------------------------------

struct Arguments {
  Index B = 32768;
  Index d = 512;
  bool clip = true;
};

/// A whole number in that range, and nothing else.
std::optional<Index> parse(const char* text, Index least, Index most) {
  const char* end = text + std::strlen(text);
  Index value = 0;
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < least || value > most) return std::nullopt;
  return value;
}

std::optional<Arguments> parse(int count, char** arguments) {
  Arguments result;
  if (count > 4) return std::nullopt;
  if (count > 1) {
    const auto B = parse(arguments[1], 2, Index{1} << 24);
    if (!B) return std::nullopt;
    result.B = *B;
  }
  if (count > 2) {
    const auto d = parse(arguments[2], 2, Index{1} << 16);
    if (!d) return std::nullopt;
    result.d = *d;
  }
  if (count > 3) {
    const std::string loss = arguments[3];
    if (loss != "clip" && loss != "info_nce") return std::nullopt;
    result.clip = loss == "clip";
  }
  return result;
}

bool run(const Arguments& arguments) {
  const auto [B, d, clip] = arguments;
  const double logits = double(B) * double(B);
  std::printf("%s of %td pairs of %td floats\n", clip ? "CLIP" : "InfoNCE", B, d);
  std::fflush(stdout);

  const double expected = is_terminal() ? estimate(B, d, clip) : 0;
  Batch batch(B, d);
  double elapsed = 0;
  {
    const Bar bar(expected);
    elapsed = batch.run(clip);
  }
  const double products = clip ? 4 : 3;
  const double loss = double(batch.gradient.loss);
  const double blind_guess = std::log(double(B));
  const auto& [Q, P, gradient] = batch;
  const double along = std::max(along_rows(Q, gradient.dQ), along_rows(P, gradient.dP));
  std::printf("loss          %.6g, where a blind guess has log B = %.6g\n", loss, blind_guess);
  std::printf("gradients     perpendicular to their rows to %.0e\n", along);
  std::printf("time          %.2f s, %.0f GFLOP/s\n", elapsed,
              1e-9 * products * 2 * logits * double(d) / elapsed);
  std::printf("peak memory   %.0f MB, of which inputs and gradients %.0f MB\n",
              1e-6 * peak_memory(), 1e-6 * 4 * double(B) * double(d) * sizeof(float));
  std::printf("a B x B matrix alone would take %.1f GB\n", 1e-9 * logits * sizeof(float));

  const bool good = loss >= 0 && loss < blind_guess && along < 1e-5 && gradient.dQ.allFinite()
                    && gradient.dP.allFinite();
  if (!good) std::printf("This is WRONG.\n");
  return good;
}

}  // namespace

int main(int count, char** argv) {
  const std::optional<Arguments> arguments = parse(count, argv);
  if (!arguments) {
    std::fprintf(stderr,
                 "usage: big_batch [B [d [clip | info_nce]]]\n"
                 "  B   pairs, from 2 to 16777216; 32768 unless given\n"
                 "  d   floats in an embedding, from 2 to 65536; 512 unless given\n");
    return 2;
  }
  try {
    return run(*arguments) ? 0 : 1;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "big_batch: not enough memory for embeddings of that size\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "big_batch: %s\n", error.what());
  }
  return 1;
}
