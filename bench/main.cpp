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
#ifdef __linux__
#include <sched.h>
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

int our_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

/// Gives each of our threads a core of its own, unless OMP_PROC_BIND did. Threads that have slept
/// may wake on one core, where they spin for each other: then a call of 50 us took 16 ms, four
/// barriers of a time slice each.
///
/// @return the cores, none where threads are free to move.
std::vector<int> pin_threads() {
  std::vector<int> cores;
#if defined(__linux__) && defined(_OPENMP)
  cpu_set_t allowed;
  if (omp_get_proc_bind() != omp_proc_bind_false
      || sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    return {};
  for (int core = 0; core < CPU_SETSIZE && int(cores.size()) < our_threads(); ++core)
    if (CPU_ISSET(std::size_t(core), &allowed)) cores.push_back(core);
  if (int(cores.size()) < our_threads()) return {};
#pragma omp parallel
  {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(std::size_t(cores[std::size_t(omp_get_thread_num())]), &set);
    sched_setaffinity(0, sizeof set, &set);
  }
#endif
  return cores;
}

/// What a figure depends on.
std::vector<std::pair<std::string, std::string>> context() {
  const std::vector<int> cores = pin_threads();
  const int others = bench::set_other_threads(our_threads(), cores);
  return {{"processor", processor()},
          {"threads", std::to_string(our_threads()) + " (ours), "
                          + (others > 0 ? std::to_string(others) : "an unknown number")
                          + " (theirs)" + (cores.empty() ? "" : ", pinned")},
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
