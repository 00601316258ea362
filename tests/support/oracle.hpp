// The losses and their gradients once more: loop by loop from the definitions, in long double, with
// every matrix held whole. Nothing here is shared with the library.
#ifndef CONTRASTIVE_TESTS_SUPPORT_ORACLE_HPP
#define CONTRASTIVE_TESTS_SUPPORT_ORACLE_HPP

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "problem.hpp"

namespace contrastive_tests {
namespace oracle {

using Row = std::vector<Real>;

/// A matrix as rows of numbers: fast to loop over in a build without optimisation too.
using Rows = std::vector<Row>;

inline Rows to_rows(const Matrix& m) {
  Rows rows(static_cast<std::size_t>(m.rows()), Row(static_cast<std::size_t>(m.cols())));
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < rows[i].size(); ++j)
      rows[i][j] = m(static_cast<Index>(i), static_cast<Index>(j));
  return rows;
}

inline Matrix to_matrix(const Rows& rows, Index cols) {
  Matrix m(static_cast<Index>(rows.size()), cols);
  for (Index i = 0; i < m.rows(); ++i)
    for (Index j = 0; j < cols; ++j)
      m(i, j) = rows[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
  return m;
}

inline Rows zeros(std::size_t rows, std::size_t cols) {
  return Rows(rows, Row(cols, Real(0)));
}

inline std::size_t cols_of(const Rows& m) {
  return m.empty() ? 0 : m.front().size();
}

inline Real dot(const Row& x, const Row& y) {
  Real sum = 0;
  for (std::size_t k = 0; k < x.size(); ++k) sum += x[k] * y[k];
  return sum;
}

inline void add_multiple(Row& y, Real a, const Row& x) {
  for (std::size_t k = 0; k < x.size(); ++k) y[k] += a * x[k];
}

inline Rows transposed(const Rows& m) {
  Rows t = zeros(cols_of(m), m.size());
  for (std::size_t i = 0; i < m.size(); ++i)
    for (std::size_t j = 0; j < t.size(); ++j) t[j][i] = m[i][j];
  return t;
}

// ---- normalisation ----

inline Rows normalised(const Problem& problem, const Rows& x) {
  Rows unit = x;
  if (problem.cosine)
    for (Row& row : unit) {
      const Real norm = std::sqrt(dot(row, row));
      for (Real& entry : row) entry /= norm;
    }
  return unit;
}

/// dx = (du - u (u . du)) / |x|, with u = x / |x|; the gradient itself where rows are as given.
inline Rows through_normalisation(const Problem& problem, const Rows& x, Rows du) {
  if (!problem.cosine) return du;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Real square = dot(x[i], x[i]);
    add_multiple(du[i], -dot(x[i], du[i]) / square, x[i]);
    for (Real& entry : du[i]) entry /= std::sqrt(square);
  }
  return du;
}

// ---- logits, weights, candidates ----

inline Real scale_of(const Problem& problem) {
  if (!problem.learned) return 1 / static_cast<Real>(problem.temperature);
  return std::min(std::exp(static_cast<Real>(problem.log_scale)),
                  static_cast<Real>(problem.max_scale));
}

/// An alpha within the rounding of float to log(max_scale) is at the limit, not beyond.
inline bool is_beyond_limit(const Problem& problem) {
  return static_cast<Real>(static_cast<float>(problem.log_scale))
         > static_cast<Real>(static_cast<float>(std::log(problem.max_scale)));
}

inline Rows products(const Rows& x, const Rows& y) {
  Rows c = zeros(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = 0; j < y.size(); ++j) c[i][j] = dot(x[i], y[j]);
  return c;
}

/// Weights that sum to 1.
inline Row shares(const Problem& problem, std::size_t batch) {
  if (problem.weights.empty()) return Row(batch, 1 / static_cast<Real>(batch));
  Row w(problem.weights.begin(), problem.weights.end());
  Real sum = 0;
  for (const Real x : w) sum += x;
  for (Real& x : w) x /= sum;
  return w;
}

/// Whether rows i and j of the batch are the same item or belong to the same query.
inline bool is_same(const Problem& problem, std::size_t i, std::size_t j) {
  return (!problem.pos_ids.empty() && problem.pos_ids[i] == problem.pos_ids[j])
         || (!problem.query_ids.empty() && problem.query_ids[i] == problem.query_ids[j]);
}

/// Whether row m of N is offered to query i.
inline bool belongs(const Problem& problem, std::size_t i, std::size_t m, std::size_t batch,
                    std::size_t extra) {
  if (!problem.own_scope) return true;
  if (problem.offsets.empty()) return m / (extra / batch) == i;
  const auto signed_m = static_cast<std::int64_t>(m);
  return problem.offsets[i] <= signed_m && signed_m < problem.offsets[i + 1];
}

using Candidates = std::vector<std::vector<bool>>;

/// candidates[i][j]: whether column j (of P, then of N) takes part in row i, as ids have it.
inline Candidates candidates_of(const Problem& problem, std::size_t batch, std::size_t extra) {
  Candidates is(batch, std::vector<bool>(batch + extra));
  for (std::size_t i = 0; i < batch; ++i) {
    for (std::size_t j = 0; j < batch; ++j) is[i][j] = i == j || !is_same(problem, i, j);
    for (std::size_t m = 0; m < extra; ++m)
      is[i][batch + m] = belongs(problem, i, m, batch, extra)
                         && (problem.neg_ids.empty() || problem.neg_ids[m] != problem.pos_ids[i]);
  }
  return is;
}

/// Without those of similarity c_ij > c_ii - false_negative_margin.
inline void drop_false_negatives(const Problem& problem, const Rows& c, Candidates& candidates) {
  if (!problem.false_negative_margin) return;
  const Real margin = *problem.false_negative_margin;
  for (std::size_t i = 0; i < c.size(); ++i)
    for (std::size_t j = 0; j < c[i].size(); ++j)
      if (j != i && c[i][j] > c[i][i] - margin) candidates[i][j] = false;
}

// ---- the rules: a matrix of logits in, the value and dL/dS out ----

struct Rule {
  Real value = 0;
  Rows gradient = {};
  Row rows = {};  // each row's loss, unweighted
};

/// One row of a softmax: its loss and dL/ds_j. The loss is log sum_j exp(s_j) - s_pos, j over the
/// candidates (decoupled: without the positive), and e mean_j (s_pos - s_j) of smoothed labels. The
/// gradient is p_j - [j = pos], where p_pos - 1 is minus the sum of the other probabilities, and
/// e ([j = pos] - 1/n).
inline Real softmax_row(const Problem& problem, const Row& s, const std::vector<bool>& is,
                        std::size_t pos, Row& gradient) {
  Real top = -std::numeric_limits<Real>::infinity(), count = 0, mean = 0;
  for (std::size_t j = 0; j < s.size(); ++j) {
    if (!is[j]) continue;
    count += 1;
    if (j != pos || !problem.decoupled) top = std::max(top, s[j]);
  }
  if (count == 1) return 0;
  Real others = 0;  // relative to exp(top), as is own
  for (std::size_t j = 0; j < s.size(); ++j) {
    if (!is[j] || j == pos) continue;
    others += std::exp(s[j] - top);
    mean += (s[pos] - s[j]) / count;
  }
  const Real own = problem.decoupled ? 0 : std::exp(s[pos] - top);
  const Real e = problem.label_smoothing;
  for (std::size_t j = 0; j < s.size(); ++j)
    if (is[j] && j != pos) gradient[j] = std::exp(s[j] - top) / (own + others) - e / count;
  gradient[pos] = (problem.decoupled ? -1 : -others / (own + others)) + e * (count - 1) / count;
  const Real plain = own == 1 ? std::log1p(others) : std::log(own + others) + (top - s[pos]);
  return plain + e * mean;
}

/// sum_i w_i L_i over rows, and its gradient; the positives have their margin already.
inline Rule softmax_rule(const Problem& problem, const Rows& s, const Candidates& candidates,
                         const Row& w) {
  Rule rule{0, zeros(s.size(), cols_of(s))};
  for (std::size_t i = 0; i < s.size(); ++i) {
    rule.rows.push_back(softmax_row(problem, s[i], candidates[i], i, rule.gradient[i]));
    rule.value += w[i] * rule.rows[i];
    for (Real& g : rule.gradient[i]) g *= w[i];
  }
  return rule;
}

inline Rule clip_rule(const Problem& problem, const Rows& s, const Candidates& row_candidates,
                      const Candidates& column_candidates, const Row& w) {
  const Rule rows = softmax_rule(problem, s, row_candidates, w);
  const Rule columns = softmax_rule(problem, transposed(s), column_candidates, w);
  Rule rule{(rows.value + columns.value) / 2, rows.gradient};
  for (std::size_t i = 0; i < s.size(); ++i) {
    rule.rows.push_back((rows.rows[i] + columns.rows[i]) / 2);
    for (std::size_t j = 0; j < s.size(); ++j)
      rule.gradient[i][j] = (rows.gradient[i][j] + columns.gradient[j][i]) / 2;
  }
  return rule;
}

/// sum_i w_i sum_j log(1 + exp(-z_ij s_ij)), z = 1 on the diagonal and -1 off it.
inline Rule sigmoid_rule(const Rows& s, const Candidates& candidates, const Row& w) {
  Rule rule{0, zeros(s.size(), s.size())};
  for (std::size_t i = 0; i < s.size(); ++i) {
    Real row = 0;
    for (std::size_t j = 0; j < s.size(); ++j) {
      if (!candidates[i][j]) continue;
      const Real z = i == j ? 1 : -1;
      const Real x = z * s[i][j];
      row += x > 0 ? std::log1p(std::exp(-x)) : std::log1p(std::exp(x)) - x;
      rule.gradient[i][j] = -z * w[i] / (1 + std::exp(x));
    }
    rule.value += w[i] * row;
    rule.rows.push_back(row);
  }
  return rule;
}

/// Of similarities c, which are the logits where the scale is 1.
inline Rule apply_rule(const Problem& problem, const Rows& c, Real scale) {
  const std::size_t batch = c.size();
  Candidates candidates = candidates_of(problem, batch, cols_of(c) - batch);
  Candidates column_candidates = candidates;  // of the same pairs, as ids are symmetric
  drop_false_negatives(problem, c, candidates);
  Rows s = c;
  for (std::size_t i = 0; i < batch; ++i)
    for (std::size_t j = 0; j < s[i].size(); ++j) {
      s[i][j] = scale * (c[i][j] - (i == j ? problem.positive_margin : 0));
      if (j < problem.log_prior.size()) s[i][j] -= problem.log_prior[j];
      if (has_bias(problem.loss)) s[i][j] += problem.bias;
    }
  const Row w = shares(problem, batch);
  if (has_bias(problem.loss)) return sigmoid_rule(s, candidates, w);
  if (!is_clip(problem.loss)) return softmax_rule(problem, s, candidates, w);
  drop_false_negatives(problem, transposed(c), column_candidates);
  return clip_rule(problem, s, candidates, column_candidates, w);
}

inline void set_d_bias(const Rows& gradient, Answer& answer) {
  Real sum = 0;
  for (const Row& row : gradient)
    for (const Real x : row) {
      sum += x;
      answer.d_bias_size += std::abs(x);
    }
  answer.d_bias = sum;
}

// ---- whole losses ----

/// A loss that is a difference of logits may be 0, and has the errors of logits even so: 1 is what
/// a logit's error, scale 2^-24, is relative to scale.
inline Real value_size(const Problem& problem) {
  return problem.decoupled || problem.label_smoothing > 0 ? 1 : 0;
}

inline Answer logits_answer(const Problem& problem) {
  const Rule rule = apply_rule(problem, to_rows(problem.inputs[0]), 1);
  Answer answer;
  answer.value = rule.value;
  answer.value_size = value_size(problem);
  answer.gradients = {to_matrix(rule.gradient, problem.inputs[0].cols())};
  if (has_bias(problem.loss)) set_d_bias(rule.gradient, answer);
  if (problem.loss == Loss::mutual_information) {
    answer.value = std::log(static_cast<Real>(problem.batch())) - rule.value;
    answer.gradients[0] *= -1;
  }
  return answer;
}

inline Answer embedding_answer(const Problem& problem) {
  const Rows q = to_rows(problem.inputs[0]);
  const Rows p = to_rows(problem.inputs[1]);
  const Rows n = problem.inputs.size() > 2 ? to_rows(problem.inputs[2]) : Rows{};
  const Rows unit_q = normalised(problem, q);
  Rows unit_candidates = normalised(problem, p);
  for (const Row& row : normalised(problem, n)) unit_candidates.push_back(row);

  const Real scale = scale_of(problem);
  const Rows c = products(unit_q, unit_candidates);
  const Rule rule = apply_rule(problem, c, scale);

  Rows du = zeros(q.size(), cols_of(q));
  Rows dv = zeros(unit_candidates.size(), cols_of(q));
  Answer answer;
  answer.value = rule.value;
  answer.value_size = value_size(problem);
  Real d_log_scale = 0;
  for (std::size_t i = 0; i < c.size(); ++i)
    for (std::size_t j = 0; j < c[i].size(); ++j) {
      const Real g = scale * rule.gradient[i][j];
      if (g == 0) continue;
      add_multiple(du[i], g, unit_candidates[j]);
      add_multiple(dv[j], g, unit_q[i]);
      const Real by_scale = g * (c[i][j] - (i == j ? problem.positive_margin : 0));
      d_log_scale += by_scale;
      answer.d_log_scale_size += std::abs(by_scale);
    }

  const auto middle = dv.begin() + static_cast<std::ptrdiff_t>(p.size());
  const Index d = problem.inputs[0].cols();
  answer.gradients = {to_matrix(through_normalisation(problem, q, du), d),
                      to_matrix(through_normalisation(problem, p, Rows(dv.begin(), middle)), d)};
  if (problem.inputs.size() > 2)
    answer.gradients.push_back(
        to_matrix(through_normalisation(problem, n, Rows(middle, dv.end())), d));
  answer.rows = to_matrix(transposed({rule.rows}), 1);
  if (problem.learned) answer.d_log_scale = is_beyond_limit(problem) ? 0 : d_log_scale;
  if (has_bias(problem.loss)) set_d_bias(rule.gradient, answer);
  return answer;
}

/// Za over Zb, or Z: rows that are each other's candidates, and each one's positive if it has one.
struct Views {
  Rows z = {};
  std::vector<std::size_t> positive = {};
};

inline Views views_of(const Problem& problem) {
  Views views;
  const auto batch = static_cast<std::size_t>(problem.batch());
  for (const Matrix& x : problem.inputs)
    for (const Row& row : to_rows(x)) views.z.push_back(row);
  if (problem.loss == Loss::nt_xent)
    for (std::size_t i = 0; i < 2 * batch; ++i) views.positive.push_back((i + batch) % (2 * batch));
  return views;
}

/// Two views of each item: a row's candidates are all others but those of an item that is the same.
inline Rule nt_xent_rule(const Problem& problem, const Rows& c, Real scale,
                         const std::vector<std::size_t>& positive) {
  const std::size_t rows = c.size(), batch = rows / 2;
  const Row w = shares(problem, batch);
  Rule rule{0, zeros(rows, rows)};
  for (std::size_t i = 0; i < rows; ++i) {
    const std::size_t p = positive[i];
    std::vector<bool> is(rows);
    Row s(rows);
    for (std::size_t j = 0; j < rows; ++j) {
      s[j] = scale * (c[i][j] - (j == p ? problem.positive_margin : 0));
      const bool similar = problem.false_negative_margin
                           && c[i][j] > c[i][p] - static_cast<Real>(*problem.false_negative_margin);
      is[j] = j == p || (j != i && !similar && !is_same(problem, i % batch, j % batch));
    }
    rule.rows.push_back(softmax_row(problem, s, is, p, rule.gradient[i]));
    rule.value += w[i % batch] / 2 * rule.rows[i];
    for (Real& g : rule.gradient[i]) g *= w[i % batch] / 2;
  }
  return rule;
}

/// The mean over anchors of the mean over their positives p of log sum_a exp(s_ia) - s_ip. That is
/// log(1 + N / P) + log P - mean_p s_ip with the sums N over negatives and P over positives, and
/// with one positive the second part is 0.
inline Rule sup_con_rule(const Problem& problem, const Rows& c, Real scale) {
  const std::size_t rows = c.size();
  const auto is_positive = [&](std::size_t i, std::size_t j) {
    return j != i && problem.labels[j] == problem.labels[i];
  };
  Row count(rows, 0), w(rows, 0);
  Real total = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < rows; ++j) count[i] += is_positive(i, j) ? 1 : 0;
    if (count[i] > 0) w[i] = problem.weights.empty() ? 1 : problem.weights[i];
    total += w[i];
  }
  Rule rule{0, zeros(rows, rows), Row(rows, 0)};
  for (std::size_t i = 0; i < rows; ++i) {
    if (count[i] == 0) continue;
    Real top = -std::numeric_limits<Real>::infinity(), mean = 0;
    for (std::size_t j = 0; j < rows; ++j) {
      if (!is_positive(i, j)) continue;
      top = std::max(top, scale * c[i][j]);
      mean += scale * c[i][j] / count[i];
    }
    Real positives = 0, negatives = 0;  // relative to exp(top)
    for (std::size_t j = 0; j < rows; ++j)
      if (j != i) (is_positive(i, j) ? positives : negatives) += std::exp(scale * c[i][j] - top);
    rule.rows[i] = std::log1p(negatives / positives) + std::log(positives) + (top - mean);
    const Real share = total > 0 ? w[i] / total : 0;
    rule.value += share * rule.rows[i];
    for (std::size_t j = 0; j < rows; ++j) {
      if (j == i) continue;
      const Real p = std::exp(scale * c[i][j] - top) / (positives + negatives);
      Real g = p;
      if (is_positive(i, j))
        g = count[i] == 1 ? -negatives / (positives + negatives) : p - 1 / count[i];
      rule.gradient[i][j] = share * g;
    }
  }
  return rule;
}

