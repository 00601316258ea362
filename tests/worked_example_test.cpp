// The example that is worked by hand: similarities [[.8, .2], [.4, .6]] at temperature .5, so that
// the logits are [[1.6, .4], [.8, 1.2]]. Every number is given to its last digit but a half.
#include <contrastive/contrastive.hpp>

#include "support/catch.hpp"

using namespace contrastive;

namespace {

constexpr double three_digits = 0.5e-3;
constexpr double four_digits = 0.5e-4;

Eigen::Matrix2d logits() {
  return (Eigen::Matrix2d() << 1.6, .4, .8, 1.2).finished();
}

/// Q = I and P = C^T: the similarities are C, and dP^T is the gradient with respect to them.
const Eigen::Matrix2d queries = Eigen::Matrix2d::Identity();
const Eigen::Matrix2d positives = (Eigen::Matrix2d() << .8, .4, .2, .6).finished();

SoftmaxOptions dot_products() {
  SoftmaxOptions options;
  options.similarity = Similarity::dot;
  return options;
}

bool is_near(double got, double expected, double tolerance) {
  return std::abs(got - expected) <= tolerance;
}

/// Loss of one row: the loss with all weight on it.
double row_loss(const Eigen::Matrix2d& s, Eigen::Index i) {
  const Eigen::VectorXd weights = Eigen::VectorXd::Unit(2, i);
  SoftmaxOptions options;
  options.weights = weights;
  return info_nce_logits_loss(s, options);
}

}  // namespace

TEST_CASE("worked example: InfoNCE", "[worked]") {
  CHECK(is_near(row_loss(logits(), 0), .263, three_digits));
  CHECK(is_near(row_loss(logits(), 1), .513, three_digits));
  CHECK(is_near(info_nce_logits_loss(logits()), .388, three_digits));

  const auto [loss, dQ, dP] =
      info_nce_loss_grad(queries, positives, Temperature{0.5}, dot_products());
  CHECK(is_near(loss, .388, three_digits));
  // B tau = 1, so that the gradient with respect to the similarities is A - I.
  const Eigen::Matrix2d G = dP.transpose();
  CHECK(is_near(G(0, 0), -.231, three_digits));
  CHECK(is_near(G(0, 1), .231, three_digits));
  CHECK(is_near(G(1, 0), .401, three_digits));
  CHECK(is_near(G(1, 1), -.401, three_digits));
  CHECK(is_near(1 + G(0, 0), .769, three_digits));  // the probabilities of the positives
  CHECK(is_near(1 + G(1, 1), .599, three_digits));
  CHECK(is_near(G.row(0).sum(), 0, 1e-15));
  CHECK(is_near(G.row(1).sum(), 0, 1e-15));
  CHECK(dQ.isApprox(G * positives, 1e-14));
}

TEST_CASE("worked example: the columns and the symmetric loss", "[worked]") {
  const Eigen::Matrix2d columns = logits().transpose();
  CHECK(is_near(row_loss(columns, 0), .371, three_digits));
  CHECK(is_near(row_loss(columns, 1), .371, three_digits));
  CHECK(is_near(clip_logits_loss(logits()), .380, three_digits));

  const auto [row_mean, row_G] = info_nce_logits_loss_grad(logits());
  const auto [column_mean, column_G] = info_nce_logits_loss_grad(columns);
  const auto [loss, G] = clip_logits_loss_grad(logits());
  CHECK(is_near(loss, (row_mean + column_mean) / 2, 1e-15));
  CHECK(G.isApprox((row_G + column_G.transpose()) / 2, 1e-14));
  for (Eigen::Index i = 0; i < 2; ++i) {
    CHECK(is_near(row_G.row(i).sum(), 0, 1e-15));
    CHECK(is_near(column_G.row(i).sum(), 0, 1e-15));
    CHECK(std::abs(G.col(i).sum()) > 1e-3);  // of the two together columns do not
  }
  // The rows of G do here, as both columns lose alike; in general they do not either.
  const Eigen::Matrix2d other = (Eigen::Matrix2d() << 1.6, .4, .8, 2.2).finished();
  CHECK(std::abs(clip_logits_loss_grad(other).dS.row(0).sum()) > 1e-3);
}

TEST_CASE("worked example: the derivative by the log of the scale", "[worked]") {
  const auto [loss, dQ, dP, d_log_scale] =
      clip_loss_grad(queries, positives, LogScale{std::log(2.0)}, dot_products());
  CHECK(is_near(loss, .380, three_digits));
  CHECK(is_near(d_log_scale, -.234, three_digits));

  // Its four terms, sum_j G_ij s_ij for each row and each column, each the derivative of one loss.
  const auto term = [](const Eigen::Matrix2d& p, Eigen::Index i) {
    const Eigen::VectorXd weights = Eigen::VectorXd::Unit(2, i);
    SoftmaxOptions options = dot_products();
    options.weights = weights;
    return info_nce_loss_grad(queries, p, LogScale{std::log(2.0)}, options).d_log_scale;
  };
  CHECK(is_near(term(positives, 0), -.2778, four_digits));
  CHECK(is_near(term(positives, 1), -.1605, four_digits));
  CHECK(is_near(term(positives.transpose(), 0), -.2480, four_digits));
  CHECK(is_near(term(positives.transpose(), 1), -.2480, four_digits));
}
