// Extra negatives of which each belongs to one query: dot products of a row with its own few rows.
#ifndef CONTRASTIVE_DETAIL_OWN_NEGATIVES_HPP
#define CONTRASTIVE_DETAIL_OWN_NEGATIVES_HPP

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "error.hpp"
#include "logits.hpp"
#include "softmax.hpp"
#include "targets.hpp"

namespace contrastive::detail {

/// A loss that has none.
template <class T>
struct NoOwnNegatives {
  [[nodiscard]] bool empty() const { return true; }
  [[nodiscard]] bool is_ordinary() const { return true; }
  void pack(const EmbeddingLogits<T>&, bool, Scratch&) {}
  void check(const char*, Wide<T>) const {}
  LineSums<Wide<T>> exponentials(Index, const Targets<T>&) const { return {}; }
  void differentiate(Index, Wide<T>, Wide<T>) const {}
  void backward(Index) const {}
};

template <class T>
class OwnNegatives {
 public:
  using W = Wide<T>;

  OwnNegatives() = default;

  OwnNegatives(const View<const T>& n, Index batch, const SoftmaxOptions& options)
      : negatives_(Side<T>::Role::own, n, {}, options.similarity),
        batch_(batch),
        offsets_(options.neg_offsets),
        pos_ids_(options.pos_ids),
        neg_ids_(options.neg_ids) {}

  [[nodiscard]] bool empty() const { return negatives_.rows() == 0; }

  /// `queries` are packed already, Xn and Yn among it.
  void pack(const EmbeddingLogits<T>& queries, bool gradient, Scratch& scratch) {
    if (empty()) return;
    queries_ = &queries;
    negatives_.pack(W(1), true, gradient, scratch);
    logits_ = scratch.take<T>(negatives_.rows());
  }

  [[nodiscard]] bool is_ordinary() const { return empty() || negatives_.is_ordinary(); }

  /// Refuses logits beyond `limit` in magnitude, as check_logits() does.
  void check(const char* function, W limit) const {
    if (empty()) return;
    const W bound = queries_->scale() * queries_->x().largest_norm() * negatives_.largest_norm();
    if (bound <= limit) return;
    for (Index i = 0; i < batch_; ++i)
      for (Index m = begin(i); m < end(i); ++m)
        if (!(std::fabs(logit(i, m)) <= limit))
          refuse_overflow(
              function,
              "the logit of row %lld and its negative, row %lld of N, overflows the scalar type",
              number(i), number(m));
  }

  /// Rows begin(i) .. end(i) - 1 of N are query i's.
  [[nodiscard]] Index begin(Index i) const {
    return offsets_.empty() ? i * (negatives_.rows() / batch_) : Index(offsets_[i]);
  }
  [[nodiscard]] Index end(Index i) const { return begin(i + 1); }

  /// s_im = scale qn_i . nn_m
  [[nodiscard]] W logit(Index i, Index m) const { return logit(i, negatives_, m); }
  /// The positive's logit, scale qn_i . yn_i, by the same sum: equal rows have equal logits.
  [[nodiscard]] W positive(Index i) const { return logit(i, queries_->y(), i); }
  /// Whether ids rule row m of N out for query i.
  [[nodiscard]] bool is_excluded(Index i, Index m) const {
    return !neg_ids_.empty() && neg_ids_[m] == pos_ids_[i];
  }

  /// Keeps e^(s_im - reference) of query i's negatives, -1 of what is none, and returns the sums.
  LineSums<W> exponentials(Index i, const Targets<T>& targets) const {
    const bool finds = targets.finds_false_negatives();
    const W limit = finds ? targets.limit(positive(i)) : W(0);
    LineSums<W> sums;
    ExpSum<W>& part = sums.exponentials;
    for (Index m = begin(i); m < end(i); ++m) {
      const W s = logit(i, m);
      const bool excluded = is_excluded(i, m) || (finds && s > limit);
      logits_[m] = excluded ? minus_infinity<T> : T(s);
      part.reference = (std::max)(part.reference, W(logits_[m]));
      if (excluded || !targets.smooths()) continue;
      sums.total += s;
      sums.count += 1;
    }
    for (Index m = begin(i); m < end(i); ++m) {
      if (logits_[m] == minus_infinity<T>) {
        logits_[m] = -1;
        continue;
      }
      const W e = std::exp(W(logits_[m]) - part.reference);
      logits_[m] = T(e);
      part.sum += e;
    }
    return sums;
  }

  /// Makes G of the exponentials.
  void differentiate(Index i, W factor, W share) const {
    for (Index m = begin(i); m < end(i); ++m) {
      const W e = W(logits_[m]);
      logits_[m] = e < 0 ? T(0) : T(factor * e - share);
    }
  }

  /// dnn_m = G_im qn_i, and dqn_i += G_im nn_m.
  void backward(Index i) const {
    const Side<T>& queries = queries_->x();
    for (Index m = begin(i); m < end(i); ++m) {
      const T g = logits_[m];
      for (Index panel = 0; panel < queries.panels(); ++panel) {
        const T* q = queries.natural(panel, i);
        const T* n = negatives_.natural(panel, m);
        T* dq = queries.gradient(panel, i);
        T* dn = negatives_.gradient(panel, m);
        queries.for_entries(panel, [&](Index l) { dn[l] = g * q[l]; });
        queries.for_entries(panel, [&](Index l) { dq[l] += g * n[l]; });
      }
    }
  }

  void unpack(const View<T>& dn) const { negatives_.unpack(queries_->scale(), dn, {}); }

 private:
  /// scale qn_i . yn_m
  [[nodiscard]] W logit(Index i, const Side<T>& y, Index m) const {
    const Side<T>& queries = queries_->x();
    constexpr Index width = Side<T>::width;
    W lanes[std::size_t(width)] = {};
    for (Index panel = 0; panel < queries.panels(); ++panel)
      queries.for_entries(panel, [&](Index l) {
        lanes[l] += W(queries.natural(panel, i)[l]) * W(y.natural(panel, m)[l]);
      });
    W sum = 0;
    for (const W lane : lanes) sum += lane;
    return queries_->scale() * sum;
  }

  Side<T> negatives_{};
  const EmbeddingLogits<T>* queries_ = nullptr;
  Index batch_ = 1;
  List<std::int64_t> offsets_{};
  List<std::int64_t> pos_ids_{};
  List<std::int64_t> neg_ids_{};
  T* logits_ = nullptr;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_OWN_NEGATIVES_HPP