inline Answer views_answer(const Problem& problem) {
  const Views views = views_of(problem);
  const Rows unit = normalised(problem, views.z);
  const Rows c = products(unit, unit);
  const Real scale = scale_of(problem);
  const Rule rule = problem.loss == Loss::sup_con ? sup_con_rule(problem, c, scale)
                                                  : nt_xent_rule(problem, c, scale, views.positive);
  Rows du = zeros(unit.size(), cols_of(unit));
  Answer answer;
  answer.value = rule.value;
  answer.value_size = value_size(problem);
  Real d_log_scale = 0;
  for (std::size_t i = 0; i < c.size(); ++i)
    for (std::size_t j = 0; j < c.size(); ++j) {
      const Real g = scale * rule.gradient[i][j];
      if (g == 0) continue;
      add_multiple(du[i], g, unit[j]);
      add_multiple(du[j], g, unit[i]);
      const bool positive = !views.positive.empty() && views.positive[i] == j;
      const Real by_scale = g * (c[i][j] - (positive ? problem.positive_margin : 0));
      d_log_scale += by_scale;
      answer.d_log_scale_size += std::abs(by_scale);
    }
  const Matrix dz =
      to_matrix(through_normalisation(problem, views.z, du), problem.inputs[0].cols());
  Index first = 0;
  for (const Matrix& x : problem.inputs) {
    answer.gradients.push_back(dz.middleRows(first, x.rows()));
    first += x.rows();
  }
  answer.rows = to_matrix(transposed({rule.rows}), 1);
  if (problem.learned) answer.d_log_scale = is_beyond_limit(problem) ? 0 : d_log_scale;
  return answer;
}

