// The entry of the benchmark programs. Beside the flags of Google Benchmark (--help):
//
//     --table     a Markdown table of times and ratios
//     --curves    other sizes: B from 16 to 8192 at d = 256, and d from 8 to 2048 at B = 1024
#include <Eigen/Core>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "bench.hpp"
#include "table.hpp"

namespace {

using bench::Size;

const std::vector<Size> table_sizes = {{8, 32},     {64, 128},   {256, 256}, {1024, 256},
                                       {1024, 768}, {4096, 512}, {8192, 512}};

std::vector<Size> curve_sizes() {
  std::vector<Size> sizes;
  for (Eigen::Index B = 16; B <= 8192; B *= 2) sizes.push_back({B, 256});
  for (Eigen::Index d = 8; d <= 2048; d *= 2)
    if (d != 256) sizes.push_back({1024, d});
  return sizes;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string thread_count(int threads) {
  return threads > 0 ? std::to_string(threads) : "unknown";
}

/// What a figure depends on.
std::vector<std::pair<std::string, std::string>> context() {
#ifdef _OPENMP
  const int threads = omp_get_max_threads();
#else
  const int threads = 1;
#endif
  const int other_threads = bench::set_other_threads(threads);
  return {
      {"processor", processor()},
      {"threads", thread_count(threads) + " (ours), " + thread_count(other_threads) + " (theirs)"},
      {"theirs", bench::other_description()},
      {"compiler", CONTRASTIVE_BENCH_COMPILER},
      {"Eigen", std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION)
                    + "." + std::to_string(EIGEN_MINOR_VERSION) + ", "
                    + Eigen::SimdInstructionSetsInUse()}};
}

/// Whether the flag is there; it is taken out.
bool take_flag(std::vector<char*>& arguments, const std::string& flag) {
  const auto end = std::remove(arguments.begin() + 1, arguments.end(), flag);
  const bool found = end != arguments.end();
  arguments.erase(end, arguments.end());
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  const bool as_table = take_flag(arguments, "--table");
  const bool curves = take_flag(arguments, "--curves");
  int count = int(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;

  bench::register_benchmarks(curves ? curve_sizes() : table_sizes);
  for (const auto& [key, value] : context()) {
    if (as_table) std::printf("- %s: %s\n", key.c_str(), value.c_str());
    benchmark::AddCustomContext(key, value);
  }
  if (as_table) {
    bench::TableReporter reporter("milliseconds (ratio to theirs: below 1 is faster)");
    benchmark::RunSpecifiedBenchmarks(&reporter);
  } else {
    benchmark::RunSpecifiedBenchmarks();
  }
  benchmark::Shutdown();
  return bench::failed ? 1 : 0;
}
