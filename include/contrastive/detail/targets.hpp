// What SoftmaxOptions make of a line (a row, or in CLIP a column, of S): which candidates it has,
// what is taken off their logits, what its loss is and how much it counts.
//
//     s_ij  = scale c_ij - prior_j              the negatives of row i, j not i
//     s_ii  = scale (c_ii - m) - prior_i        its positive; m = positive_margin
//     L_i   = log sum_j e^(s_ij) - s_ii + e mean_j (s_ii - s_ij)      e = label_smoothing
//
// j goes over the candidates, n_i of them with the positive; decoupled, i is left out of the first
// sum. Without the weights
//
//     G_ij  = A_ij - e / n_i                    G_ii = A_ii - 1 + e (n_i - 1) / n_i
//
// and decoupled -1 in place of A_ii - 1. A candidate that is left out has G_ij = 0.
#ifndef CONTRASTIVE_DETAIL_TARGETS_HPP
#define CONTRASTIVE_DETAIL_TARGETS_HPP

#include <algorithm>
#include <cmath>
#include <limits>

#include "error.hpp"
#include "exclusions.hpp"
#include "softmax.hpp"
#include "weights.hpp"

namespace contrastive::detail {

/// Calls f(l) for the places l of a chunk's part of row i that hold no negative by id: of excluded
/// candidates, the positive among them, and of the padding. A place may come more than once.
template <class T, class F>
void for_each_excluded(const Exclusions& excluded, const StripPlan<T>& plan, Index i, Index c,
                       const F& f) {
  const Index begin = c * plan.chunk, end = plan.chunk_end(c);
  excluded.for_each(i, begin, end, [&](Index j) { f(j - begin); });
  for (Index l = end - begin; l < plan.chunk; ++l) f(l);
}

/// Makes them invisible to a softmax over the others.
template <class T>
void hide_excluded(const Exclusions& excluded, const StripPlan<T>& plan, Index i, Index c, T* s) {
  for_each_excluded(excluded, plan, i, c, [&](Index l) { s[l] = minus_infinity<T>; });
}

/// The largest T that is not above x, so that s > x and s > round_down(x) are the same for any T s.
template <class T>
T round_down(Wide<T> x) {
  using W = Wide<T>;
  using Limits = std::numeric_limits<T>;
  const T nearest = T((std::min)((std::max)(x, W(Limits::lowest())), W((Limits::max)())));
  return W(nearest) > x ? std::nextafter(nearest, Limits::lowest()) : nearest;
}

/// 1 for a candidate's logit, 0 for -inf. Logits are at most an eighth of the largest number.
template <class Derived>
auto is_candidate(const Eigen::ArrayBase<Derived>& s) {
  using T = typename Derived::Scalar;
  return (((s.derived() - std::numeric_limits<T>::lowest()).max)(T(0)).min)(T(1));
}

/// The logits of the candidates, 0 in other places.
template <class Derived>
auto candidates_only(const Eigen::ArrayBase<Derived>& s) {
  using T = typename Derived::Scalar;
  return (s.derived().max)(std::numeric_limits<T>::lowest()) * is_candidate(s);
}

/// Sums down the columns of a chunk, wide before a sum in T loses digits.
template <class T>
class WideSums {
 public:
  template <class Row>
  void add(const Row& row) {
    sum_ += row;
    if (++rows_ % 16 != 0) return;
    wide_ += sum_.template cast<Wide<T>>();
    sum_.setZero();
  }
  [[nodiscard]] Wide<T> operator[](Index l) const { return wide_[l] + Wide<T>(sum_[l]); }

 private:
  using Wides = Eigen::Array<Wide<T>, Kernel<T>::chunk, 1>;

  Lanes<T> sum_ = Lanes<T>::Zero();
  Wides wide_ = Wides::Zero();
  Index rows_ = 0;
};

/// The options of one call, as the rules ask for them chunk by chunk.
template <class T>
class Targets {
 public:
  using W = Wide<T>;
  static constexpr Index chunk = Kernel<T>::chunk;

  Targets() = default;