inline Row difference(const Row& x, const Row& y) {
  Row z = x;
  add_multiple(z, -1, y);
  return z;
}

/// mean of max(0, |a - p| - |a - n| + margin); at a kink the derivative is 0.
inline Answer triplet_answer(const Problem& problem) {
  const Rows a = to_rows(problem.inputs[0]);
  const Rows p = to_rows(problem.inputs[1]);
  const Rows n = to_rows(problem.inputs[2]);
  const Real share = 1 / static_cast<Real>(a.size());
  Rows da = zeros(a.size(), cols_of(a)), dp = da, dn = da;
  Real value = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Row to_p = difference(a[i], p[i]);
    const Row to_n = difference(a[i], n[i]);
    const Real distance_p = std::sqrt(dot(to_p, to_p));
    const Real distance_n = std::sqrt(dot(to_n, to_n));
    const Real hinge = distance_p - distance_n + problem.margin;
    if (!(hinge > 0)) continue;
    value += share * hinge;
    if (distance_p > 0) {
      add_multiple(da[i], share / distance_p, to_p);
      add_multiple(dp[i], -share / distance_p, to_p);
    }
    if (distance_n > 0) {
      add_multiple(da[i], -share / distance_n, to_n);
      add_multiple(dn[i], share / distance_n, to_n);
    }
  }
  const Index d = problem.inputs[0].cols();
  Answer answer;
  answer.value = value;
  answer.gradients = {to_matrix(da, d), to_matrix(dp, d), to_matrix(dn, d)};
  return answer;
}

