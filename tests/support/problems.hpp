// Random problems for every loss, with all the options at once where asked.
#ifndef CONTRASTIVE_TESTS_SUPPORT_PROBLEMS_HPP
#define CONTRASTIVE_TESTS_SUPPORT_PROBLEMS_HPP

#include <algorithm>
#include <cmath>

#include "oracle.hpp"
#include "problem.hpp"
#include "random.hpp"

namespace contrastive_tests {

inline Ids random_ids(Index count, std::int64_t distinct, Random& random) {
  Ids ids(static_cast<std::size_t>(count));
  for (std::int64_t& id : ids) id = random.integer(distinct);
  return ids;
}

/// Normal inputs and no option; B pairs of d numbers, and `extra` rows of N (of triplet B).
/// Second views lie near the first ones, so that losses are neither 0 nor enormous. The scale is
/// learned, 5.
inline Problem plain_problem(Loss loss, Index batch, Index d, Random& random, Index extra = 4) {
  Problem problem;
  problem.loss = loss;
  problem.learned = has_scale(loss);
  problem.log_scale = 1.609375;
  problem.bias = has_bias(loss) ? -2.5 : 0;
  if (takes_logits(loss)) {
    problem.inputs = {Matrix(2 * random.normal_matrix(batch, batch))};
    return problem;
  }
  problem.inputs = {random.normal_matrix(batch, d)};
  if (loss == Loss::uniformity) return problem;
  if (loss == Loss::sup_con) {
    // Classes of about 3, some of them of 1; the rows of each lie around one of the rows.
    problem.labels = random_ids(batch, 1 + batch / 3, random);
    const Matrix noise = random.normal_matrix(batch, d);
    for (Index i = batch - 1; i >= 0; --i)
      problem.inputs[0].row(i) =
          problem.inputs[0].row(problem.labels[static_cast<std::size_t>(i)]) + noise.row(i);
    return problem;
  }
  problem.inputs.push_back(problem.inputs[0] + random.normal_matrix(batch, d));
  if (loss == Loss::hard_negative) problem.inputs.push_back(random.normal_matrix(extra, d));
  if (loss == Loss::triplet) problem.inputs.push_back(random.normal_matrix(batch, d));
  return problem;
}

/// Raises false_negative_margin until no similarity lies so near to what it allows that a float, or
/// a step of central differences, decides otherwise: by 8 2^-23 of the size of similarities, and
/// for few pairs, which leave the room, by more.
inline Problem without_ties(Problem problem) {
  if (!problem.false_negative_margin) return problem;
  using namespace oracle;
  const Views views = views_of(problem);
  Rows lines = normalised(problem, views.z), candidates = lines;
  std::vector<std::size_t> positive = views.positive;
  if (problem.loss != Loss::nt_xent) {
    const auto batch = static_cast<std::size_t>(problem.batch());
    candidates.erase(candidates.begin(), candidates.begin() + problem.batch());
    lines.resize(batch);
    for (std::size_t i = 0; i < batch; ++i) positive.push_back(i);
  }
  const Rows c = products(lines, candidates);
  Real size = 1;
  for (const Row& row : c)
    for (const Real x : row) size = std::max(size, std::abs(x));
  const auto batch = static_cast<Real>(c.size());
  const Real window = size * std::max(Real(0x1p-20), 0.02L / (batch * batch));
  const auto nearest = [&](Real margin) {
    Real least = size;
    for (std::size_t i = 0; i < c.size(); ++i)
      for (std::size_t j = 0; j < c[i].size(); ++j) {
        if (j == positive[i] || (problem.loss == Loss::nt_xent && j == i)) continue;
        least = std::min(least, std::abs(c[i][j] - (c[i][positive[i]] - margin)));
        if (j < c.size()) least = std::min(least, std::abs(c[i][j] - (c[j][positive[j]] - margin)));
      }
    return least;
  };
  while (nearest(*problem.false_negative_margin) < window)
    *problem.false_negative_margin += static_cast<double>(2 * window);
  return problem;
}

/// Whether ids and offsets leave every row a negative.
inline bool has_negatives(const Problem& problem) {
  const auto batch = static_cast<std::size_t>(problem.batch());
  const std::size_t extra =
      problem.inputs.size() > 2 ? static_cast<std::size_t>(problem.inputs[2].rows()) : 0;
  for (const auto& row : oracle::candidates_of(problem, batch, extra))
    if (std::count(row.begin(), row.end(), true) < 2) return false;
  return true;
}

/// At a scale of 90 under cosine the logits go beyond what exponentials with one reference hold.
/// With outliers all rows lie around one direction but for one query and one positive that are
/// opposed to it, whose row and column of logits lie far below all others.
inline Problem cold_problem(Problem problem, bool outliers) {
  problem.learned = true;
  problem.log_scale = 4.5;
  problem.cosine = true;
  if (!outliers) return without_ties(problem);
  for (Matrix& x : problem.inputs) x.col(0).array() += 6;
  const Index batch = problem.batch();
  problem.inputs[0].row(batch / 3) *= -1;
  problem.inputs[problem.loss == Loss::sup_con ? 0 : 1].row(batch / 2) *= -1;
  return without_ties(problem);
}

inline std::vector<double> random_weights(Index count, Random& random) {
  std::vector<double> weights(static_cast<std::size_t>(count));
  for (double& w : weights) w = static_cast<double>(random.integer(5)) / 4;
  weights.front() = 1;  // so that they do not sum to zero
  return weights;
}

/// Offsets that rise from 0 to `extra` by random steps, some of them zero.
inline Ids random_offsets(Index batch, Index extra, Random& random) {
  Ids offsets(static_cast<std::size_t>(batch) + 1, 0);
  for (std::size_t i = 1; i + 1 < offsets.size(); ++i)
    offsets[i] = std::min<std::int64_t>(extra, offsets[i - 1] + random.integer(4));
  offsets.back() = extra;
  return offsets;
}

inline std::vector<double> random_prior(Index count, Random& random) {
  std::vector<double> prior(static_cast<std::size_t>(count));
  for (double& p : prior) p = random.normal() - 2;
  return prior;
}

/// What a row's loss is made of, each option thrown by a coin. Decoupled only where it is allowed.
inline Problem with_random_targets(Problem problem, Random& random) {
  const auto coin = [&] { return random.integer(2) == 1; };
  if (coin()) problem.label_smoothing = coin() ? 0.1 : 0.75;
  if (has_prior(problem.loss) && coin()) problem.log_prior = random_prior(problem.batch(), random);
  if (coin()) problem.decoupled = has_negatives(problem);
  if (takes_logits(problem.loss)) return problem;
  if (coin()) problem.positive_margin = coin() ? 0.2 : -0.3;
  if (coin()) problem.false_negative_margin = coin() ? -0.1 : 0.05;
  return without_ties(problem);
}

/// A plain problem with each of its options thrown by a coin.
inline Problem random_problem(Loss loss, Index batch, Index d, Random& random, Index extra = 12) {
  Problem problem = plain_problem(loss, batch, d, random, extra);
  const auto coin = [&] { return random.integer(2) == 1; };
  if (has_scale(loss) && coin()) {
    problem.learned = false;
    problem.temperature = 0.25;
  }
  if (has_similarity(loss)) problem.cosine = coin();
  if (loss == Loss::alignment) problem.alpha = coin() ? 2 : 1.5;
  if (loss == Loss::uniformity) problem.t = coin() ? 2 : 0.5;
  if (!has_scale(loss) && (!takes_logits(loss) || loss == Loss::mutual_information)) return problem;
  if (!problem.cosine) problem.log_scale = -0.5;
  if (!problem.cosine) problem.temperature = 2;
  if (loss == Loss::sup_con) {
    const auto kind = random.integer(4);
    if (kind == 0) problem.labels.assign(static_cast<std::size_t>(batch), -7);
    if (kind == 1)  // two of each, the second half in the order of the first
      for (Index i = 0; i < batch; ++i)
        problem.labels[static_cast<std::size_t>(i)] = i % (batch / 2 + 1);
    if (coin()) problem.weights = random_weights(batch, random);
    return problem;
  }
  if (coin()) problem.query_ids = random_ids(batch, 1 + batch / 2, random);
  if (coin()) problem.pos_ids = random_ids(batch, 1 + batch / 2, random);
  if (coin()) problem.weights = random_weights(batch, random);
  if (loss == Loss::hard_negative) {
    if (!problem.pos_ids.empty() && coin())
      problem.neg_ids = random_ids(extra, 1 + batch / 2, random);
    problem.own_scope = coin();
    if (problem.own_scope && (extra % batch != 0 || coin()))
      problem.offsets = random_offsets(batch, extra, random);
  }
  return is_softmax(loss) ? with_random_targets(problem, random) : problem;
}

}  // namespace contrastive_tests

#endif
