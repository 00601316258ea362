// Lists of ids and weights are views of whatever the caller has.
#include <array>
#include <contrastive/contrastive.hpp>
#include <limits>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"

using namespace contrastive;

namespace {

using Ids = Eigen::Matrix<std::int64_t, Eigen::Dynamic, 1>;
using IdTable = Eigen::Matrix<std::int64_t, Eigen::Dynamic, Eigen::Dynamic>;

double loss_with(const List<std::int64_t>& ids, const List<double>& weights) {
  contrastive_tests::Random random(9);
  const Eigen::MatrixXd Q = random.normal_matrix(4, 3).cast<double>();
  const Eigen::MatrixXd P = random.normal_matrix(4, 3).cast<double>();
  SoftmaxOptions options;
  options.pos_ids = ids;
  options.weights = weights;
  return info_nce_loss(Q, P, Temperature{0.5}, options);
}

}  // namespace

TEST_CASE("lists: every kind of container gives the same", "[lists]") {
  const std::vector<std::int64_t> ids = {1, 2, 1, 3};
  const std::vector<double> weights = {1, 0.5, 2, 3};
  const double expected = loss_with(ids, weights);
  CHECK(expected != loss_with({}, weights));
  CHECK(expected != loss_with(ids, {}));

  const std::array<std::int64_t, 4> array = {1, 2, 1, 3};
  CHECK(loss_with(array, weights) == expected);

  const Ids vector = Eigen::Map<const Ids>(ids.data(), 4);
  CHECK(loss_with(vector, weights) == expected);

  Ids longer(6);
  longer << 9, 1, 2, 1, 3, 9;
  CHECK(loss_with(longer.segment(1, 4), weights) == expected);

  IdTable table = IdTable::Constant(3, 4, 9);
  table.row(1) << 1, 2, 1, 3;  // its elements lie 3 apart
  CHECK(loss_with(table.row(1), weights) == expected);
  table = IdTable::Constant(4, 3, 9);
  table.col(2) << 1, 2, 1, 3;
  CHECK(loss_with(table.col(2), weights) == expected);

  const std::vector<std::int64_t> spread = {1, 0, 2, 0, 1, 0, 3, 0};
  CHECK(loss_with(Eigen::Map<const Ids, 0, Eigen::InnerStride<2>>(spread.data(), 4), weights)
        == expected);

  Eigen::MatrixXd weight_table = Eigen::MatrixXd::Constant(2, 4, -1);
  weight_table.row(0) << 1, 0.5, 2, 3;
  CHECK(loss_with(ids, weight_table.row(0)) == expected);
  const Eigen::Vector4d fixed(1, 0.5, 2, 3);
  CHECK(loss_with(ids, fixed) == expected);
}

TEST_CASE("lists: an empty one is none", "[lists]") {
  const double expected = loss_with({}, {});
  CHECK(loss_with(std::vector<std::int64_t>{}, std::vector<double>{}) == expected);
  CHECK(loss_with(Ids(), Eigen::VectorXd()) == expected);
}

TEST_CASE("lists: of priors, strided", "[lists]") {
  contrastive_tests::Random random(12);
  const Eigen::MatrixXd Q = random.normal_matrix(4, 3).cast<double>();
  const Eigen::MatrixXd P = random.normal_matrix(4, 3).cast<double>();
  Eigen::MatrixXd table = Eigen::MatrixXd::Constant(2, 4, 7);
  table.row(0) << -1, -0.5, -2, -3;
  const std::vector<double> prior = {-1, -0.5, -2, -3};
  SoftmaxOptions options;
  options.log_prior = prior;
  const double expected = clip_loss(Q, P, Temperature{0.5}, options);
  options.log_prior = table.row(0);
  CHECK(clip_loss(Q, P, Temperature{0.5}, options) == expected);
  CHECK(clip_loss(Q, P, Temperature{0.5}) != expected);
}

TEST_CASE("lists: of offsets, strided", "[lists]") {
  contrastive_tests::Random random(10);
  const Eigen::MatrixXd Q = random.normal_matrix(3, 3).cast<double>();
  const Eigen::MatrixXd N = random.normal_matrix(5, 3).cast<double>();
  IdTable table = IdTable::Constant(2, 4, 9);
  table.row(0) << 0, 2, 2, 5;
  const std::vector<std::int64_t> offsets = {0, 2, 2, 5};
  SoftmaxOptions options;
  options.scope = NegativeScope::own;
  options.neg_offsets = offsets;
  const double expected = hard_negative_loss(Q, Q, N, Temperature{0.5}, options);
  options.neg_offsets = table.row(0);
  CHECK(hard_negative_loss(Q, Q, N, Temperature{0.5}, options) == expected);
}

TEST_CASE("lists: labels of every integer type and container", "[lists]") {
  contrastive_tests::Random random(11);
  const Eigen::MatrixXd Z = random.normal_matrix(4, 3).cast<double>();
  const auto loss = [&](const Labels& labels) { return sup_con_loss(Z, labels, Temperature{0.5}); };
  const double expected = loss(std::vector<int>{1, 2, 1, 2});
  CHECK(expected != loss(std::vector<int>{1, 1, 2, 2}));
  CHECK(loss(std::vector<short>{-1, 2, -1, 2}) == expected);
  CHECK(loss(std::vector<unsigned char>{255, 0, 255, 0}) == expected);
  CHECK(loss(std::vector<signed char>{-128, 127, -128, 127}) == expected);
  CHECK(loss(std::vector<unsigned>{4294967295U, 2147483648U, 4294967295U, 2147483648U})
        == expected);
  CHECK(loss(std::vector<unsigned long long>{~0ULL, 1ULL << 63U, ~0ULL, 1ULL << 63U}) == expected);
  CHECK(loss(std::vector<std::int64_t>{
            std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(),
            std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()})
        == expected);
  CHECK(loss(std::array<bool, 4>{true, false, true, false}) == expected);
  CHECK(loss(std::string("abab")) == expected);
  CHECK(loss(Eigen::Vector4i(7, 8, 7, 8)) == expected);
  CHECK(loss(Eigen::RowVector4i(7, 8, 7, 8)) == expected);
  Eigen::MatrixXi table = Eigen::MatrixXi::Constant(3, 4, 9);
  table.row(1) << 1, 2, 1, 2;
  CHECK(loss(table.row(1)) == expected);
  const std::vector<std::int16_t> spread = {1, 0, 0, 2, 0, 0, 1, 0, 0, 2, 0, 0};
  using Shorts = Eigen::Matrix<std::int16_t, Eigen::Dynamic, 1>;
  CHECK(loss(Eigen::Map<const Shorts, 0, Eigen::InnerStride<3>>(spread.data(), 4)) == expected);
}
