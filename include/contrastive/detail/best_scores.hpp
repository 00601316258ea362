// The k best rows of a corpus for each query, kept while the scores stream past.
#ifndef CONTRASTIVE_DETAIL_BEST_SCORES_HPP
#define CONTRASTIVE_DETAIL_BEST_SCORES_HPP

#include <Eigen/Core>
#include <algorithm>
#include <limits>

#include "score_walk.hpp"

namespace contrastive::detail {

template <class T>
struct Candidate {
  T score;
  Index index;

  /// The order of everything here: higher scores first, of equal ones the smaller index.
  [[nodiscard]] bool before(const Candidate& other) const {
    return score != other.score ? score > other.score : index < other.index;
  }
};

/// Moves the k best of n candidates to the front.
template <class T>
void keep_best(Candidate<T>* candidates, Index n, Index k) {
  if (n > k)
    std::nth_element(candidates, candidates + (k - 1), candidates + n,
                     [](const Candidate<T>& a, const Candidate<T>& b) { return a.before(b); });
}

inline void check_k(const char* function, Index k, Index corpus_rows) {
  if (k < 1) refuse(function, "k is %lld, it must be at least 1", number(k));
  if (k > corpus_rows)
    refuse(function, "k is %lld but corpus has %lld rows", number(k), number(corpus_rows));
}

/// The k best of each query. A row (of each part of the corpus) takes what is above its threshold,
/// the least of its k best so far. A few are kept in order. Of many, that would be quadratic: they
/// are collected until there are 2k, of which the best k stay, so that the work is linear in the
/// candidates, whatever k.
///
/// Arguments have been checked.
template <class T>
class BestScores {
 public:
  BestScores(const char* function, const View<const T>& queries, const View<const T>& corpus,
             Index k, Similarity similarity, Scratch& scratch)
      : k_(k),
        capacity_(k <= few ? k : (std::min)(2 * k, corpus.rows) + ScorePlan<T>::chunk),
        plan_(queries.rows, corpus.rows, queries.cols, (std::max)(Index{960}, 32 * k)),
        lists_(scratch.template take<List>(plan_.rows * plan_.parts)),
        candidates_(scratch.template take<Candidate<T>>(plan_.rows * plan_.parts * capacity_)) {
    std::fill_n(lists_, plan_.rows * plan_.parts, List{});
    ScoreWalk<T> walk(function, plan_, queries, corpus, similarity, scratch);
    walk.all([&](const ScoreChunk<T>& scores, Index part) {
      for (Index r = 0; r < scores.rows; ++r)
        collect((scores.first_row + r) * plan_.parts + part, scores.row(r), scores.first_col,
                scores.cols);
    });
    for_rows([&](Index i) { merge_parts(i); });
  }

  /// Query i's k best, in no order.
  [[nodiscard]] const Candidate<T>* row(Index i) const {
    return candidates_ + i * plan_.parts * capacity_;
  }

  /// Best first.
  void write(const View<Index>& indices, const View<T>& scores) const {
    for_rows([&](Index i) {
      Candidate<T>* best = candidates_ + i * plan_.parts * capacity_;
      std::sort(best, best + k_,
                [](const Candidate<T>& a, const Candidate<T>& b) { return a.before(b); });
      for (Index n = 0; n < k_; ++n) {
        indices(i, n) = best[n].index;
        scores(i, n) = best[n].score;
      }
    });
  }

 private:
  static constexpr Index few = 32;  // what is quicker kept in order

  /// The candidates of one row in one part.
  struct List {
    T threshold = -std::numeric_limits<T>::infinity();
    Index size = 0;
  };

  void collect(Index slot, T* scores, Index first_col, Index cols) const {
    List& list = lists_[slot];
    // Columns come in ascending order: one that equals the threshold comes after those kept.
    if (cols == ScorePlan<T>::chunk && !(largest_of_chunk(scores) > list.threshold)) return;
    Candidate<T>* candidates = candidates_ + slot * capacity_;
    if (k_ <= few) {
      for (Index l = 0; l < cols; ++l)
        if (scores[l] > list.threshold) insert(list, candidates, {scores[l], first_col + l});
      return;
    }
    for (Index l = 0; l < cols; ++l) {  // no branch, which would often be mispredicted
      candidates[list.size] = {scores[l], first_col + l};
      list.size += Index(scores[l] > list.threshold);
    }
    if (list.size < 2 * k_) return;
    keep_best(candidates, list.size, k_);
    list.size = k_;
    list.threshold = candidates[k_ - 1].score;
  }

  void insert(List& list, Candidate<T>* candidates, const Candidate<T>& candidate) const {
    Index place = list.size < k_ ? list.size++ : k_ - 1;
    for (; place > 0 && candidates[place - 1].score < candidate.score; --place)
      candidates[place] = candidates[place - 1];
    candidates[place] = candidate;
    if (list.size == k_) list.threshold = candidates[k_ - 1].score;
  }

  void merge_parts(Index i) const {
    Candidate<T>* all = candidates_ + i * plan_.parts * capacity_;
    Candidate<T>* end = all;
    for (Index part = 0; part < plan_.parts; ++part) {
      const Candidate<T>* from = all + part * capacity_;
      end = std::copy(from, from + lists_[i * plan_.parts + part].size, end);
    }
    keep_best(all, end - all, k_);
  }

  template <class F>
  void for_rows(const F& f) const {
    parallel_for(plan_.rows, double(plan_.rows) * double(plan_.parts * k_) * 8, f);
  }

  Index k_;
  Index capacity_;
  ScorePlan<T> plan_;
  List* lists_;
  Candidate<T>* candidates_;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_BEST_SCORES_HPP
