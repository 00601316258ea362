// Values and gradients worked out at 80 digits, for every scalar type and storage of the inputs.
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/check.hpp"

using namespace contrastive_tests;

TEST_CASE("no reference case is missing", "[reference]") {
  CHECK(read_all_cases().size() == 73);
}

TEMPLATE_TEST_CASE("reference values", "[reference]", float, double, long double) {
  for (const Case& c : read_all_cases()) {
    for (const Layout layout : all_layouts) {
      const Answer got = evaluate<TestType>(c.problem, layout);
      const Real tolerance = tolerance_of<TestType>(c.problem);
      CAPTURE(c.name.loss, c.name.name, static_cast<int>(layout), tolerance);
      CHECK(relative_error(got.value, c.expected.value) <= tolerance);
      REQUIRE(got.gradients.size() == c.expected.gradients.size());
      for (std::size_t k = 0; k < got.gradients.size(); ++k) {
        CAPTURE(k);
        CHECK(reference_error(got.gradients[k], c.expected.gradients[k]) <= tolerance);
      }
      REQUIRE(got.d_log_scale.has_value() == c.expected.d_log_scale.has_value());
      if (got.d_log_scale)
        CHECK(relative_error(*got.d_log_scale, *c.expected.d_log_scale) <= tolerance);
      REQUIRE(got.d_bias.has_value() == c.expected.d_bias.has_value());
      if (got.d_bias) CHECK(relative_error(*got.d_bias, *c.expected.d_bias) <= tolerance);
    }
  }
}
