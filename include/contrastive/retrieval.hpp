// Retrieval: the nearest rows of a corpus, and how well they answer.
#ifndef CONTRASTIVE_RETRIEVAL_HPP
#define CONTRASTIVE_RETRIEVAL_HPP

#include <Eigen/Core>
#include <cstdint>

#include "detail/best_scores.hpp"
#include "detail/relevance.hpp"
#include "detail/view.hpp"
#include "options.hpp"
#include "workspace.hpp"

namespace contrastive {

/// What top_k returns: row i is query i's, best first.
template <class T>
struct TopK {
  Eigen::Matrix<Eigen::Index, Eigen::Dynamic, Eigen::Dynamic> indices{};  ///< rows of the corpus
  Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic> scores{};              ///< their similarities
};

/// Exact nearest-neighbour search: the k rows of the corpus most similar to each query.
///
///     s_ij    = qn_i . cn_j with xn = x / |x|  (cosine), or q_i . c_j  (dot)
///     indices = row i: the first k of the corpus's rows by falling s_ij, equal ones by rising j
///     scores  = s_ij of those
///
/// A score is a function of its two rows alone, so equal rows of the corpus have equal scores and
/// come in the order of their indices. A cosine is as computed: it may exceed 1 by rounding. Where
/// the corpus is the queries themselves, row i is usually its own nearest, but not where an earlier
/// row equals it: drop it by its index.
///
/// @param queries     (Q x d), one embedding a row, finite.
/// @param corpus      (N x d), finite.
/// @param k           from 1 to N.
/// @param similarity  whether rows are normalised.
/// @return indices and scores (Q x k).
/// @throws std::invalid_argument if a matrix is empty, the numbers of columns differ, k is not from
///     1 to N, or a matrix is not finite or has a zero row under cosine.
/// @throws std::overflow_error if a dot product (of huge rows) overflows the scalar type.
/// @par Accuracy
/// Scores are within (d + 4) epsilon |q_i| |c_j| of the exact ones (cosine: without the norms).
/// @par Complexity
/// One product of 2 Q N d operations, and O(Q N) comparisons beside it; ordering the best costs
/// O(Q k log k). Memory beyond inputs and outputs: Q d scalars, 4 to 64 MiB (at least 1024 rows) of
/// the corpus at a time, at most 32 MiB of scores, and 2 k pairs of score and index a query.
template <class DQ, class DC>
void top_k(const Eigen::MatrixBase<DQ>& queries, const Eigen::MatrixBase<DC>& corpus,
           Eigen::Index k, Similarity similarity, TopK<typename DQ::Scalar>& result,
           Workspace& workspace) {
  detail::require_same_scalar<DQ, DC>();
  const char* function = "top_k";
  const detail::Bound<DQ> q(queries);
  const detail::Bound<DC> c(corpus);
  detail::check_retrieval(function, q.view(), c.view());
  detail::check_k(function, k, corpus.rows());
  detail::check_contents(function, q.view(), c.view(), similarity);
  detail::Scratch scratch(workspace);
  const detail::BestScores<typename DQ::Scalar> best(function, q.view(), c.view(), k, similarity,
                                                     scratch);
  best.write(detail::resized(result.indices, queries.rows(), k),
             detail::resized(result.scores, queries.rows(), k));
}

/// The same, returned.
template <class DQ, class DC>
[[nodiscard]] TopK<typename DQ::Scalar> top_k(const Eigen::MatrixBase<DQ>& queries,
                                              const Eigen::MatrixBase<DC>& corpus, Eigen::Index k,
                                              Similarity similarity = Similarity::cosine,
                                              OptionalWorkspace workspace = {}) {
  TopK<typename DQ::Scalar> result;
  top_k(queries, corpus, k, similarity, result, workspace.get());
  return result;
}

/// Recall@k where row i of the corpus is the answer to query i: the share of queries whose answer
/// is among the k that top_k finds.
///
///     recall@k = mean_i [i in top_k(i)]
///
/// @param queries     (N x d), one embedding a row, finite.
/// @param corpus      (N x d), finite.
/// @param k           from 1 to N.
/// @param similarity  whether rows are normalised.
/// @return recall, from 0 to 1.
/// @throws as top_k, and std::invalid_argument if the numbers of rows differ.
/// @par Complexity
/// That of top_k, without the ordering.
template <class DQ, class DC>
[[nodiscard]] double recall_at_k(const Eigen::MatrixBase<DQ>& queries,
                                 const Eigen::MatrixBase<DC>& corpus, Eigen::Index k,
                                 Similarity similarity = Similarity::cosine,
                                 OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DQ, DC>();
  const char* function = "recall_at_k";
  const detail::Bound<DQ> q(queries);
  const detail::Bound<DC> c(corpus);
  detail::check_same_shape(function, "queries", q.view(), "corpus", c.view());
  detail::check_not_empty(function, "queries", q.view());
  detail::check_k(function, k, corpus.rows());
  detail::Scratch scratch(workspace.get());
  return detail::mean_recall(function, q.view(), c.view(), detail::Relevance(), k, similarity,
                             scratch);
}

/// Recall@k where a query may have several answers: the rows of the corpus with its id.
///
///     R_i      = { j : corpus_ids_j = query_item_ids_i }
///     recall@k = mean_i |R_i and top_k(i)| / |R_i|
///
/// That is recall as trec_eval, BEIR and sentence-transformers have it. With more than k answers it
/// stays below 1. Where each query has one answer it is the hit rate too, also called accuracy@k.
///
/// @param queries         (Q x d), one embedding a row, finite.
/// @param corpus          (N x d), finite.
/// @param query_item_ids  Q ids of what each query looks for; each is in corpus_ids.
/// @param corpus_ids      N ids, which may repeat.
/// @param k               from 1 to N.
/// @param similarity      whether rows are normalised.
/// @return recall, from 0 to 1.
/// @throws as top_k, and std::invalid_argument if a list has another length than its matrix, or no
///     row of the corpus has a query's id: left out or counted as a miss, such a query changes what
///     the mean means, so that choice is the caller's.
/// @par Complexity
/// That of top_k, without the ordering, and O(N log N) to sort the ids.
template <class DQ, class DC>
[[nodiscard]] double recall_at_k(const Eigen::MatrixBase<DQ>& queries,
                                 const Eigen::MatrixBase<DC>& corpus,
                                 List<std::int64_t> query_item_ids, List<std::int64_t> corpus_ids,
                                 Eigen::Index k, Similarity similarity = Similarity::cosine,
                                 OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DQ, DC>();
  const char* function = "recall_at_k";
  const detail::Bound<DQ> q(queries);
  const detail::Bound<DC> c(corpus);
  detail::check_retrieval(function, q.view(), c.view());
  detail::check_k(function, k, corpus.rows());
  detail::Scratch scratch(workspace.get());
  const detail::Relevance relevant(function, query_item_ids, queries.rows(), corpus_ids,
                                   corpus.rows(), scratch);
  return detail::mean_recall(function, q.view(), c.view(), relevant, k, similarity, scratch);
}

/// Mean reciprocal rank where row i of the corpus is the answer to query i.
///
///     rank_i = 1 + |{ j : s_ij > s_ii, or s_ij = s_ii and j < i }|
///     MRR    = mean_i 1 / rank_i
///
/// The rank is the answer's place in top_k's order; there is no k beyond which it counts as 0.
///
/// @param queries     (N x d), one embedding a row, finite.
/// @param corpus      (N x d), finite.
/// @param similarity  whether rows are normalised.
/// @return MRR, above 0 and at most 1.
/// @throws as top_k, and std::invalid_argument if the numbers of rows differ.
/// @par Complexity
/// One product of 2 N N d operations, and the blocks of it in which answers lie once more. Memory:
/// that of top_k for k = 1.
template <class DQ, class DC>
[[nodiscard]] double mean_reciprocal_rank(const Eigen::MatrixBase<DQ>& queries,
                                          const Eigen::MatrixBase<DC>& corpus,
                                          Similarity similarity = Similarity::cosine,
                                          OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DQ, DC>();
  const char* function = "mean_reciprocal_rank";
  const detail::Bound<DQ> q(queries);
  const detail::Bound<DC> c(corpus);
  detail::check_same_shape(function, "queries", q.view(), "corpus", c.view());
  detail::check_not_empty(function, "queries", q.view());
  detail::Scratch scratch(workspace.get());
  return detail::mean_reciprocal(function, q.view(), c.view(), detail::Relevance(), similarity,
                                 scratch);
}

/// Mean reciprocal rank where a query may have several answers, of which the best-ranked counts.
///
///     rank_i = min over j in R_i of j's place in top_k's order       (R_i: see recall_at_k)
///     MRR    = mean_i 1 / rank_i
///
/// @param queries         (Q x d), one embedding a row, finite.
/// @param corpus          (N x d), finite.
/// @param query_item_ids  Q ids of what each query looks for; each is in corpus_ids.
/// @param corpus_ids      N ids, which may repeat.
/// @param similarity      whether rows are normalised.
/// @return MRR, above 0 and at most 1.
/// @throws as recall_at_k with ids.
/// @par Complexity
/// One product of 2 Q N d operations, and the blocks of it in which answers lie once more: at most
/// two products, where each query has answers everywhere.
template <class DQ, class DC>
[[nodiscard]] double mean_reciprocal_rank(const Eigen::MatrixBase<DQ>& queries,
                                          const Eigen::MatrixBase<DC>& corpus,
                                          List<std::int64_t> query_item_ids,
                                          List<std::int64_t> corpus_ids,
                                          Similarity similarity = Similarity::cosine,
                                          OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DQ, DC>();
  const char* function = "mean_reciprocal_rank";
  const detail::Bound<DQ> q(queries);
  const detail::Bound<DC> c(corpus);
  detail::check_retrieval(function, q.view(), c.view());
  detail::Scratch scratch(workspace.get());
  const detail::Relevance relevant(function, query_item_ids, queries.rows(), corpus_ids,
                                   corpus.rows(), scratch);
  return detail::mean_reciprocal(function, q.view(), c.view(), relevant, similarity, scratch);
}

}  // namespace contrastive

#endif  // CONTRASTIVE_RETRIEVAL_HPP
