// Strips of logits that are held a group of chunks at a time, as batches of hundreds of thousands
// of rows need them, on batches that fit whole strips too.
#include <algorithm>
#include <contrastive/detail/own_negatives.hpp>
#include <contrastive/detail/row_rule.hpp>
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
struct Result {
  Wide<T> loss;
  std::vector<Wide<T>> losses;
  Matrix dx, dy;
};

/// InfoNCE by row_rule(), with strips held whole or in groups.
template <class T>
Result<T> row_loss(const Matrix& x, const Matrix& y, long double scale,
                   const SoftmaxOptions& options, bool in_groups) {
  using Entries = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Entries x_entries = x.cast<T>(), y_entries = y.cast<T>();
  Entries dx(x.rows(), x.cols()), dy(y.rows(), y.cols());
  const auto view = [](auto& entries) {
    return View<std::remove_reference_t<decltype(*entries.data())>>{
        entries.data(), entries.rows(), entries.cols(), entries.cols(), 1};
  };
  Workspace workspace;
  Scratch scratch(workspace);
  EmbeddingLogits<T> logits(view(x_entries), view(y_entries), {}, Similarity::cosine, scale);
  logits.pack(true, scratch);
  Targets<T> targets(options, logits.scale(), x.rows(), y.rows(), scratch);
  if (targets.finds_false_negatives()) {
    std::vector<T> positives(static_cast<std::size_t>(x.rows()));
    logits.diagonal(positives.data());
    targets.take_positives(positives.data());
  }
  Result<T> result{0, std::vector<Wide<T>>(static_cast<std::size_t>(x.rows())), {}, {}};
  result.loss = row_rule(logits, in_groups ? logits.plan().in_groups() : logits.plan(),
                         NoOwnNegatives<T>(), targets, true, result.losses.data(), scratch)
                    .loss;
  logits.unpack(view(dx), view(dy), {});
  result.dx = dx.template cast<Real>();
  result.dy = dy.template cast<Real>();
  return result;
}

}  // namespace

TEMPLATE_TEST_CASE("groups: the same loss and gradients as from whole strips", "[groups]", float,
                   double) {
  Random random(301);
  for (const Index batch : {300, 487, 700})
    for (const int kind : {0, 1, 2, 3}) {
      const Matrix x = random.normal_matrix(batch, 20), y = random.normal_matrix(batch, 20) + x / 2;
      std::vector<std::int64_t> ids(static_cast<std::size_t>(batch));
      for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i % 250);
      SoftmaxOptions options;
      if (kind > 0) options.pos_ids = ids;
      if (kind > 0) options.label_smoothing = 0.1;
      if (kind == 2) options.false_negative_margin = 0.1;
      // Beyond what one reference serves each chunk has its own, and here some have no candidate:
      // the first hundred rows are of one item.
      const long double scale = kind < 3 ? 12 : sizeof(TestType) == sizeof(float) ? 100 : 600;
      if (kind == 3) std::fill_n(ids.begin(), 100, 7);
      CAPTURE(batch, kind);
      const Result<TestType> whole = row_loss<TestType>(x, y, scale, options, false);
      const Result<TestType> groups = row_loss<TestType>(x, y, scale, options, true);
      // Chunks of a row are added in the same order; rows of dy and columns of dx in parts.
      CHECK(groups.loss == whole.loss);
      CHECK(groups.losses == whole.losses);
      CHECK(relative_error(groups.dx, whole.dx) <= 100 * epsilon<TestType>);
      CHECK(relative_error(groups.dy, whole.dy) <= 100 * epsilon<TestType>);
    }
}

TEMPLATE_TEST_CASE("groups: every column is in one group", "[groups]", float, double) {
  using Plan = StripPlan<TestType>;
  for (const Index n : {2, 239, 240, 300, 5000, 1000000}) {
    const Plan whole(n, n);
    const Plan plan = whole.in_groups();
    CAPTURE(n, plan.strip_rows, plan.group);
    Index end = 0;
    for (Index group = 0; group < plan.groups(); ++group) {
      const Strip<TestType> strip = plan.strip(0, nullptr, group);
      CHECK(strip.origin == end);
      CHECK(strip.beyond > strip.origin);
      const Index chunks = (strip.beyond - strip.origin + Plan::chunk - 1) / Plan::chunk;
      CHECK(chunks * strip.chunk_size() <= whole.strip_size());
      end = strip.beyond;
    }
    CHECK(end == n);
  }
}
