// The number of threads changes nothing but the time; without OpenMP there is nothing to test.
#include "support/catch.hpp"

#ifdef _OPENMP
#include <omp.h>

#include "support/check.hpp"
#include "support/problems.hpp"

using namespace contrastive_tests;

namespace {

/// Sets the number of threads and puts it back.
class Threads {
 public:
  explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~Threads() { omp_set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

/// Sizes around those at which threads are started and work is divided.
constexpr Index sizes[] = {5, 50, 131, 256, 487};

Problem problem_of(Loss loss, Index batch) {
  Random random(81);
  return random_problem(loss, batch, 40, random, 2 * batch);
}

}  // namespace

TEST_CASE("threads: any number gives the same bits", "[threads]") {
  for (const Loss loss : all_losses)
    for (const Index batch : sizes) {
      const Problem problem = problem_of(loss, batch);
      const Threads one(1);
      const Answer expected = evaluate<float>(problem);
      const Answer expected_double = evaluate<double>(problem);
      for (const int count : {2, 3, 4, 8}) {
        const Threads several(count);
        CAPTURE(describe(loss).function, batch, count);
        CHECK(same_bits(evaluate<float>(problem), expected));
        CHECK(same_bits(evaluate<double>(problem), expected_double));
        CHECK(same_bits(evaluate_value<float>(problem), expected.value));
      }
    }
}

TEST_CASE("threads: any number gives the same rows and reports", "[threads]") {
  for (const Loss loss : all_losses) {
    if (!has_rows(loss)) continue;
    Problem problem = problem_of(loss, 487);
    problem.weights.clear();
    const Threads one(1);
    const Matrix rows = evaluate_rows<float>(problem);
    const Threads four(4);
    CAPTURE(describe(loss).function);
    CHECK(same_bits(evaluate_rows<float>(problem), rows));
    if (loss != Loss::info_nce && loss != Loss::hard_negative) continue;
    const Report several = evaluate_report<float>(problem);
    const Threads again(1);
    const Report expected = evaluate_report<float>(problem);
    CHECK(same_bits(several.mean_negative, expected.mean_negative));
    CHECK(same_bits(several.log_candidates, expected.log_candidates));
    CHECK(several.top1_rows == expected.top1_rows);
    CHECK(several.top1_columns == expected.top1_columns);
    CHECK(several.masked == expected.masked);
  }
}

TEST_CASE("threads: a call inside a caller's parallel region", "[threads]") {
  for (const Loss loss : all_losses) {
    const Problem problem = problem_of(loss, 256);
    const Answer expected = evaluate<float>(problem);
    int equal = 0;
#pragma omp parallel num_threads(3) reduction(+ : equal)
    equal += same_bits(evaluate<float>(problem), expected) ? 1 : 0;
    CAPTURE(describe(loss).function);
    CHECK(equal == 3);
  }
}

TEST_CASE("threads: an error is thrown where it can be caught", "[threads]") {
  const Threads several(4);
  for (const Loss loss : all_losses) {
    Problem problem = problem_of(loss, 256);
    problem.inputs[0](200, 3) = std::numeric_limits<Real>::quiet_NaN();
    CHECK(refusals<float>(problem).into.kind == "invalid_argument");
  }
}

#endif
