// Strips of logits that are held a part at a time, as large batches need them, on batches that fit
// whole strips too. The program that has small parts runs everything else through several of them.
#include <algorithm>
#include <contrastive/contrastive.hpp>
#include <contrastive/detail/own_negatives.hpp>
#include <contrastive/detail/row_rule.hpp>
#include <contrastive/detail/sigmoid_rule.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/check.hpp"
#include "support/random.hpp"

using namespace contrastive_tests;

namespace {

using contrastive::Similarity;
using contrastive::SoftmaxOptions;
using contrastive::Workspace;
using namespace contrastive::detail;

template <class T>
using Entries = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class T>
struct Result {
  Wide<T> loss, d_bias;
  std::vector<Wide<T>> losses;
  Entries<T> dx, dy;
};

template <class T>
void check_equal(const Result<T>& result, const Result<T>& expected) {
  CHECK(result.loss == expected.loss);
  CHECK(result.d_bias == expected.d_bias);
  CHECK(result.losses == expected.losses);
  CHECK(result.dx == expected.dx);
  CHECK(result.dy == expected.dy);
}

/// A rule: run(logits, plan, losses, scratch) returns loss and d_bias. Strips are held whole, or in
/// parts of so many blocks of columns.
template <class T, class Run>
Result<T> run_rule(const Matrix& x, const Matrix& y, long double scale, Index blocks,
                   const Run& run) {
  const Entries<T> x_entries = x.cast<T>(), y_entries = y.cast<T>();
  Result<T> result{0, 0, std::vector<Wide<T>>(static_cast<std::size_t>(x.rows())),
                   Entries<T>(x.rows(), x.cols()), Entries<T>(y.rows(), y.cols())};
  const auto view = [](auto& entries) {
    return View<std::remove_reference_t<decltype(*entries.data())>>{
        entries.data(), entries.rows(), entries.cols(), entries.cols(), 1};
  };
  Workspace workspace;
  Scratch scratch(workspace);
  EmbeddingLogits<T> logits(view(x_entries), view(y_entries), {}, Similarity::cosine, scale);
  logits.pack(true, scratch);
  StripPlan<T> plan = logits.plan().whole();
  if (blocks > 0) plan.part_chunks = blocks * StripPlan<T>::block_cols / StripPlan<T>::chunk;
  std::tie(result.loss, result.d_bias) = run(logits, plan, result.losses.data(), scratch);
  logits.unpack(view(result.dx), view(result.dy), {});
  return result;
}

/// InfoNCE.
template <class T>
Result<T> row_loss(const Matrix& x, const Matrix& y, long double scale,
                   const SoftmaxOptions& options, Index blocks) {
  return run_rule<T>(
      x, y, scale, blocks, [&](auto& logits, const auto& plan, auto* losses, Scratch& scratch) {
        Targets<T> targets(options, logits.scale(), x.rows(), y.rows(), scratch);
        if (targets.finds_false_negatives()) {
          std::vector<T> positives(static_cast<std::size_t>(x.rows()));
          logits.diagonal(positives.data());
          targets.take_positives(positives.data());
        }
        const auto sums =
            row_rule(logits, plan, NoOwnNegatives<T>(), targets, true, losses, scratch);
        return std::pair(sums.loss, Wide<T>(0));
      });
}

template <class T>
Result<T> sigmoid_loss(const Matrix& x, const Matrix& y, long double scale, Index blocks) {
  return run_rule<T>(
      x, y, scale, blocks, [&](auto& logits, const auto& plan, auto* losses, Scratch& scratch) {
        const Exclusions excluded({}, {}, {}, x.rows(), scratch);
        const auto sums = sigmoid_rule(logits, plan, excluded, MeanWeights<Wide<T>>({}, x.rows()),
                                       -1.5, true, losses, scratch);
        return std::pair(sums.loss, sums.d_bias);
      });
}

}  // namespace

