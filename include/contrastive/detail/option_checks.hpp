// Checks of scales and options, shared by the losses over pairs.
#ifndef CONTRASTIVE_DETAIL_OPTION_CHECKS_HPP
#define CONTRASTIVE_DETAIL_OPTION_CHECKS_HPP

#include <cmath>
#include <cstdint>
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

/// The same with its options: smoothed labels need room for the sum of a row's logits.
template <class T>
Wide<T> target_limit(const SoftmaxOptions& options, Index candidates) {
  return largest_logit<T>(options.label_smoothing > 0 ? candidates : 1);
}

template <class T>
void check_pairs(const char* function, const View<const T>& q, const View<const T>& p) {
  check_same_shape(function, "Q", q, "P", p);
  check_not_empty(function, "Q", q);
}

template <class T>
void check_negatives(const char* function, const View<const T>& q, const View<const T>& n) {
  if (n.cols != q.cols)
    refuse(function,
           "Q is %lld x %lld but N is %lld x %lld, they must have the same number of columns",
           number(q.rows), number(q.cols), number(n.rows), number(n.cols));
}

/// query_ids, pos_ids and weights of SoftmaxOptions or SigLipOptions.
template <class Options>
void check_pair_options(const char* function, const Options& options, Index batch,
                        const char* what = "Q") {
  check_optional_length(function, "query_ids", options.query_ids, batch, what);
  check_optional_length(function, "pos_ids", options.pos_ids, batch, what);
  check_weights(function, options.weights, batch, what);
}

/// decoupled leaves the positive out of its row's sum, so there has to be something else in it.
inline void check_negatives_for_decoupled(const char* function, const SoftmaxOptions& options,
                                          Index batch, Index negatives) {
  const auto same = [](const List<std::int64_t>& ids, Index i, Index j) {
    return !ids.empty() && ids[i] == ids[j];
  };
  const auto has_extra = [&](Index i) {
    Index m = 0, end = negatives;
    if (options.scope == NegativeScope::own) {
      const bool even = options.neg_offsets.empty();
      m = even ? i * (negatives / batch) : Index(options.neg_offsets[i]);
      end = even ? m + negatives / batch : Index(options.neg_offsets[i + 1]);
    }
    while (m < end && !options.neg_ids.empty() && options.neg_ids[m] == options.pos_ids[i]) ++m;
    return m < end;
  };
  Index j = 0;  // what is a negative of one row is mostly one of the next too
  for (Index i = 0; i < batch; ++i) {
    Index tried = 0;
    for (; tried < batch; ++tried, j = (j + 1) % batch)
      if (j != i && !same(options.query_ids, i, j) && !same(options.pos_ids, i, j)) break;
    if (tried == batch && !has_extra(i))
      refuse(function, "row %lld has no negative, and decoupled leaves its positive out of the sum",
             number(i));
  }
}

/// label_smoothing and the options after it. `negatives` is the number of rows of N; with two
/// `views` of each item a row has the other `batch` - 1 items' views as candidates.
template <class T>
void check_target_options(const char* function, const SoftmaxOptions& options, Wide<T> scale,
                          Index batch, Index negatives, const char* what = "Q", Index views = 1) {
  using W = Wide<T>;
  const double smoothing = options.label_smoothing;
  if (!(smoothing >= 0 && smoothing <= 1))
    refuse(function, "label_smoothing is %.9g, it must lie in [0, 1]", smoothing);
  check_finite(function, "positive_margin", options.positive_margin);
  const List<double>& prior = options.log_prior;
  check_optional_length(function, "log_prior", prior, batch, what);
  for (Index j = 0; j < prior.size(); ++j)
    if (!std::isfinite(prior[j])) refuse(function, "log_prior[%lld] is %.9g", number(j), prior[j]);
  if (options.false_negative_margin.has_value())
    check_finite(function, "false_negative_margin", *options.false_negative_margin);
  if (options.decoupled) check_negatives_for_decoupled(function, options, batch, negatives);

  // Half of what a logit may be is left to similarities.
  const W most = target_limit<T>(options, views * batch + negatives) / 4;
  if (!(std::fabs(scale * W(options.positive_margin)) <= most))
    refuse_overflow(function,
                    "positive_margin is %.9g, which times the scale overflows the scalar type",
                    options.positive_margin);
  for (Index j = 0; j < prior.size(); ++j)
    if (!(std::fabs(W(prior[j])) <= most))
      refuse_overflow(function, "log_prior[%lld] is %.9g, which overflows the scalar type",
                      number(j), prior[j]);
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

/// For the losses over logits: there is no similarity to take a margin of.
inline void refuse_margins(const char* function, const SoftmaxOptions& options) {
  const char* why = "is a margin of similarities, and this loss is given logits";
  if (options.positive_margin != 0) refuse_option(function, "positive_margin", why);
  if (options.false_negative_margin.has_value())
    refuse_option(function, "false_negative_margin", why);
}

/// For the losses of single rows.
template <class Options>
void refuse_weights(const char* function, const Options& options) {
  if (!options.weights.empty())
    refuse_option(function, "weights", "is for means, and each row's loss is unweighted");
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
      refuse(function, "N has %lld rows, which %lld queries cannot share evenly; give neg_offsets",
             number(negatives), number(batch));
    return;
  }
  if (offsets.size() != batch + 1)
    refuse(function, "neg_offsets has %lld entries, but %lld queries need %lld",
           number(offsets.size()), number(batch), number(batch + 1));
  if (offsets[0] != 0) refuse(function, "neg_offsets[0] is %lld, not 0", number(offsets[0]));
  for (Index i = 0; i < batch; ++i)
    if (offsets[i + 1] < offsets[i])
      refuse(function, "neg_offsets decrease: [%lld] is %lld, [%lld] is %lld", number(i),
             number(offsets[i]), number(i + 1), number(offsets[i + 1]));
  if (offsets[batch] != negatives)
    refuse(function, "neg_offsets end at %lld, but N has %lld rows", number(offsets[batch]),
           number(negatives));
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_OPTION_CHECKS_HPP