  /// Of S's `cols` columns the first `batch` are those of P. `scale` makes logits of similarities.
  /// With two `views` of each item S has 2 `batch` rows and columns.
  Targets(const SoftmaxOptions& options, W scale, Index batch, Index cols, Scratch& scratch,
          Index views = 1)
      : excluded_(options.query_ids, options.pos_ids,
                  cols > views * batch ? options.neg_ids : List<std::int64_t>{}, batch, scratch,
                  views),
        weights_(options.weights, batch),
        batch_(batch),
        views_(views),
        smoothing_(W(options.label_smoothing)),
        margin_(scale * W(options.positive_margin)),
        decoupled_(options.decoupled) {
    const Index padded = round_up(cols, chunk);
    if (!options.log_prior.empty()) {
      prior_ = scratch.take<T>(padded);
      for (Index j = 0; j < padded; ++j) prior_[j] = j < batch ? T(options.log_prior[j]) : T(0);
      for (Index j = 0; j < batch; ++j)
        largest_prior_ = (std::max)(largest_prior_, std::fabs(W(options.log_prior[j])));
    }
    if (options.false_negative_margin.has_value()) {
      false_margin_ = scale * W(*options.false_negative_margin);
      limits_ = scratch.take<T>(padded);
    }
  }

  [[nodiscard]] W weight(Index i) const {
    return views_ == 1 ? weights_[i] : weights_[i % batch_] / W(views_);
  }
  /// The column that holds row i's positive.
  [[nodiscard]] Index partner(Index i) const {
    return views_ == 1 ? i : i < batch_ ? i + batch_ : i - batch_;
  }
  [[nodiscard]] bool smooths() const { return smoothing_ > 0; }
  [[nodiscard]] W margin() const { return margin_; }
  /// The most that is taken off a negative's logit, and off any logit.
  [[nodiscard]] W largest_prior() const { return largest_prior_; }
  [[nodiscard]] W largest_shift() const { return largest_prior_ + std::fabs(margin_); }

  // ---- false negatives ----

  /// Whether similarities decide who is a candidate; then take_positives() comes first.
  [[nodiscard]] bool finds_false_negatives() const { return limits_ != nullptr; }
  /// A negative whose logit, before the prior, is above this is none of a line whose positive has
  /// the logit scale c_ii.
  [[nodiscard]] W limit(W positive) const { return positive - false_margin_; }

  /// From the logits scale c_ii of all pairs.
  void take_positives(const T* positives) {
    const Index lines = views_ * batch_;
    for (Index i = 0; i < lines; ++i) limits_[i] = round_down<T>(limit(W(positives[i % batch_])));
    for (Index i = lines; i < round_up(lines, chunk); ++i) limits_[i] = 0;
  }

  // ---- S, as it is made ----

  /// A line's positive, from its logit scale c_ii.
  [[nodiscard]] W positive(Index i, T s) const {
    return W(s) - margin_ - (prior_ != nullptr ? W(prior_[i]) : W(0));
  }

  /// The negatives of row i in a chunk of its logits, with their prior; -inf in other places.
  void take_row(const StripPlan<T>& plan, Index i, Index c, T* s) const {
    ChunkRow<T> row(s);
    if (finds_false_negatives()) {
      const T limit = limits_[i];
      for (Index l = 0; l < chunk; ++l) s[l] = s[l] > limit ? minus_infinity<T> : s[l];
    }
    if (prior_ != nullptr) row -= ChunkRow<T>(prior_ + c * chunk);
    hide_excluded(excluded_, plan, i, c, s);
  }

  /// Total and count of a chunk of take_row(), for smoothed labels. Puts 0 in the places without a
  /// candidate, until hide().
  LineSums<T> take_totals(const StripPlan<T>& plan, Index i, Index c, T* s) const {
    Index count = chunk;
    for_each_excluded(excluded_, plan, i, c, [&](Index l) {
      if (s[l] == minus_infinity<T>) --count;
      s[l] = 0;
    });
    return {{}, sum_of<T>(ChunkRow<T>(s)), T(count)};
  }

  void hide(const StripPlan<T>& plan, Index i, Index c, T* s) const {
    hide_excluded(excluded_, plan, i, c, s);
  }

