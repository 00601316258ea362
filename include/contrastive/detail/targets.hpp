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

/// Puts `value` in the places of a chunk's part of row i that hold no negative by id: of excluded
/// candidates, the positive among them, and of the padding. Returns how many places had another.
template <class T>
Index set_excluded(const Exclusions& excluded, const StripPlan<T>& plan, Index i, Index c, T* s,
                   T value) {
  const Index begin = c * plan.chunk, end = plan.chunk_end(c);
  Index changed = 0;
  const auto set = [&](Index j) {
    changed += Index(s[j - begin] != value);
    s[j - begin] = value;
  };
  excluded.for_each(i, begin, end, set);
  for (Index j = end; j < begin + plan.chunk; ++j) set(j);
  return changed;
}

/// Makes them invisible to a softmax over the others.
template <class T>
void hide_excluded(const Exclusions& excluded, const StripPlan<T>& plan, Index i, Index c, T* s) {
  set_excluded(excluded, plan, i, c, s, minus_infinity<T>);
}

/// The largest T that is not above x, so that s > x and s > round_down(x) are the same for any T s.
template <class T>
T round_down(Wide<T> x) {
  using W = Wide<T>;
  using Limits = std::numeric_limits<T>;
  const T nearest = T((std::min)((std::max)(x, W(Limits::lowest())), W((Limits::max)())));
  return W(nearest) > x ? std::nextafter(nearest, Limits::lowest()) : nearest;
}

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
    if (finds_false_negatives() || prior_ != nullptr)
      for (Index l = 0; l < chunk; l += Pack<T>::size) row_of(i, c, s, l).store(s + l);
    hide_excluded(excluded_, plan, i, c, s);
  }

  /// Total and count of a chunk of take_row(), for smoothed labels. Puts 0 in the places without a
  /// candidate, until hide().
  LineSums<T> take_totals(const StripPlan<T>& plan, Index i, Index c, T* s) const {
    const Index count = chunk - set_excluded(excluded_, plan, i, c, s, T(0));  // they were -inf
    return {{}, sum_of_chunk(s), T(count)};
  }

  void hide(const StripPlan<T>& plan, Index i, Index c, T* s) const {
    hide_excluded(excluded_, plan, i, c, s);
  }

  /// E = e^(s - reference) in place of a chunk of take_row(), and its sums.
  LineSums<T> take_exponentials(const StripPlan<T>& plan, Index i, Index c, T* s,
                                T reference) const {
    LineSums<T> sums;
    if (marks()) {
      alignas(64) T marks[std::size_t(chunk)];
      Pack<T> total(0), count(0);
      for (Index l = 0; l < chunk; l += Pack<T>::size) {
        const Pack<T> row = Pack<T>::at(s + l), candidates = is_candidate(row);
        total += candidates_only(row);
        count += candidates;
        (candidates - T(1)).store(marks + l);
      }
      sums = {chunk_exponentials(s, reference), total.sum(), count.sum()};
      for (Index l = 0; l < chunk; l += Pack<T>::size)
        (Pack<T>::at(s + l) + Pack<T>::at(marks + l)).store(s + l);
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
    const bool smooth = smooths(), marked = marks();
    for (Index l = 0; l < chunk; l += Pack<T>::size) {
      const Pack<T> row = Pack<T>::at(e + l);
      Pack<T> g = row * factor;
      if (smooth) g = g - share;
      if (marked) g = where_greater(row, Pack<T>(-1), g, Pack<T>(0));
      g.store(e + l);
    }
    if (smooth && !marked) clear(plan, i, c, e);
  }

  /// G = 0 where there is no candidate by id.
  void clear(const StripPlan<T>& plan, Index i, Index c, T* g) const {
    set_excluded(excluded_, plan, i, c, g, T(0));
  }

  /// What rows and columns have in common of take_row(): where false negatives are looked for,
  /// those and the prior are left to row_of() and columns_of().
  void take_row_and_column(const StripPlan<T>& plan, Index i, Index c, T* s) const {
    if (!finds_false_negatives()) return take_row(plan, i, c, s);
    hide_excluded(excluded_, plan, i, c, s);
  }

  /// Row i's negatives in a chunk of take_row_and_column(), those at s[l] and following.
  [[nodiscard]] CONTRASTIVE_INLINE Pack<T> row_of(Index i, Index c, const T* s, Index l) const {
    Pack<T> row = Pack<T>::at(s + l);
    if (limits_ != nullptr) row = up_to(row, Pack<T>(limits_[i]));
    return less_prior(row, c, l);
  }

  /// The same where the chunk's columns are the lines.
  [[nodiscard]] CONTRASTIVE_INLINE Pack<T> columns_of(Index c, const T* s, Index l) const {
    return less_prior(up_to(Pack<T>::at(s + l), Pack<T>::at(limits_ + c * chunk + l)), c, l);
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

  CONTRASTIVE_INLINE static Pack<T> up_to(const Pack<T>& s, const Pack<T>& limit) {
    return where_greater(s, limit, Pack<T>(minus_infinity<T>), s);
  }
  [[nodiscard]] CONTRASTIVE_INLINE Pack<T> less_prior(const Pack<T>& s, Index c, Index l) const {
    return prior_ == nullptr ? s : s - Pack<T>::at(prior_ + c * chunk + l);
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