TEMPLATE_TEST_CASE("parts: the bits of whole strips", "[parts]", float, double, long double) {
  Random random(301);
  for (const auto& [rows, cols] :
       {std::pair<Index, Index>{300, 300}, {487, 487}, {700, 700}, {100, 900}})
    for (const int kind : {0, 1, 2, 3}) {
      const Matrix x = random.normal_matrix(rows, 20);
      Matrix y = random.normal_matrix(cols, 20);
      y.topRows(rows) += x / 2;
      std::vector<std::int64_t> ids(static_cast<std::size_t>(rows));
      for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i % 250);
      SoftmaxOptions options;
      if (kind > 0) options.pos_ids = ids;
      if (kind > 0) options.label_smoothing = 0.1;
      if (kind == 2) options.false_negative_margin = 0.1;
      // Beyond what one reference serves each chunk has its own, and here some have no candidate:
      // the first hundred rows are of one item.
      const long double scale = kind < 3 ? 12 : sizeof(TestType) == sizeof(float) ? 100 : 600;
      if (kind == 3) std::fill_n(ids.begin(), 100, 7);
      const Result<TestType> whole = row_loss<TestType>(x, y, scale, options, 0);
      for (const Index blocks : {1, 2}) {
        CAPTURE(rows, cols, kind, blocks);
        check_equal(row_loss<TestType>(x, y, scale, options, blocks), whole);
      }
    }
}

TEMPLATE_TEST_CASE("parts: the bits of whole strips, SigLIP", "[parts]", float, double,
                   long double) {
  Random random(302);
  for (const Index batch : {300, 700, 900}) {
    const Matrix x = random.normal_matrix(batch, 12), y = random.normal_matrix(batch, 12) + x / 2;
    const Result<TestType> whole = sigmoid_loss<TestType>(x, y, 10, 0);
    for (const Index blocks : {1, 2}) {
      CAPTURE(batch, blocks);
      check_equal(sigmoid_loss<TestType>(x, y, 10, blocks), whole);
    }
  }
}

TEMPLATE_TEST_CASE("parts: every column is in one part", "[parts]", float, double, long double) {
  using Plan = StripPlan<TestType>;
  for (const Index n : {1, 2, 239, 240, 300, 5000, 200000, 1000000})
    for (const bool symmetric : {false, true}) {
      const Plan plan = symmetric ? Plan::of_symmetric(n) : Plan(n, n);
      for (const Index index : {Index{0}, plan.strips() / 2, plan.strips() - 1}) {
        CAPTURE(n, symmetric, index, plan.strip_rows, plan.part_chunks);
        Index end = plan.first_chunk(index) * Plan::chunk;
        for (Index k = 0; k < plan.parts(index); ++k) {
          const Strip<TestType> part = plan.part(index, k, nullptr);
          CHECK(part.first == index * plan.strip_rows);
          CHECK(part.origin == end);
          CHECK(part.beyond > part.origin);
          const Index chunks = part.end_chunk() - part.first_chunk();
          CHECK(chunks * part.chunk_size() <= plan.part_size());
          CHECK(part.slot(part.end_chunk() - 1, plan.strip_rows - 1) < plan.slots());
          end = part.beyond;
        }
        CHECK(end == n);
      }
      CHECK(plan.part_size()
            <= std::max(Plan::part_limit, plan.strip_rows * Index{Plan::block_cols}));
    }
}

TEMPLATE_TEST_CASE("parts: strips that are used twice are whole or high", "[parts]", float,
                   double) {
  using Plan = StripPlan<TestType>;
  for (const Index rows : {1, 20, 500, 300000})
    for (const Index cols : {1, 500, 5000, 100000, 300000, 3000000}) {
      if (cols < rows) continue;
      const Plan plan = Plan(rows, cols).for_two_uses();
      CAPTURE(rows, cols, plan.strip_rows, plan.part_chunks);
      CHECK(plan.strips() * plan.strip_rows >= rows);
      CHECK((plan.part_size() <= 12 * Plan::part_limit || plan.parts(0) > 1));
      CHECK((plan.parts(0) == 1 || plan.strip_rows >= std::min(rows, Index{120})));
    }
}
