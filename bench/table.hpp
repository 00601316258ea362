// Prints results as Markdown: a row for each size, a column for each loss.
#ifndef CONTRASTIVE_BENCH_TABLE_HPP
#define CONTRASTIVE_BENCH_TABLE_HPP

#include <benchmark/benchmark.h>

#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace bench {

class TableReporter : public benchmark::BenchmarkReporter {
 public:
  explicit TableReporter(std::string caption) : caption_(std::move(caption)) {}

  bool ReportContext(const Context&) override { return true; }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const auto ratio = run.counters.find("ratio");
      const bool is_aggregate = run.run_type == Run::RT_Aggregate;
      if (ratio == run.counters.end() || (is_aggregate && run.aggregate_name != "median")) continue;
      // Of several repetitions the median comes last and stays.
      char cell[64];
      const double seconds =
          run.GetAdjustedRealTime() / benchmark::GetTimeUnitMultiplier(run.time_unit);
      std::snprintf(cell, sizeof cell, "%.3g (%.2f)", 1e3 * seconds, double(ratio->second));
      const std::string& name = run.run_name.function_name;  // LOSS/SCALAR/B:.../d:...
      const std::size_t scalar = name.find('/') + 1, size = name.find('/', scalar) + 1;
      tables_[name.substr(scalar, size - 1 - scalar)].set(name.substr(size),
                                                          name.substr(0, scalar - 1), cell);
      std::fprintf(stderr, "%s: %s\n", name.c_str(), cell);
    }
  }

  void Finalize() override {
    for (const auto& [scalar, table] : tables_) {
      std::printf("\n`%s`: %s\n\n", scalar.c_str(), caption_.c_str());
      table.print();
    }
  }

 private:
  /// Rows and columns in the order of their first appearance.
  class Table {
   public:
    void set(const std::string& row, const std::string& column, const std::string& cell) {
      place(rows_, row);
      place(columns_, column);
      cells_[{row, column}] = cell;
    }

    void print() const {
      std::string rule = "| ---: | ---: |";
      std::printf("| B | d |");
      for (const std::string& column : columns_) {
        std::printf(" %s |", column.c_str());
        rule += " ---: |";
      }
      std::printf("\n%s\n", rule.c_str());
      for (const std::string& row : rows_) {
        const std::size_t slash = row.find('/');  // B:.../d:...
        std::printf("| %s | %s |", row.substr(2, slash - 2).c_str(), row.substr(slash + 3).c_str());
        for (const std::string& column : columns_) {
          const auto cell = cells_.find({row, column});
          std::printf(" %s |", cell == cells_.end() ? "" : cell->second.c_str());
        }
        std::printf("\n");
      }
    }

   private:
    static void place(std::vector<std::string>& names, const std::string& name) {
      for (const std::string& known : names)
        if (known == name) return;
      names.push_back(name);
    }

    std::vector<std::string> rows_{}, columns_{};
    std::map<std::pair<std::string, std::string>, std::string> cells_{};
  };

  std::string caption_;
  std::map<std::string, Table> tables_{};
};

}  // namespace bench

#endif  // CONTRASTIVE_BENCH_TABLE_HPP
