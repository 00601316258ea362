// How well a corpus is ranked: where the rows that answer a query come.
#ifndef CONTRASTIVE_DETAIL_RELEVANCE_HPP
#define CONTRASTIVE_DETAIL_RELEVANCE_HPP

#include <Eigen/Core>
#include <cstdint>
#include <limits>
#include <string>

#include "best_scores.hpp"
#include "exclusions.hpp"
#include "score_walk.hpp"

namespace contrastive::detail {

/// Which rows of the corpus answer which query: row i query i, or those that have its id.
class Relevance {
 public:
  Relevance() = default;

  Relevance(const char* function, const List<std::int64_t>& query_item_ids, Index queries,
            const List<std::int64_t>& corpus_ids, Index corpus, Scratch& scratch)
      : by_id_(true), query_ids_(query_item_ids), corpus_ids_(corpus_ids) {
    check_length(function, "query_item_ids", query_item_ids.size(), queries, "queries");
    check_length(function, "corpus_ids", corpus_ids.size(), corpus, "corpus");
    groups_ = IdGroups(query_item_ids, corpus_ids, scratch);
    for (Index i = 0; i < queries; ++i)
      if (count(i) == 0)
        refuse(function,
               "query_item_ids[%lld] is %lld, which no row of corpus has: there is nothing to find",
               number(i), number(query_ids_[i]));
  }

  [[nodiscard]] bool operator()(Index i, Index j) const {
    return by_id_ ? query_ids_[i] == corpus_ids_[j] : i == j;
  }

  /// Calls f(j) for query i's answers begin <= j < end, in ascending order.
  template <class F>
  void for_each(Index i, Index begin, Index end, const F& f) const {
    if (by_id_)
      groups_.for_each(i, begin, end, f);
    else if (begin <= i && i < end)
      f(i);
  }

  [[nodiscard]] Index count(Index i) const {
    Index n = 0;
    for_each(i, 0, by_id_ ? corpus_ids_.size() : i + 1, [&](Index) { ++n; });
    return n;
  }

 private:
  bool by_id_ = false;
  List<std::int64_t> query_ids_{};
  List<std::int64_t> corpus_ids_{};
  IdGroups groups_{};
};

/// mean_i |answers of query i among its k best| / |answers of query i|
template <class T>
double mean_recall(const char* function, const View<const T>& queries, const View<const T>& corpus,
                   const Relevance& relevant, Index k, Similarity similarity, Scratch& scratch) {
  check_contents(function, queries, corpus, similarity);
  const BestScores<T> best(function, queries, corpus, k, similarity, scratch);
  double sum = 0;
  for (Index i = 0; i < queries.rows; ++i) {
    Index found = 0;
    for (Index n = 0; n < k; ++n) found += Index(relevant(i, best.row(i)[n].index));
    sum += double(found) / double(relevant.count(i));
  }
  return sum / double(queries.rows);
}

/// mean_i 1 / (1 + number of rows that come before query i's best answer)
///
/// One walk over the answers alone finds each query's best, the other counts what comes before it.
template <class T>
double mean_reciprocal(const char* function, const View<const T>& queries,
                       const View<const T>& corpus, const Relevance& relevant,
                       Similarity similarity, Scratch& scratch) {
  check_contents(function, queries, corpus, similarity);
  const ScorePlan<T> plan(queries.rows, corpus.rows, queries.cols, 960);
  Candidate<T>* best = scratch.take<Candidate<T>>(plan.rows * plan.parts);
  Index* before = scratch.take<Index>(plan.rows * plan.parts);
  std::fill_n(
      best, plan.rows * plan.parts,
      Candidate<T>{-std::numeric_limits<T>::infinity(), (std::numeric_limits<Index>::max)()});
  std::fill_n(before, plan.rows * plan.parts, Index{0});

  ScoreWalk<T> walk(function, plan, queries, corpus, similarity, scratch);
  walk.relevant(relevant, [&](Index i, Index j, T score, Index part) {
    const Candidate<T> answer{score, j};
    Candidate<T>& so_far = best[i * plan.parts + part];
    if (answer.before(so_far)) so_far = answer;
  });
  for (Index i = 0; i < plan.rows; ++i)
    for (Index part = 1; part < plan.parts; ++part) {
      const Candidate<T>& answer = best[i * plan.parts + part];
      if (answer.before(best[i * plan.parts])) best[i * plan.parts] = answer;
    }
  walk.all([&](const ScoreChunk<T>& scores, Index part) {
    for (Index r = 0; r < scores.rows; ++r) {
      const Index i = scores.first_row + r;
      const Candidate<T>& answer = best[i * plan.parts];
      const T* s = scores.row(r);
      // Of equal scores those to the left of the answer come before it.
      const Index split =
          (std::max)((std::min)(answer.index - scores.first_col, scores.cols), Index{0});
      int count = 0;
      for (Index l = 0; l < split; ++l) count += int(s[l] >= answer.score);
      for (Index l = split; l < scores.cols; ++l) count += int(s[l] > answer.score);
      before[i * plan.parts + part] += count;
    }
  });

  double sum = 0;
  for (Index i = 0; i < plan.rows; ++i) {
    Index rank = 1;
    for (Index part = 0; part < plan.parts; ++part) rank += before[i * plan.parts + part];
    sum += 1 / double(rank);
  }
  return sum / double(plan.rows);
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_RELEVANCE_HPP
