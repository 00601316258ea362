// The oracle is itself tested before it tests anything: against the reference values, and its
// gradients against central differences of its values.
#include "support/oracle.hpp"

#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/differences.hpp"
#include "support/problems.hpp"

using namespace contrastive_tests;

namespace {

/// A logit is the scale times a sum of d <= 8 products of numbers up to 1, or an input of up to
/// 1000: that many roundings of long double, and about as many again in exp, log and the sums over
/// at most 12 candidates. 32 units are room for all of them.
Real oracle_tolerance(const Problem& problem) {
  const Real size = has_scale(problem.loss) ? std::max(Real(1), oracle::scale_of(problem)) : 1;
  return 32 * std::max(size, largest(problem.inputs[0])) * std::numeric_limits<Real>::epsilon();
}

}  // namespace

TEST_CASE("the oracle agrees with the reference values", "[oracle][reference]") {
  for (const Case& c : read_all_cases()) {
    CAPTURE(c.name.loss, c.name.name);
    const Answer got = oracle_answer(c.problem);
    const Real tolerance = oracle_tolerance(c.problem);
    CHECK(relative_error(got.value, c.expected.value) <= tolerance);
    REQUIRE(got.gradients.size() == c.expected.gradients.size());
    for (std::size_t k = 0; k < got.gradients.size(); ++k) {
      CAPTURE(k);
      CHECK(reference_error(got.gradients[k], c.expected.gradients[k]) <= tolerance);
    }
    if (c.expected.d_log_scale)
      CHECK(relative_error(got.d_log_scale.value(), *c.expected.d_log_scale) <= tolerance);
    if (c.expected.d_bias)
      CHECK(relative_error(got.d_bias.value(), *c.expected.d_bias) <= tolerance);
  }
}

TEST_CASE("the oracle's gradients are the differences of its values", "[oracle]") {
  for (const Loss loss : all_losses) {
    Random random(7);
    for (int repetition = 0; repetition < 4; ++repetition) {
      const Problem problem = random_problem(loss, 6, 5, random);
      CAPTURE(describe(loss).function, repetition);
      check_against_differences(problem, oracle_answer(problem), oracle_answer, random);
    }
  }
}
