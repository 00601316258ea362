// Checks of scales and options, shared by the losses over pairs.
#ifndef CONTRASTIVE_DETAIL_OPTION_CHECKS_HPP
#define CONTRASTIVE_DETAIL_OPTION_CHECKS_HPP

#include <limits>
#include <string>

#include "../temperature.hpp"
#include "checks.hpp"

namespace contrastive::detail {

/// The largest logit that leaves room for the loss: a row's loss is below `terms` times twice that.
template <class T>
Wide<T> largest_logit(Index terms) {
  return Wide<T>((std::numeric_limits<T>::max)()) / 8 / Wide<T>(terms);
}

template <class T>
void check_pairs(const char* function, const View<const T>& q, const View<const T>& p) {
  check_same_shape(function, "Q", q, "P", p);
  check_not_empty(function, "Q", q);
}

template <class T>
void check_negatives(const char* function, const View<const T>& q, const View<const T>& n) {
  if (n.cols != q.cols)
    refuse(function, "Q is " + shape(q.rows, q.cols) + " but N is " + shape(n.rows, n.cols)
                         + ", they must have the same number of columns");
}

/// query_ids, pos_ids and weights of SoftmaxOptions or SigLipOptions.
template <class Options>
void check_pair_options(const char* function, const Options& options, Index batch,
                        const char* what = "Q") {
  check_optional_length(function, "query_ids", options.query_ids, batch, what);
  check_optional_length(function, "pos_ids", options.pos_ids, batch, what);
  check_weights(function, options.weights, batch, what);
}

/// For the losses without extra negatives.
inline void refuse_negative_options(const char* function, const SoftmaxOptions& options) {
  const char* why = "is for extra negatives, and this loss has none";
  if (!options.neg_ids.empty()) refuse_option(function, "neg_ids", why);
  if (options.scope != NegativeScope::shared) refuse_option(function, "scope", why);
  if (!options.neg_offsets.empty()) refuse_option(function, "neg_offsets", why);
}

/// For the losses over logits.
template <class Options>
void refuse_similarity(const char* function, const Options& options) {
  if (options.similarity != Similarity::cosine)
    refuse_option(function, "similarity", "is for embeddings, and this loss is given logits");
}

inline void check_negative_options(const char* function, const SoftmaxOptions& options, Index batch,
                                   Index negatives) {
  if (!options.neg_ids.empty()) {
    check_length(function, "neg_ids", options.neg_ids.size(), negatives, "N");
    if (options.pos_ids.empty())
      refuse_option(function, "neg_ids", "needs pos_ids: they are compared with each other");
  }
  const List<std::int64_t>& offsets = options.neg_offsets;
  if (options.scope == NegativeScope::shared) {
    if (!offsets.empty())
      refuse_option(function, "neg_offsets", "needs scope own: shared negatives have no owner");
    return;
  }
  if (offsets.empty()) {
    if (negatives % batch != 0)
      refuse(function, "N has " + number(negatives) + " rows, which " + number(batch)
                           + " queries cannot share evenly; give neg_offsets");
    return;
  }
  if (offsets.size() != batch + 1)
    refuse(function, "neg_offsets has " + number(offsets.size()) + " entries, but " + number(batch)
                         + " queries need " + number(batch + 1));
  if (offsets[0] != 0)
    refuse(function, "neg_offsets[0] is " + number(Index(offsets[0])) + ", not 0");
  for (Index i = 0; i < batch; ++i)
    if (offsets[i + 1] < offsets[i])
      refuse(function, "neg_offsets decrease: [" + number(i) + "] is " + number(Index(offsets[i]))
                           + ", [" + number(i + 1) + "] is " + number(Index(offsets[i + 1])));
  if (offsets[batch] != negatives)
    refuse(function, "neg_offsets end at " + number(Index(offsets[batch])) + ", but N has "
                         + number(negatives) + " rows");
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_OPTION_CHECKS_HPP