  /// E = e^(s - reference) in place of a chunk of take_row(), and its sums.
  LineSums<T> take_exponentials(const StripPlan<T>& plan, Index i, Index c, T* s,
                                T reference) const {
    LineSums<T> sums;
    if (marks()) {
      ChunkRow<T> row(s);
      const Lanes<T> candidates = is_candidate(row);
      sums.total = sum_of<T>(candidates_only(row));
      sums.count = sum_of<T>(candidates);
      sums.exponentials = chunk_exponentials(s, reference);
      row += candidates - T(1);
      return sums;
    }
    if (smooths()) {
      sums = take_totals(plan, i, c, s);
      hide(plan, i, c, s);
    }
    sums.exponentials = chunk_exponentials(s, reference, plan.chunk_end(c) - c * chunk);
    return sums;
  }

  /// G in place of E, the positive apart.
  void differentiate(const StripPlan<T>& plan, Index i, Index c, T* e, T factor, T share) const {
    ChunkRow<T> row(e);
    if (!smooths()) {
      row *= factor;
    } else if (marks()) {
      row = (factor * row - share) * ((row + T(1)).min)(T(1));
    } else {
      row = factor * row - share;
      clear(plan, i, c, e);
    }
  }

  /// G = 0 where there is no candidate by id.
  void clear(const StripPlan<T>& plan, Index i, Index c, T* g) const {
    for_each_excluded(excluded_, plan, i, c, [&](Index l) { g[l] = 0; });
  }

  /// What rows and columns have in common of take_row(): where false negatives are looked for,
  /// those and the prior are left to row_of() and columns_of().
  void take_row_and_column(const StripPlan<T>& plan, Index i, Index c, T* s) const {
    if (!finds_false_negatives()) return take_row(plan, i, c, s);
    hide_excluded(excluded_, plan, i, c, s);
  }

  /// Row i's negatives in a chunk of take_row_and_column().
  [[nodiscard]] Lanes<T> row_of(Index i, Index c, const T* s) const {
    const T limit = limits_[i];
    return negatives(s, c, [&](Index) { return limit; });
  }

  /// The same where the chunk's columns are the lines.
  [[nodiscard]] Lanes<T> columns_of(Index c, const T* s) const {
    const T* limits = limits_ + c * chunk;
    return negatives(s, c, [&](Index l) { return limits[l]; });
  }

  // ---- the loss ----

  /// A line's loss and gradient, unweighted, from its positive() and the sums over its negatives.
  [[nodiscard]] LineSoftmax<W> softmax(W positive, const LineSums<W>& sums) const {
    LineSoftmax<W> line = decoupled_ ? decoupled_softmax(positive, sums.exponentials)
                                     : coupled_softmax(positive, sums.exponentials);
    if (smooths()) {
      line.share = smoothing_ / (sums.count + 1);
      line.loss += line.share * (sums.count * positive - sums.total);
      line.miss -= line.share * sums.count;
    }
    return line;
  }

 private:
  /// Smoothed labels give a candidate of probability 0 a gradient too. What is no candidate by id
  /// is found again by id; for false negatives S is gone, so they are marked: -1 in place of E = 0.
  [[nodiscard]] bool marks() const { return smooths() && finds_false_negatives(); }

  template <class Limit>
  Lanes<T> negatives(const T* s, Index c, const Limit& limit) const {
    Lanes<T> kept;
    for (Index l = 0; l < chunk; ++l) kept[l] = s[l] > limit(l) ? minus_infinity<T> : s[l];
    if (prior_ != nullptr) kept -= ChunkRow<T>(prior_ + c * chunk);
    return kept;
  }

  Exclusions excluded_{};
  MeanWeights<W> weights_{};
  Index batch_ = 0;
  Index views_ = 1;
  W smoothing_ = 0;
  W margin_ = 0;  // of logits, as are the others
  bool decoupled_ = false;
  T* prior_ = nullptr;  // of every column, 0 for those of N
  W largest_prior_ = 0;
  W false_margin_ = 0;
  T* limits_ = nullptr;  // limit() of each line
};

/// What a softmax loss comes to.
template <class W>
struct SoftmaxSums {
  W loss = 0;
  W diagonal = 0;  ///< sum_i G_ii, where there is a gradient
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_TARGETS_HPP