/// mean of |x - y|^alpha; at distance 0 the derivative is 0.
inline Answer alignment_answer(const Problem& problem) {
  const Rows a = to_rows(problem.inputs[0]);
  const Rows b = to_rows(problem.inputs[1]);
  const Rows x = normalised(problem, a);
  const Rows y = normalised(problem, b);
  const Real share = 1 / static_cast<Real>(a.size());
  const Real alpha = problem.alpha;
  Rows dx = zeros(a.size(), cols_of(a)), dy = dx;
  Real value = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Row z = difference(x[i], y[i]);
    const Real distance = std::sqrt(dot(z, z));
    if (!(distance > 0)) continue;
    value += share * std::pow(distance, alpha);
    const Real slope = share * alpha * std::pow(distance, alpha - 1) / distance;
    add_multiple(dx[i], slope, z);
    add_multiple(dy[i], -slope, z);
  }
  const Index d = problem.inputs[0].cols();
  Answer answer;
  answer.value = value;
  answer.gradients = {to_matrix(through_normalisation(problem, a, dx), d),
                      to_matrix(through_normalisation(problem, b, dy), d)};
  return answer;
}

/// log of the mean over pairs i < j of exp(-t |x_i - x_j|^2).
inline Answer uniformity_answer(const Problem& problem) {
  const Rows z = to_rows(problem.inputs[0]);
  const Rows x = normalised(problem, z);
  const Real t = problem.t;
  Rows exponent = zeros(x.size(), x.size());
  Real top = -std::numeric_limits<Real>::infinity();
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = i + 1; j < x.size(); ++j) {
      const Row r = difference(x[i], x[j]);
      exponent[i][j] = -t * dot(r, r);
      top = std::max(top, exponent[i][j]);
    }
  Real sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = i + 1; j < x.size(); ++j) sum += std::exp(exponent[i][j] - top);
  Rows dx = zeros(x.size(), cols_of(x));
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = i + 1; j < x.size(); ++j) {
      const Real slope = -2 * t * std::exp(exponent[i][j] - top) / sum;
      const Row r = difference(x[i], x[j]);
      add_multiple(dx[i], slope, r);
      add_multiple(dx[j], -slope, r);
    }
  const auto rows = static_cast<Real>(x.size());
  Answer answer;
  answer.value = top + std::log(sum) - std::log(rows * (rows - 1) / 2);
  answer.gradients = {to_matrix(through_normalisation(problem, z, dx), problem.inputs[0].cols())};
  return answer;
}

}  // namespace oracle

/// Value and gradients of a problem by the definitions.
inline Answer oracle_answer(const Problem& problem) {
  switch (problem.loss) {
    case Loss::nt_xent:
    case Loss::sup_con:
      return oracle::views_answer(problem);
    case Loss::triplet:
      return oracle::triplet_answer(problem);
    case Loss::alignment:
      return oracle::alignment_answer(problem);
    case Loss::uniformity:
      return oracle::uniformity_answer(problem);
    default:
      return takes_logits(problem.loss) ? oracle::logits_answer(problem)
                                        : oracle::embedding_answer(problem);
  }
}

}  // namespace contrastive_tests

#endif
