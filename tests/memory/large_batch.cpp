// 65,536 pairs of 8 floats: the logits alone would take 17 GB. Loss, gradients and peak memory.
//
//     large_batch [clip | siglip | info_nce | hard_negative]...     clip and siglip by default
#include <cmath>
#include <contrastive/contrastive.hpp>
#include <cstdio>
#include <string>
#include <vector>
#if defined(__unix__) || defined(__APPLE__)
#include <sys/resource.h>
#endif

namespace {

using namespace contrastive;

constexpr Eigen::Index batch = 65536;
constexpr Eigen::Index width = 8;
constexpr double limit_in_megabytes = 200;

/// Peak resident memory of the process so far; 0 where it cannot be asked for.
double peak_in_megabytes() {
#if defined(__APPLE__)
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1e6;
#elif defined(__unix__)
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1e3;
#else
  return 0;
#endif
}

bool check(const char* what, double got, double expected, double tolerance) {
  const bool good = std::abs(got - expected) <= tolerance;
  std::printf("  %-28s %.9g, expected %.9g%s\n", what, got, expected, good ? "" : "  WRONG");
  return good;
}

/// Equal rows: each of the B candidates has the probability 1/B, and no gradient is left.
bool run(const std::string& loss) {
  const Eigen::MatrixXf Q = Eigen::MatrixXf::Constant(batch, width, 0.5F);
  const Eigen::MatrixXf P = Q;
  const double log_batch = std::log(static_cast<double>(batch));  // 11.090355
  std::printf("%s\n", loss.c_str());
  bool good = true;
  if (loss == "clip") {
    const auto [value, dQ, dP, d_log_scale] = clip_loss_grad(Q, P, LogScale{});
    good = check("loss", static_cast<double>(value), log_batch, 1e-6) && good;
    // Sums of B terms of scale / B each, which cancel: 65,536 roundings of float at random.
    good = check("largest of dQ", static_cast<double>(dQ.cwiseAbs().maxCoeff()), 0, 1e-6) && good;
    good = check("largest of dP", static_cast<double>(dP.cwiseAbs().maxCoeff()), 0, 1e-6) && good;
    good = check("d_log_scale", static_cast<double>(d_log_scale), 0, 1e-3) && good;
  } else if (loss == "info_nce") {
    const auto [value, dQ, dP] = info_nce_loss_grad(Q, P, Temperature{0.07});
    good = check("loss", static_cast<double>(value), log_batch, 1e-6) && good;
    good = check("largest of dQ", static_cast<double>(dQ.cwiseAbs().maxCoeff()), 0, 1e-6) && good;
    good = check("largest of dP", static_cast<double>(dP.cwiseAbs().maxCoeff()), 0, 1e-6) && good;
  } else if (loss == "hard_negative") {
    const auto [value, dQ, dP, dN] =
        hard_negative_loss_grad(Q, P, P.topRows(batch / 2), Temperature{0.07});
    good = check("loss", static_cast<double>(value), log_batch + std::log(1.5), 1e-6) && good;
    good = check("largest of dN", static_cast<double>(dN.cwiseAbs().maxCoeff()), 0, 1e-6) && good;
  } else if (loss == "siglip") {
    // Every logit is 10 - 10 = 0: each of B^2 terms is log 2, a row's mean B log 2.
    const auto [value, dQ, dP, d_log_scale, d_bias] =
        siglip_loss_grad(Q, P, LogScale{std::log(10.0), no_limit}, -10);
    const double expected = static_cast<double>(batch) * std::log(2.0);
    good = check("loss", static_cast<double>(value), expected, 1e-5 * expected) && good;
    const double slope = (static_cast<double>(batch) - 2) / 2;  // B - 1 of 1/2 and one of -1/2
    good = check("d_bias", static_cast<double>(d_bias), slope, 1e-5 * slope) && good;
    good = check("d_log_scale", static_cast<double>(d_log_scale), 10 * slope, 1e-4 * slope) && good;
    good = check("largest of dQ", static_cast<double>(dQ.cwiseAbs().maxCoeff()), 0, 2) && good;
  } else {
    std::printf("  there is no such loss here\n");
    return false;
  }
  const double peak = peak_in_megabytes();
  std::printf("  peak memory %.0f MB, at most %.0f\n", peak, limit_in_megabytes);
  return good && peak < limit_in_megabytes;
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::string> losses(arguments + 1, arguments + count);
  if (losses.empty()) losses = {"clip", "siglip"};
  bool good = true;
  for (const std::string& loss : losses) good = run(loss) && good;
  return good ? 0 : 1;
}
