// Calls every loss once and compares it with what a pencil gives. The packaging tests compile this
// program under many flags and macros; whatever those are, the numbers must be the same.
#ifdef DEFINE_MIN_MAX  // as <windows.h> does; the standard headers themselves do not survive it
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif
#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))
#endif

#include <contrastive/contrastive.hpp>

#if defined(DEFINE_MIN_MAX) && !(defined(min) && defined(max))
#error "a header of contrastive undefines the user's macros"
#endif

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace every_loss {

inline int failures = 0;

inline void expect(const char* what, double value, double expected) {
  if (std::fabs(value - expected) <= 2e-6) return;
  std::printf("%s is %.9g, expected %.9g\n", what, value, expected);
  ++failures;
}

template <class Scalar>
void check() {
  using namespace contrastive;
  using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;

  // Two pairs whose logits are the identity, and one extra negative whose logits are zero.
  const Matrix q = Matrix::Identity(2, 3), p = Matrix::Identity(2, 3);
  const Matrix n = Matrix::Identity(3, 3).bottomRows(1);
  const Matrix s = Matrix::Identity(2, 2);
  const Temperature one{1.0};
  const LogScale learned{0.0};
  Workspace workspace;

  const double e = std::exp(1.0);
  const double row = std::log1p(1 / e);        // -log softmax of a row (1, 0)
  const double wrong = 1 / (1 + e);            // the probability of the 0 in it
  const double sigmoid = row + std::log(2.0);  // softplus(-1) + softplus(0)
  const double root2 = std::sqrt(2.0);

  SoftmaxOptions dot;
  dot.similarity = Similarity::dot;
  {
    const auto r = info_nce_loss_grad(q, p, learned, dot);
    expect("info_nce_loss", info_nce_loss(q, p, one), row);
    expect("info_nce_loss_grad loss", r.loss, row);
    expect("info_nce_loss_grad dQ(0, 0)", r.dQ(0, 0), -wrong / 2);
    expect("info_nce_loss_grad dQ(0, 1)", r.dQ(0, 1), wrong / 2);
    expect("info_nce_loss_grad dP(1, 0)", r.dP(1, 0), wrong / 2);
    expect("info_nce_loss_grad d_log_scale", r.d_log_scale, -wrong);
  }
  {
    const auto [loss, dQ, dP, dN] = hard_negative_loss_grad(q, p, n, one, dot);
    expect("hard_negative_loss", hard_negative_loss(q, p, n, one), std::log1p(2 / e));
    expect("hard_negative_loss_grad loss", loss, std::log1p(2 / e));
    expect("hard_negative_loss_grad dQ(0, 2)", dQ(0, 2), 1 / (2 + e) / 2);
    expect("hard_negative_loss_grad dP(0, 0)", dP(0, 0), -2 / (2 + e) / 2);
    expect("hard_negative_loss_grad dN(0, 0)", dN(0, 0), 1 / (2 + e) / 2);
  }
  {
    const auto [loss, dQ, dP] = clip_loss_grad(q, p, one, dot);
    expect("clip_loss", clip_loss(q, p, learned), row);
    expect("clip_loss_grad loss", loss, row);
    expect("clip_loss_grad dQ(0, 1)", dQ(0, 1), wrong / 2);
    expect("clip_loss_grad dP(1, 0)", dP(1, 0), wrong / 2);
  }
  {
    SigLipOptions options;
    options.similarity = Similarity::dot;
    const auto [loss, dQ, dP, d_log_scale, d_bias] = siglip_loss_grad(q, p, learned, 0.0, options);
    expect("siglip_loss", siglip_loss(q, p, one, 0.0), sigmoid);
    expect("siglip_loss_grad loss", loss, sigmoid);
    expect("siglip_loss_grad dQ(0, 0)", dQ(0, 0), -wrong / 2);
    expect("siglip_loss_grad dP(1, 0)", dP(1, 0), 0.25);
    expect("siglip_loss_grad d_log_scale", d_log_scale, -wrong);
    expect("siglip_loss_grad d_bias", d_bias, 0.5 - wrong);
  }
  {
    // Every option of a softmax: the similarity 0 of the other pair is left out, or nothing is.
    SoftmaxOptions targets = dot;
    targets.decoupled = true;
    targets.positive_margin = 0.5;
    targets.label_smoothing = 0.5;
    expect("info_nce_loss of other targets", info_nce_loss(q, p, one, targets), -0.5 + 0.125);
    expect("clip_loss of other targets", clip_loss(q, p, one, targets), -0.5 + 0.125);
    targets.false_negative_margin = 1.5;
    expect("info_nce_loss without false negatives", info_nce_loss(q, p, one, targets), 0);
    const std::vector<double> prior = {1, 0};
    targets = dot;
    targets.log_prior = prior;
    expect("info_nce_loss with a prior", info_nce_loss(q, p, one, targets),
           (std::log1p(1.0) + std::log1p(1 / (e * e))) / 2);
    expect("info_nce_rows", info_nce_rows(q, p, one)(1), row);
    expect("hard_negative_rows", hard_negative_rows(q, p, n, one)(1), std::log1p(2 / e));
    expect("clip_rows", clip_rows(q, p, one)(0), row);
    expect("siglip_rows", siglip_rows(q, p, one, 0.0)(0), sigmoid);
    const BatchReport report = batch_report(q, p, one);
    expect("batch_report loss", report.loss, row);
    expect("batch_report log_candidates", report.log_candidates, std::log(2.0));
    expect("batch_report top1_rows", report.top1_rows, 1);
    expect("batch_report mutual_information", report.mutual_information.value(),
           std::log(2.0) - row);
    expect("batch_report with negatives", batch_report(q, p, n, one).loss, std::log1p(2 / e));
  }
  {
    // Four rows, two of each: a row's positive has the logit 1 and two others 0.
    const double pair = std::log1p(2 / e), miss = 2 / (2 + e);
    const auto [loss, dZa, dZb, d_log_scale] = nt_xent_loss_grad(q, p, learned, dot);
    expect("nt_xent_loss", nt_xent_loss(q, p, one), pair);
    expect("nt_xent_loss_grad loss", loss, pair);
    expect("nt_xent_loss_grad dZa(0, 0)", dZa(0, 0), -miss / 2);
    expect("nt_xent_loss_grad dZb(1, 0)", dZb(1, 0), 1 / (2 + e));
    expect("nt_xent_loss_grad d_log_scale", d_log_scale, -miss);
    expect("nt_xent_rows", nt_xent_rows(q, p, one)(3), pair);
    Matrix z(5, 3);
    z << q, p, n;  // and one of no class, which is a negative of all
    const std::vector<short> labels{-4, 9, -4, 9, 0};
    const auto classes = sup_con_loss_grad(z, labels, learned, dot);
    expect("sup_con_loss", sup_con_loss(z, labels, one), std::log1p(3 / e));
    expect("sup_con_loss_grad loss", classes.loss, std::log1p(3 / e));
    expect("sup_con_loss_grad dZ(0, 0)", classes.dZ(0, 0), -3 / (3 + e) / 2);
    expect("sup_con_loss_grad dZ(4, 0)", classes.dZ(4, 0), 1 / (3 + e) / 2);
    expect("sup_con_loss_grad d_log_scale", classes.d_log_scale, -3 / (3 + e));
    expect("sup_con_rows", sup_con_rows(z, labels, one)(4), 0.0);
  }
  {
    const auto [loss, dS] = info_nce_logits_loss_grad(s);
    expect("info_nce_logits_loss", info_nce_logits_loss(s), row);
    expect("info_nce_logits_loss_grad dS(0, 1)", dS(0, 1), wrong / 2);
    expect("info_nce_logits_loss_grad loss", loss, row);
    const auto clip = clip_logits_loss_grad(s);
    expect("clip_logits_loss_grad dS(0, 0)", clip.dS(0, 0), -wrong / 2);
    const auto siglip = siglip_logits_loss_grad(s, 0.0);
    expect("siglip_logits_loss_grad loss", siglip.loss, sigmoid);
    const auto bound = mutual_information_bound_grad(s);
    expect("mutual_information_bound_grad nats", bound.nats, std::log(2.0) - row);
  }
  {
    const Matrix far = -p;
    const auto [loss, dA, dP, dN] = triplet_loss_grad(q, p, far, 3.0);
    expect("triplet_loss_grad loss", loss, 1.0);
    expect("triplet_loss_grad dA(0, 0)", dA(0, 0), -0.5);
    expect("triplet_loss_grad dP(0, 0)", dP(0, 0), 0.0);
    expect("triplet_loss_grad dN(0, 0)", dN(0, 0), 0.5);
  }
  {
    // Logits of a pair (u, v): 0, and with the weights |u - v| . (1, 1, 1) = 2 or 0.
    Matrix weights = Matrix::Zero(2, 9);
    weights.row(0).tail(3).setOnes();
    const Eigen::Matrix<Scalar, Eigen::Dynamic, 1> biases =
        Eigen::Matrix<Scalar, Eigen::Dynamic, 1>::Zero(2);
    const Matrix far = q.colwise().reverse();
    const std::vector<int> labels{0, 0};
    const auto [loss, dU, dV, dW, db] =
        pair_classification_loss_grad(q, far, labels, weights, biases);
    const double miss = 1 / (1 + e * e);
    expect("pair_classification_loss", pair_classification_loss(q, q, labels, weights, biases),
           std::log(2.0));
    expect("pair_classification_loss_grad loss", loss, std::log1p(1 / (e * e)));
    expect("pair_classification_loss_grad dU(0, 0)", dU(0, 0), -miss / 2);
    expect("pair_classification_loss_grad dV(0, 0)", dV(0, 0), miss / 2);
    expect("pair_classification_loss_grad dW(0, 6)", dW(0, 6), -miss);
    expect("pair_classification_loss_grad db(1)", db(1), miss);
  }
  {
    MemoryQueue<Scalar> queue(2, 3);
    queue.push(p, std::vector<std::int64_t>{5, 6});
    queue.push(n, std::vector<std::int64_t>{7});  // in the place of the first
    expect("MemoryQueue rows", queue.rows()(0, 2), 1.0);
    expect("MemoryQueue ids", static_cast<double>(queue.ids()[0]), 7.0);
    expect("hard_negative_loss of a queue", hard_negative_loss(q, p, queue.rows(), one, dot),
           (std::log1p(3 / e) + std::log(2 + 2 / e)) / 2);
    Matrix slow = q;
    momentum_update(slow, Matrix::Zero(2, 3), 0.75);
    expect("momentum_update", slow(1, 1), 0.75);
  }
  {
    // The encoder is z = x, so the gradient by x is that by z.
    Matrix dq = Matrix::Zero(2, 3);
    const auto r = grad_cached(
        2, 1,
        [&](Side side, Eigen::Index first, Eigen::Index count, std::uint64_t) {
          return Matrix((side == Side::query ? q : p).middleRows(first, count));
        },
        [&](const Matrix& Q, const Matrix& P) { return info_nce_loss_grad(Q, P, one, dot); },
        [&](Side side, Eigen::Index first, Eigen::Index count, std::uint64_t, const Matrix& dz) {
          if (side == Side::query) dq.middleRows(first, count) += dz;
        });
    expect("grad_cached loss", r.loss, row);
    expect("grad_cached dQ(0, 1)", dq(0, 1), wrong / 2);
    const auto value = [&](const Matrix& Q) {
      return info_nce_loss(Q.template cast<double>(), p.template cast<double>(), one, dot);
    };
    expect("check_gradient", check_gradient(value, q, dq).max_error, 0.0);
  }
  {
    const Matrix turned = q.colwise().reverse();  // each row at distance sqrt(2) from its pair
    const auto [a, u] = alignment_uniformity(q, turned);
    expect("alignment_uniformity alignment", a, 2.0);
    expect("alignment_uniformity uniformity", u, -4.0);
    const auto alignment = alignment_loss_grad(q, turned, 1.0, Similarity::dot);
    expect("alignment_loss_grad loss", alignment.loss, root2);
    expect("alignment_loss_grad dZa(0, 0)", alignment.dZa(0, 0), 0.5 / root2);
    const auto uniformity = uniformity_loss_grad(q, 2.0, Similarity::dot);
    expect("uniformity_loss_grad loss", uniformity.loss, -4.0);
    expect("uniformity_loss_grad dZ(0, 0)", uniformity.dZ(0, 0), -4.0);
  }
  {
    // Row 0 of q is nearest to row 0 of p, row 1 to row 1; both rows of p answer the id 7.
    const std::vector<std::int64_t> items{7, 7}, answers{7, 7};
    const auto [indices, scores] = top_k(q, p, 2);
    expect("top_k indices(1, 0)", static_cast<double>(indices(1, 0)), 1);
    expect("top_k scores(1, 0)", scores(1, 0), 1);
    expect("top_k scores(1, 1)", scores(1, 1), 0);
    expect("recall_at_k", recall_at_k(q, p, 1), 1);
    expect("recall_at_k by id", recall_at_k(q, p, items, answers, 1), 0.5);
    expect("mean_reciprocal_rank", mean_reciprocal_rank(q, p.colwise().reverse()), 0.5);
    expect("mean_reciprocal_rank by id", mean_reciprocal_rank(q, p, items, answers), 1);
  }
  {
    // A result made earlier, row-major and strided arguments, lists of ids and weights.
    const Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> wide =
        Matrix::Identity(2, 5);
    const std::vector<std::int64_t> same{7, 7};
    const Eigen::VectorXd weights = Eigen::VectorXd::Constant(2, 0.5);
    SoftmaxOptions options;
    options.pos_ids = same;
    options.weights = weights;
    auto r = info_nce_loss_grad(wide.leftCols(3), p, one);
    info_nce_loss_grad(wide.leftCols(3), p, one, options, r, workspace);
    expect("info_nce_loss_grad of duplicates", r.loss, 0.0);
    expect("info_nce_loss_grad of duplicates dQ", r.dQ.norm(), 0.0);
  }
  {
    // More rows and columns than one tile of any kernel, so that the packed path runs too: every
    // query's own positive and nothing else agrees with it.
    const Eigen::Index size = 300;
    const Matrix many = Matrix::Identity(size, size);
    const auto r = clip_loss_grad(many, many, one, dot);
    const double others = static_cast<double>(size - 1);
    expect("clip_loss_grad of many, loss", r.loss, std::log1p(others / e));
    expect("clip_loss_grad of many, dQ", r.dQ(size - 1, 0) * static_cast<double>(size),
           1 / (e + others));
  }
#if __cplusplus >= 202002L
  expect("info_nce_loss with designated initialisers",
         info_nce_loss(q, p, one, {.similarity = Similarity::dot}), row);
#endif
}

}  // namespace every_loss

int main() {
  every_loss::check<float>();
#ifndef FLOAT_ONLY
  every_loss::check<double>();
#endif
  return every_loss::failures == 0 ? 0 : 1;
}
