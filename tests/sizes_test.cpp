// Every loss against the naive one at sizes below, at and above whatever a blocked implementation
// may cut matrices into: packets, panels, chunks, strips and blocks of the inner dimension.
#include "support/catch.hpp"
#include "support/check.hpp"
#include "support/problems.hpp"

using namespace contrastive_tests;

namespace {

constexpr Index batches[] = {1,   2,   3,   5,   6,   7,   11,  12,  13,  15,  16,
                             17,  31,  47,  48,  49,  63,  64,  65,  95,  96,  97,
                             119, 120, 121, 239, 240, 241, 243, 479, 480, 481, 500};
constexpr Index widths[] = {1, 2, 7, 8, 15, 16, 17, 24, 25, 33, 40, 41, 48, 49, 255, 256, 257, 300};

bool needs_two_rows(Loss loss) {
  return loss == Loss::uniformity;
}

}  // namespace

TEST_CASE("sizes: every batch", "[sizes]") {
  for (const Loss loss : all_losses) {
    Random random(11);
    for (const Index batch : batches) {
      if (batch == 1 && needs_two_rows(loss)) continue;
      check_loss(plain_problem(loss, batch, 5, random, batch / 2 + 1));
    }
  }
}

TEST_CASE("sizes: every batch at a low temperature", "[sizes]") {
  for (const Loss loss : all_losses) {
    if (!has_scale(loss)) continue;
    for (const bool outliers : {false, true}) {
      Random random(18);
      for (const Index batch : batches)
        check_loss(cold_problem(plain_problem(loss, batch, 5, random, batch / 2 + 1), outliers));
    }
  }
}

TEST_CASE("sizes: every width", "[sizes]") {
  for (const Loss loss : all_losses) {
    if (takes_logits(loss)) continue;
    Random random(12);
    for (const Index d : widths)
      for (const Index batch : {4, 13, 50}) check_loss(plain_problem(loss, batch, d, random, 9));
  }
}

TEST_CASE("sizes: batch and width over several blocks", "[sizes]") {
  for (const Loss loss : {Loss::info_nce, Loss::hard_negative, Loss::clip, Loss::siglip,
                          Loss::nt_xent, Loss::sup_con, Loss::uniformity}) {
    Random random(13);
    check_loss(plain_problem(loss, 241, 257, random, 243));
    Problem wide = plain_problem(loss, 97, 300, random, 10);
    wide.cosine = false;
    wide.log_scale = -4;  // dot products of 300 numbers are about 30
    wide.t = 0.01;
    check_loss(wide);
  }
}

TEST_CASE("sizes: extra negatives beside the batch", "[sizes]") {
  const std::pair<Index, Index> sizes[] = {{1, 1},     {5, 1},    {5, 2},    {5, 7},    {6, 6},
                                           {11, 1},    {12, 36},  {40, 8},   {47, 1},   {47, 2},
                                           {48, 48},   {95, 146}, {239, 1},  {239, 2},  {240, 240},
                                           {241, 240}, {7, 473},  {17, 483}, {100, 900}};
  for (const auto& [batch, extra] : sizes) {
    Random random(14);
    check_loss(plain_problem(Loss::hard_negative, batch, 6, random, extra));
    Problem own = plain_problem(Loss::hard_negative, batch, 6, random, extra);
    own.own_scope = true;
    if (extra % batch != 0) own.offsets = random_offsets(batch, extra, random);
    check_loss(own);
  }
}

TEST_CASE("sizes: one query with very many negatives of its own", "[sizes]") {
  Random random(15);
  Problem problem = plain_problem(Loss::hard_negative, 9, 4, random, 600);
  problem.own_scope = true;
  problem.offsets = {0, 0, 0, 1, 1, 590, 590, 598, 600, 600};
  check_loss(problem);
}

TEST_CASE("sizes: one dimension", "[sizes]") {
  for (const Loss loss : all_losses) {
    if (takes_logits(loss)) continue;
    Random random(16);
    for (const Index batch : {2, 5, 49}) {
      Problem problem = plain_problem(loss, batch, 1, random, 7);
      for (Matrix& x : problem.inputs)  // no zeros, which have no direction
        x = x.unaryExpr([](Real v) { return v == 0 ? Real(1) : v; });
      check_loss(problem);
      problem.cosine = false;
      check_loss(problem);
    }
  }
}

TEST_CASE("sizes: so many candidates that strips get lower", "[sizes]") {
  // With ids that leave a query none of the batch's negatives rows do not know of each other: the
  // loss of 210 of them is the mean of that of the first and the last 105, wherever they are cut.
  Random random(17);
  const Index batch = 210, half = batch / 2, extra = 100000;
  Problem whole = plain_problem(Loss::hard_negative, batch, 4, random, extra);
  whole.query_ids = Ids(static_cast<std::size_t>(batch), 1);
  const auto part = [&](Index first) {
    Problem problem = whole;
    problem.query_ids.resize(static_cast<std::size_t>(half));
    for (std::size_t k = 0; k < 2; ++k) problem.inputs[k] = whole.inputs[k].middleRows(first, half);
    return evaluate<float>(problem);
  };
  const Answer first = part(0), last = part(half);
  Answer expected;
  expected.value = (first.value + last.value) / 2;
  expected.d_log_scale = (*first.d_log_scale + *last.d_log_scale) / 2;
  for (std::size_t k = 0; k < 2; ++k) {
    Matrix gradient(batch, 4);
    gradient << first.gradients[k] / 2, last.gradients[k] / 2;
    expected.gradients.push_back(gradient);
  }
  expected.gradients.push_back((first.gradients[2] + last.gradients[2]) / 2);
  check_answer(evaluate<float>(whole), expected, 64 * epsilon<float>);
}
