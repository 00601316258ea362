// What to look at beside the loss.
#ifndef CONTRASTIVE_BATCH_REPORT_HPP
#define CONTRASTIVE_BATCH_REPORT_HPP

#include <Eigen/Core>
#include <cmath>
#include <optional>

#include "detail/report_sweep.hpp"
#include "detail/view.hpp"
#include "options.hpp"
#include "temperature.hpp"
#include "workspace.hpp"

namespace contrastive {

/// What a batch looks like. A collapsed encoder, whose rows are all equal, has
/// loss = log_candidates, mean_negative = mean_positive and no positive ranked first.
struct BatchReport {
  double loss = 0;
  /// A blind guess's loss: the mean over rows, weighted as the loss, of the log of the number of
  /// candidates; decoupled, of that of the negatives.
  double log_candidates = 0;
  double top1_rows = 0;      ///< share of positives ranked first by their query; a tie is not first
  double top1_columns = 0;   ///< share of queries ranked first by their positive
  double mean_positive = 0;  ///< similarity of the pairs
  double mean_negative = 0;  ///< similarity of the negatives, 0 if there is none
  double masked = 0;         ///< number of candidates left out, by ids or as false negatives
  /// log B - loss: what the batch certifies of the nats that pairs share. Nothing where the loss is
  /// not the InfoNCE of a batch against itself: with extra negatives, masked candidates, weights or
  /// another option that changes it.
  std::optional<double> mutual_information{};
};

namespace detail {

/// The report of B pairs and `extra` further negatives.
template <class T>
BatchReport make_report(ReportSweep<T>& sweep, Index batch, Index extra,
                        const SoftmaxOptions& options) {
  const auto counts = sweep.count();
  BatchReport report;
  report.loss = double(sweep.wide_loss());
  report.log_candidates = double(counts.log_candidates);
  report.top1_rows = double(counts.first_rows) / double(batch);
  report.top1_columns = double(counts.first_columns) / double(batch);
  report.mean_positive = double(counts.mean_positive);
  report.mean_negative = double(counts.mean_negative);
  report.masked = double(counts.masked);
  const bool is_plain = extra == 0 && counts.masked == 0 && options.weights.empty()
                        && options.label_smoothing == 0 && options.positive_margin == 0
                        && !options.decoupled && options.log_prior.empty();
  if (is_plain) report.mutual_information = std::log(double(batch)) - report.loss;
  return report;
}

}  // namespace detail

/// A report on a batch: the value of info_nce_loss, and what to compare it with.
///
///     top1_rows    = 1/B #{i : c_ii > c_ij for all other candidates j of row i}
///     top1_columns = 1/B #{j : c_jj > c_ij for all other rows i of which j is a candidate}
///
/// Ranks are by similarity among the candidates that ids leave. What a false_negative_margin leaves
/// out is ranked nevertheless, and margins and priors are not looked at, so that no option makes an
/// encoder look better than it is. Where there is no other candidate the positive is first.
///
/// @param Q        queries (B x d).
/// @param P        positives (B x d); row i is the positive of query i.
/// @param scale    Temperature or LogScale.
/// @param options  as info_nce_loss.
/// @return see BatchReport.
/// @throws as info_nce_loss_grad.
/// @par Accuracy
/// loss as info_nce_loss; the means go in double. Equal rows tie, to the last bit; similarities
/// that differ by less than their rounding, a few 2^-24 in float, are ranked either way.
/// @par Complexity
/// 2 products of 2 B B d operations; memory as info_nce_loss.
template <class DQ, class DP, class Scale>
[[nodiscard]] BatchReport batch_report(const Eigen::MatrixBase<DQ>& Q,
                                       const Eigen::MatrixBase<DP>& P, const Scale& scale,
                                       const SoftmaxOptions& options = {},
                                       OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DQ, DP>();
  const detail::Bound<DQ> q(Q);
  const detail::Bound<DP> p(P);
  using T = typename DQ::Scalar;
  const char* function = "batch_report";
  detail::check_pairs(function, q.view(), p.view());
  detail::refuse_negative_options(function, options);
  const detail::View<const T> none{nullptr, 0, Q.cols(), 0, 0};
  detail::ReportSweep<T> sweep(function, q.view(), p.view(), none, detail::ScaleArgument(scale),
                               options, workspace.get());
  return detail::make_report(sweep, Q.rows(), 0, options);
}

/// The same with further negatives: the value of hard_negative_loss, and the rows of N among the
/// candidates of the rows; columns are those of P.
///
/// @param N  negatives (M x d).
/// @throws as hard_negative_loss_grad.
template <class DQ, class DP, class DN, class Scale>
[[nodiscard]] BatchReport batch_report(const Eigen::MatrixBase<DQ>& Q,
                                       const Eigen::MatrixBase<DP>& P,
                                       const Eigen::MatrixBase<DN>& N, const Scale& scale,
                                       const SoftmaxOptions& options = {},
                                       OptionalWorkspace workspace = {}) {
  detail::require_same_scalar<DQ, DP, DN>();
  const detail::Bound<DQ> q(Q);
  const detail::Bound<DP> p(P);
  const detail::Bound<DN> n(N);
  detail::ReportSweep<typename DQ::Scalar> sweep("batch_report", q.view(), p.view(), n.view(),
                                                 detail::ScaleArgument(scale), options,
                                                 workspace.get());
  return detail::make_report(sweep, Q.rows(), N.rows(), options);
}

}  // namespace contrastive

#endif  // CONTRASTIVE_BATCH_REPORT_HPP
