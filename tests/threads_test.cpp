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
