// The same inputs give the same bits: whatever their storage, the form of the call, the workspace.
#include "support/build.hpp"
#include "support/catch.hpp"
#include "support/check.hpp"
#include "support/problems.hpp"

using namespace contrastive_tests;

namespace {

constexpr Index sizes[] = {1, 2, 5, 13, 50, 97, 243};

Problem at_size(Loss loss, Index batch, bool cosine, Random& random) {
  // One row has no uniformity.
  Problem problem =
      plain_problem(loss, loss == Loss::uniformity ? batch + 1 : batch, 19, random, batch / 2 + 1);
  if (has_similarity(loss)) problem.cosine = cosine;
  if (!cosine) problem.log_scale = -2;
  return problem;
}

}  // namespace

TEMPLATE_TEST_CASE("same bits: however the inputs lie in memory", "[bits]", float, double,
                   long double) {
  for (const Loss loss : all_losses)
    for (const bool cosine : {true, false}) {
      Random random(71);
      for (const Index batch : sizes) {
        if (batch > 50 && std::is_same_v<TestType, long double>) continue;  // slow
        const Problem problem = at_size(loss, batch, cosine, random);
        const Answer expected = evaluate<TestType>(problem);
        for (const Layout layout : all_layouts) {
          CAPTURE(describe(loss).function, batch, cosine, static_cast<int>(layout));
          CHECK(same_bits(evaluate<TestType>(problem, layout), expected));
          CHECK(same_bits(evaluate_value<TestType>(problem, layout), expected.value));
        }
      }
    }
}

TEMPLATE_TEST_CASE("same bits: every form of the call, whatever the workspace has served", "[bits]",
                   float, double, long double) {
  contrastive::Workspace workspace;
  Random random(72);
  for (const Index batch : {97, 5, 50, 1, 243})
    for (const Loss loss : all_losses) {
      const Problem problem = at_size(loss, batch, true, random);
      const Answer expected = evaluate<TestType>(problem);
      CAPTURE(describe(loss).function, batch);
      for (const Layout layout : {Layout::column_major, Layout::row_major, Layout::inner_stride}) {
        CHECK(same_bits(evaluate<TestType>(problem, layout, workspace), expected));
        CHECK(same_bits(evaluate_into<TestType>(problem, layout, workspace), expected));
        CHECK(same_bits(evaluate_value<TestType>(problem, layout, workspace), expected.value));
        // Another scalar type and shape in between.
        (void)evaluate<double>(at_size(Loss::clip, 7, true, random), layout, workspace);
      }
    }
}

TEMPLATE_TEST_CASE("same bits: whatever the workspace may keep", "[bits]", float, double) {
  for (const Loss loss : {Loss::clip, Loss::clip_logits, Loss::info_nce, Loss::nt_xent,
                          Loss::sup_con, Loss::uniformity})
    for (const Index batch : {1, 5, 50, 97, 243, 481})
      for (const bool cold : {true, false}) {
        Random random(73);
        Problem problem = at_size(loss, batch, true, random);
        if (cold && has_scale(loss)) problem = cold_problem(problem, batch % 2 == 1);
        const Answer expected = evaluate<TestType>(problem);
        for (const std::size_t budget : {std::size_t(0), std::size_t(1), std::size_t(1) << 12,
                                         std::size_t(1) << 18, std::size_t(1) << 40}) {
          if (budget == std::size_t(1) << 40 && batch > 97) continue;
          contrastive::Workspace workspace{budget};
          CAPTURE(describe(loss).function, batch, cold, budget);
          CHECK(same_bits(evaluate<TestType>(problem, Layout::column_major, workspace), expected));
          CHECK(same_bits(evaluate_value<TestType>(problem, Layout::column_major, workspace),
                          expected.value));
        }
      }
}

TEST_CASE("workspace: CLIP keeps all of S where that fits the budget, to the byte", "[bits]") {
  constexpr std::size_t all = 512 * 512 * sizeof(float);
  Random random(75);
  const Problem problem = plain_problem(Loss::clip, 512, 5, random);
  contrastive::Workspace enough{all}, less{all - 1};
  CHECK(same_bits(evaluate<float>(problem, Layout::column_major, enough),
                  evaluate<float>(problem, Layout::column_major, less)));
  CHECK(enough.size() > less.size() + all / 2);  // instead of one strip of 240 rows at most
  CHECK(enough.size() < less.size() + all);
}

TEST_CASE("same bits: scales below and beyond what exponentials with one reference hold",
          "[bits]") {
  // Positives near their queries, opposed to them, and all of them opposed to all queries, where
  // every logit is about minus the scale.
  enum class Positives { near, opposed, all_opposed };
  for (const Loss loss :
       {Loss::clip, Loss::info_nce, Loss::hard_negative, Loss::nt_xent, Loss::sup_con})
    for (const double log_scale : {0.0, 2.7, 3.0, 3.4, 3.7, 4.0, 4.6, 5.1, 5.4, 6.0})
      for (const Positives positives :
           {Positives::near, Positives::opposed, Positives::all_opposed}) {
        Random random(74);
        Problem problem = plain_problem(loss, 60, 5, random);
        problem.log_scale = log_scale;
        problem.max_scale = unlimited;
        if (positives == Positives::all_opposed)
          for (Matrix& x : problem.inputs) x.col(0).array() += 12;
        if (positives != Positives::near)
          for (std::size_t k = 1; k < problem.inputs.size(); ++k) problem.inputs[k] *= -1;
        contrastive::Workspace nothing{0};
        const Answer got = evaluate<float>(problem);
        CAPTURE(describe(loss).function, log_scale, static_cast<int>(positives));
        CHECK(same_bits(evaluate<float>(problem, Layout::column_major, nothing), got));
        check_loss(problem);
      }
}

TEST_CASE("same bits: from run to run", "[bits]") {
  for (const Loss loss : all_losses) {
    Random random(75);
    const Problem problem = random_problem(loss, 97, 19, random, 194);
    const Answer first = evaluate<float>(problem);
    for (int repetition = 0; repetition < 3; ++repetition)
      CHECK(same_bits(evaluate<float>(problem), first));
  }
}

TEST_CASE("same bits: the value alone with all options", "[bits]") {
  for (const Loss loss : all_losses) {
    Random random(76);
    for (const Index batch : {2, 7, 49, 130})
      for (int repetition = 0; repetition < 6; ++repetition) {
        const Problem problem = random_problem(loss, batch, 9, random, 2 * batch);
        CAPTURE(describe(loss).function, batch, repetition);
        CHECK(same_bits(evaluate_value<float>(problem), evaluate<float>(problem).value));
        CHECK(same_bits(evaluate_value<double>(problem), evaluate<double>(problem).value));
      }
  }
}
