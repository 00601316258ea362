// The learned scale: its derivative below, at and beyond the limit, and the guard.
#include <contrastive/temperature.hpp>

#include "support/build.hpp"
#include "support/catch.hpp"
#include "support/check.hpp"
#include "support/problems.hpp"

using namespace contrastive_tests;

namespace {

constexpr Loss scaled_losses[] = {Loss::info_nce, Loss::hard_negative, Loss::clip,
                                  Loss::siglip,   Loss::nt_xent,       Loss::sup_con};

Problem at(Loss loss, double log_scale, double max_scale) {
  Random random(41);
  Problem problem = plain_problem(loss, 7, 6, random);
  problem.log_scale = log_scale;
  problem.max_scale = max_scale;
  return problem;
}

}  // namespace

TEMPLATE_TEST_CASE("scale: the derivative passes up to the limit", "[scale]", float, double,
                   long double) {
  for (const Loss loss : scaled_losses)
    for (const double max_scale : {0.5, 1.0, 7.0, 50.0, 100.0}) {
      const double limit = std::log(max_scale);
      const double just_below = std::nextafter(limit, -1e9);
      const auto stored_as_float = static_cast<double>(static_cast<float>(limit));
      for (const double alpha : {limit - 1, just_below, limit, stored_as_float}) {
        const Problem problem = at(loss, alpha, max_scale);
        CAPTURE(describe(loss).function, max_scale, alpha - limit);
        check_against<TestType>(problem, oracle_answer(problem));
        CHECK(*evaluate<TestType>(problem).d_log_scale != 0);
      }
    }
}

TEMPLATE_TEST_CASE("scale: beyond the limit the derivative is 0 and the scale the limit", "[scale]",
                   float, double, long double) {
  for (const Loss loss : scaled_losses)
    for (const double max_scale : {0.5, 1.0, 7.0, 100.0}) {
      const double limit = std::log(max_scale);
      const auto as_float = static_cast<float>(limit);
      const double next_float =
          static_cast<double>(std::nextafter(std::nextafter(as_float, 1e9F), 1e9F));
      for (const double alpha : {next_float, limit + 0.01, limit + 5, limit + 2000}) {
        const Answer got = evaluate<TestType>(at(loss, alpha, max_scale));
        const Answer limited = evaluate<TestType>(at(loss, limit, max_scale));
        CAPTURE(describe(loss).function, max_scale, alpha - limit);
        CHECK(*got.d_log_scale == 0);
        // exp(log(max_scale)) is max_scale but for a rounding
        const Real tolerance = std::max(Real(1e-13L), 8 * epsilon<TestType>);
        CHECK(relative_error(got.value, limited.value) <= tolerance);
        CHECK(relative_error(got.gradients[0], limited.gradients[0]) <= 4 * tolerance);
      }
    }
}

TEST_CASE("scale: CLIP's own parameter, log 100 in float, is a hair above and still passes",
          "[scale]") {
  const float alpha = std::log(100.0F);
  REQUIRE(static_cast<double>(alpha) > std::log(100.0));
  for (const Loss loss : scaled_losses)
    CHECK(*evaluate<float>(at(loss, static_cast<double>(alpha), 100)).d_log_scale != 0);
}

TEST_CASE("scale: without a limit", "[scale]") {
  for (const Loss loss : scaled_losses)
    for (const double alpha : {-3.0, 0.0, 4.7}) {
      const Problem problem = at(loss, alpha, contrastive::no_limit);
      check_loss(problem);
      CHECK(*evaluate<double>(problem).d_log_scale != 0);
    }
}

TEST_CASE("scale: a temperature is a learned scale that does not learn", "[scale]") {
  for (const Loss loss : scaled_losses) {
    Problem fixed = at(loss, std::log(8.0), 100);
    const Answer learned = evaluate<double>(fixed);
    fixed.learned = false;
    fixed.temperature = 0.125;
    const Answer got = evaluate<double>(fixed);
    CHECK_FALSE(got.d_log_scale.has_value());
    CHECK(relative_error(got.value, learned.value) <= 64 * epsilon<double>);
    CHECK(relative_error(got.gradients[0], learned.gradients[0]) <= 64 * epsilon<double>);
  }
}

TEMPLATE_TEST_CASE("limit_log_scale: the largest number that is not above the limit", "[scale]",
                   float, double, long double) {
  constexpr TestType infinity = std::numeric_limits<TestType>::infinity();
  STATIC_REQUIRE(std::is_same_v<decltype(contrastive::limit_log_scale(TestType(1))), TestType>);
  for (const double max_scale : {0.1, 0.5, 1.0, 2.0, 7.0, 10.0, 50.0, 100.0, 1e4, 1e300}) {
    // The limit as a double; more digits than alpha's type or double's are not asked for.
    const auto limit = static_cast<Real>(std::log(max_scale));
    for (const TestType alpha :
         {TestType(800), std::nextafter(static_cast<TestType>(limit), infinity)}) {
      const TestType got = contrastive::limit_log_scale(alpha, max_scale);
      CAPTURE(max_scale, alpha);
      CHECK(static_cast<Real>(got) <= limit);
      CHECK(static_cast<Real>(std::nextafter(got, infinity)) > limit);
      CHECK(contrastive::limit_log_scale(got, max_scale) == got);
      // and alpha does not stick there
      if (max_scale <= 1e4)
        CHECK(*evaluate<TestType>(at(Loss::clip, static_cast<double>(got), max_scale)).d_log_scale
              != 0);
    }
    for (const TestType below : {TestType(-5), TestType(0), static_cast<TestType>(limit) - 1})
      if (static_cast<Real>(below) <= limit)
        CHECK(contrastive::limit_log_scale(below, max_scale) == below);
  }
  CHECK(contrastive::limit_log_scale(TestType(800)) > TestType(4.60516));
  CHECK(contrastive::limit_log_scale(TestType(800), contrastive::no_limit) == TestType(800));
  CHECK(contrastive::limit_log_scale(-infinity) == -infinity);
}

TEMPLATE_TEST_CASE("scale: so large that each row has one winner", "[scale]", float, double,
                   long double) {
  // Then d_log_scale, sum_ij G_ij s_ij, is sum_i w_i (the largest s_ij - s_ii), as is the loss. Row
  // and column of an entry take the same exponential: were its logit rounded in two ways, e^s would
  // be off by the difference, which here is far above 1.
  for (const Loss loss :
       {Loss::info_nce, Loss::hard_negative, Loss::clip, Loss::nt_xent, Loss::sup_con})
    for (const Index batch : {2, 5, 41})
      for (const double scale : {1e8, 1e10, 1e20}) {
        Random random(44);
        Problem problem = plain_problem(loss, batch, 4, random);
        problem.learned = true;
        problem.log_scale = std::log(scale);
        problem.max_scale = 1e300;
        CAPTURE(describe(loss).function, batch, scale);
        const Answer got = evaluate<TestType>(problem);
        CHECK(std::abs(*got.d_log_scale - got.value) <= 1e-5L * got.value);
        for (const Matrix& gradient : got.gradients) CHECK(gradient.allFinite());
      }
}
