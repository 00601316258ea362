// Sentence-BERT's objective, a classifier over pairs.
#include <algorithm>
#include <array>
#include <cmath>
#include <contrastive/contrastive.hpp>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "support/build.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/differences.hpp"
#include "support/random.hpp"

using namespace contrastive;
using contrastive_tests::central_difference;
using contrastive_tests::largest;
using contrastive_tests::Matrix;
using contrastive_tests::Random;
using contrastive_tests::Real;
using contrastive_tests::relative_error;
using contrastive_tests::same_bits;
using Eigen::Index;
using Eigen::MatrixXd;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
using MatrixOf = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
template <class T>
using RowMajorOf = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using VectorOf = Eigen::Matrix<T, Eigen::Dynamic, 1>;

struct Pairs {
  Matrix u, v, w, b;  // b is a column
  std::vector<int> labels;
};

struct Gradients {
  Real loss = 0;
  Matrix du, dv, dw, db;
};

/// Pairs of which some entries are equal, and logits of up to about `scale`.
Pairs random_pairs(Index batch, Index d, Index classes, Random& random, double scale = 2) {
  Pairs pairs{random.normal_matrix(batch, d),
              random.normal_matrix(batch, d),
              random.normal_matrix(classes, 3 * d),
              random.normal_matrix(classes, 1),
              {}};
  // A power of two, so that the numbers stay exact in float.
  pairs.w *= std::exp2(std::round(std::log2(scale / std::sqrt(3 * static_cast<double>(d)))));
  for (Index i = 0; i < batch; ++i) {
    pairs.labels.push_back(static_cast<int>(random.integer(classes)));
    if (random.integer(3) == 0) pairs.v(i, random.integer(d)) = 0;
    const Index k = random.integer(d);
    if (random.integer(3) == 0) pairs.v(i, k) = pairs.u(i, k);
  }
  return pairs;
}

/// The definition, entry by entry.
Gradients oracle(const Pairs& pairs) {
  const auto& [u, v, w, b, labels] = pairs;
  const Index batch = u.rows(), d = u.cols(), classes = w.rows();
  Gradients g{0, Matrix::Zero(batch, d), Matrix::Zero(batch, d), Matrix::Zero(classes, 3 * d),
              Matrix::Zero(classes, 1)};
  for (Index i = 0; i < batch; ++i) {
    const Index y = labels[static_cast<std::size_t>(i)];
    std::vector<Real> logits;
    for (Index c = 0; c < classes; ++c) {
      Real logit = b(c, 0);
      for (Index k = 0; k < d; ++k)
        logit += w(c, k) * u(i, k) + w(c, d + k) * v(i, k)
                 + w(c, 2 * d + k) * std::abs(u(i, k) - v(i, k));
      logits.push_back(logit);
    }
    Real others = 0;  // relative to the label's
    for (Index c = 0; c < classes; ++c)
      if (c != y)
        others +=
            std::exp(logits[static_cast<std::size_t>(c)] - logits[static_cast<std::size_t>(y)]);
    g.loss += std::log1p(others) / static_cast<Real>(batch);
    for (Index c = 0; c < classes; ++c) {
      const Real e =
          std::exp(logits[static_cast<std::size_t>(c)] - logits[static_cast<std::size_t>(y)]);
      const Real gradient = (c == y ? -others : e) / (1 + others) / static_cast<Real>(batch);
      g.db(c, 0) += gradient;
      for (Index k = 0; k < d; ++k) {
        const Real difference = u(i, k) - v(i, k);
        const Real sign = difference > 0 ? 1 : difference < 0 ? -1 : 0;
        g.dw(c, k) += gradient * u(i, k);
        g.dw(c, d + k) += gradient * v(i, k);
        g.dw(c, 2 * d + k) += gradient * std::abs(difference);
        g.du(i, k) += gradient * (w(c, k) + sign * w(c, 2 * d + k));
        g.dv(i, k) += gradient * (w(c, d + k) - sign * w(c, 2 * d + k));
      }
    }
  }
  return g;
}

template <class T, class Result>
Gradients widened(const Result& r) {
  return {static_cast<Real>(r.loss), r.dU.template cast<Real>(), r.dV.template cast<Real>(),
          r.dW.template cast<Real>(), r.db.template cast<Real>()};
}

template <class T>
Gradients evaluate(const Pairs& pairs) {
  const MatrixOf<T> u = pairs.u.cast<T>(), v = pairs.v.cast<T>(), w = pairs.w.cast<T>();
  const VectorOf<T> b = pairs.b.cast<T>();
  return widened<T>(pair_classification_loss_grad(u, v, pairs.labels, w, b));
}

Real loss_of(const Pairs& pairs) {
  const VectorOf<Real> b = pairs.b;
  return pair_classification_loss(pairs.u, pairs.v, pairs.labels, pairs.w, b);
}

/// The gradients of float are rounded once, from double: half an eps of each entry. In double and
/// long double a logit of up to 10 is right to 10 eps or so, a probability to as much, and sums of
/// up to 1000 rows to some more.
template <class T>
Real tolerance() {
  if (std::is_same_v<T, float>) return 6e-8L;
  return 1000 * static_cast<Real>(std::numeric_limits<T>::epsilon());
}

void check_close(const Gradients& got, const Gradients& expected, Real tolerance) {
  CHECK(relative_error(got.loss, expected.loss) <= tolerance);
  // The resolution: what cancels to zero here may be rounding there.
  const auto close = [&](const Matrix& a, const Matrix& b) {
    REQUIRE((a.rows() == b.rows() && a.cols() == b.cols()));
    CHECK(largest(Matrix(a - b)) <= tolerance * largest(b));
  };
  close(got.du, expected.du);
  close(got.dv, expected.dv);
  close(got.dw, expected.dw);
  close(got.db, expected.db);
}

bool same(const Gradients& a, const Gradients& b) {
  return same_bits(a.loss, b.loss) && same_bits(a.du, b.du) && same_bits(a.dv, b.dv)
         && same_bits(a.dw, b.dw) && same_bits(a.db, b.db);
}

}  // namespace

TEMPLATE_TEST_CASE("pair classification: by hand", "[pairs]", float, double, long double) {
  // x = (1, 3, 2), logits 1 and 2, and the right class is the first. p is the other's probability.
  MatrixOf<TestType> U(1, 1), V(1, 1), W(2, 3);
  U << 1;
  V << 3;
  W << 1, 0, 0, 0, 0, 1;
  const VectorOf<TestType> b = VectorOf<TestType>::Zero(2);
  const std::vector<int> labels = {0};
  const double e = std::exp(1.0), p = e / (1 + e);
  const auto [loss, dU, dV, dW, db] = pair_classification_loss_grad(U, V, labels, W, b);
  const auto is = [](TestType got, double expected) {
    CHECK(std::abs(static_cast<double>(got) - expected) <= 3e-7);
  };
  is(loss, std::log(1 + e));
  is(dU(0, 0), -2 * p);  // -p by W's first column, and -p as u < v
  is(dV(0, 0), p);
  is(dW(0, 0), -p);
  is(dW(0, 1), -3 * p);
  is(dW(0, 2), -2 * p);
  is(dW(1, 0), p);
  is(dW(1, 1), 3 * p);
  is(dW(1, 2), 2 * p);
  is(db(0), -p);
  is(db(1), p);
}

TEMPLATE_TEST_CASE("pair classification: the definition", "[pairs]", float, double, long double) {
  Random random(501);
  for (const auto& [batch, d, classes] : std::vector<std::array<Index, 3>>{{1, 1, 2},
                                                                           {1, 5, 3},
                                                                           {2, 3, 1},
                                                                           {7, 4, 2},
                                                                           {16, 33, 3},
                                                                           {63, 8, 5},
                                                                           {64, 7, 3},
                                                                           {129, 2, 17},
                                                                           {1100, 3, 3}}) {
    CAPTURE(batch, d, classes);
    const Pairs pairs = random_pairs(batch, d, classes, random);
    check_close(evaluate<TestType>(pairs), oracle(pairs), tolerance<TestType>());
  }
}

TEST_CASE("pair classification: more weights than parts can have sums of", "[pairs]") {
  // 1000 classes of 1500 numbers: 2 parts for 140 rows, and 1 beyond 4 million.
  Random random(502);
  for (const Index classes : {1000, 3000}) {
    const Pairs pairs = random_pairs(140, 500, classes, random);
    check_close(evaluate<double>(pairs), oracle(pairs), tolerance<double>());
  }
}

TEST_CASE("pair classification: differences", "[pairs]") {
  // As for the other losses: step eps^(1/5), tolerance eps^(4/5) times the size of the value and of
  // its fifth derivative, which with logits of about 2 in directions of length 1 are of order 10.
  Random random(503);
  const Real eps = std::numeric_limits<Real>::epsilon();
  const Real h = std::pow(eps, Real(0.2)), allowed = 2000 * std::pow(eps, Real(0.8));
  for (const Index classes : {2, 3, 6}) {
    Pairs pairs = random_pairs(5, 4, classes, random);
    pairs.v = random.normal_matrix(5, 4);  // no kinks within reach
    REQUIRE((pairs.u - pairs.v).cwiseAbs().minCoeff() > 4 * h);
    const Gradients g = evaluate<Real>(pairs);
    const auto check = [&](Matrix Pairs::*argument, const Matrix& gradient) {
      Matrix direction = random.normal_matrix(gradient.rows(), gradient.cols());
      direction /= direction.norm();
      const auto value = [&](Real step) {
        Pairs moved = pairs;
        moved.*argument += step * direction;
        return loss_of(moved);
      };
      const Real expected = central_difference(value, h);
      CHECK(std::abs(gradient.cwiseProduct(direction).sum() - expected) <= allowed);
    };
    check(&Pairs::u, g.du);
    check(&Pairs::v, g.dv);
    check(&Pairs::w, g.dw);
    check(&Pairs::b, g.db);
  }
}

TEST_CASE("pair classification: identities", "[pairs]") {
  Random random(504);
  for (int repetition = 0; repetition < 10; ++repetition) {
    const Index batch = 1 + random.integer(90), d = 1 + random.integer(9);
    const Index classes = 2 + random.integer(4);
    const Pairs pairs = random_pairs(batch, d, classes, random);
    const Gradients g = evaluate<double>(pairs);
    const Real small = tolerance<double>();
    // Probabilities sum to 1, so every row of G sums to 0.
    CHECK(std::abs(g.db.sum()) <= small * largest(g.db));
    CHECK(largest(Matrix(g.dw.colwise().sum())) <= small * largest(g.dw));
    // Without the biases logits are homogeneous in the embeddings and in the weights.
    const Matrix by_weights = g.dw.cwiseProduct(pairs.w);
    const Matrix by_pairs = g.du.cwiseProduct(pairs.u) + g.dv.cwiseProduct(pairs.v);
    CHECK(std::abs(by_weights.sum() - by_pairs.sum()) <= small * by_weights.cwiseAbs().sum());

    // u and v change places where their weights do.
    Pairs swapped = pairs;
    std::swap(swapped.u, swapped.v);
    swapped.w.leftCols(d) = pairs.w.middleCols(d, d);
    swapped.w.middleCols(d, d) = pairs.w.leftCols(d);
    Gradients s = evaluate<double>(swapped);
    std::swap(s.du, s.dv);
    Matrix dw = s.dw;
    dw.leftCols(d) = s.dw.middleCols(d, d);
    dw.middleCols(d, d) = s.dw.leftCols(d);
    s.dw = dw;
    check_close(s, g, small);

    // The pairs in another order; one number on all biases.
    Pairs reversed = pairs;
    reversed.u = pairs.u.colwise().reverse();
    reversed.v = pairs.v.colwise().reverse();
    std::reverse(reversed.labels.begin(), reversed.labels.end());
    reversed.b.array() += 0.5;
    Gradients r = evaluate<double>(reversed);
    r.du = r.du.colwise().reverse().eval();
    r.dv = r.dv.colwise().reverse().eval();
    check_close(r, g, small);
  }
}

TEMPLATE_TEST_CASE("pair classification: small losses keep their digits", "[pairs]", float, double,
                   long double) {
  // Logits 46 and 0: a loss of e^-46 = 1e-20, and gradients as small.
  Pairs pairs{contrastive_tests::matrix({{1, 2}}),
              contrastive_tests::matrix({{0, 1}}),
              Matrix::Zero(2, 6),
              Matrix::Zero(2, 1),
              {0}};
  pairs.w(0, 0) = 46;
  const Gradients expected = oracle(pairs);
  REQUIRE(expected.loss < 1.1e-20L);
  check_close(evaluate<TestType>(pairs), expected, tolerance<TestType>());
  // And the other way round, a loss of 46.
  pairs.labels = {1};
  check_close(evaluate<TestType>(pairs), oracle(pairs), tolerance<TestType>());
}

TEST_CASE("pair classification: at the kink", "[pairs]") {
  // u = v in entry 1. The two one-sided derivatives lie on both sides of what is returned, which is
  // their middle, and the derivative along u and v together is smooth.
  Random random(505);
  Pairs pairs = random_pairs(1, 3, 3, random);
  pairs.v = random.normal_matrix(1, 3);
  pairs.v(0, 1) = pairs.u(0, 1);
  const Gradients g = evaluate<Real>(pairs);
  const auto one_sided = [&](Matrix Pairs::*argument, Real step) {
    Pairs moved = pairs;
    (moved.*argument)(0, 1) += step;
    return (loss_of(moved) - loss_of(pairs)) / step;
  };
  const Real h = 1e-9L;  // truncation h, rounding 1e-19 / h
  for (const auto& [argument, gradient] :
       {std::pair{&Pairs::u, g.du(0, 1)}, std::pair{&Pairs::v, g.dv(0, 1)}}) {
    const Real above = one_sided(argument, h), below = one_sided(argument, -h);
    REQUIRE(std::abs(above - below) > 0.01L);
    CHECK(std::min(above, below) < gradient);
    CHECK(gradient < std::max(above, below));
    CHECK(std::abs((above + below) / 2 - gradient) <= 1e-8L);
  }
  // Two pairs that are equal throughout: what is left are the weights of u and of v.
  pairs.v = pairs.u;
  const Gradients equal = evaluate<Real>(pairs);
  const Matrix from_biases = equal.db;  // B = 1: G itself
  CHECK(largest(Matrix(equal.du - from_biases.transpose() * pairs.w.leftCols(3))) <= 1e-18L);
  CHECK(largest(Matrix(equal.dv - from_biases.transpose() * pairs.w.middleCols(3, 3))) <= 1e-18L);
  CHECK(largest(Matrix(equal.dw.rightCols(3))) == 0);
}

TEST_CASE("pair classification: one class", "[pairs]") {
  Random random(506);
  const Gradients g = evaluate<double>(random_pairs(4, 3, 1, random));
  CHECK(g.loss == 0);
  CHECK((largest(g.du) == 0 && largest(g.dv) == 0 && largest(g.dw) == 0 && largest(g.db) == 0));
}

TEST_CASE("pair classification: labels of any integer type", "[pairs]") {
  Random random(507);
  const Pairs pairs = random_pairs(4, 3, 3, random);
  const MatrixXd u = pairs.u.cast<double>(), v = pairs.v.cast<double>(), w = pairs.w.cast<double>();
  const Eigen::VectorXd b = pairs.b.cast<double>();
  const auto loss = [&](const Labels& labels) {
    return pair_classification_loss(u, v, labels, w, b);
  };
  const double expected = loss(std::vector<int>{2, 0, 1, 2});
  CHECK(expected != loss(std::vector<int>{2, 0, 1, 1}));
  CHECK(loss(std::vector<std::int64_t>{2, 0, 1, 2}) == expected);
  CHECK(loss(std::vector<unsigned char>{2, 0, 1, 2}) == expected);
  CHECK(loss(std::vector<std::uint64_t>{2, 0, 1, 2}) == expected);
  CHECK(loss(std::vector<short>{2, 0, 1, 2}) == expected);
  CHECK(loss(std::array<long long, 4>{2, 0, 1, 2}) == expected);
  const Eigen::Vector4i fixed(2, 0, 1, 2);
  CHECK(loss(fixed) == expected);
  const Eigen::VectorXi dynamic = fixed;
  CHECK(loss(dynamic) == expected);
  Eigen::MatrixXi table = Eigen::MatrixXi::Constant(3, 4, 9);
  table.row(1) = fixed.transpose();
  CHECK(loss(table.row(1)) == expected);
  const std::vector<int> spread = {2, 9, 0, 9, 1, 9, 2, 9};
  CHECK(loss(Eigen::Map<const Eigen::VectorXi, 0, Eigen::InnerStride<2>>(spread.data(), 4))
        == expected);
}

TEST_CASE("pair classification: labels as a view", "[pairs]") {
  CHECK((Labels().empty() && Labels().size() == 0));
  const std::vector<signed char> list = {-3, 0, 100};
  const Labels labels = list;
  CHECK((labels.size() == 3 && !labels.empty()));
  CHECK((labels[0] == -3 && labels[1] == 0 && labels[2] == 100));
  const Labels copy = labels;
  CHECK(copy[2] == 100);
}

TEST_CASE("pair classification: forms of the call", "[pairs]") {
  Random random(508);
  const Pairs pairs = random_pairs(70, 5, 3, random);
  const MatrixXd u = pairs.u.cast<double>(), v = pairs.v.cast<double>(), w = pairs.w.cast<double>();
  const Eigen::VectorXd b = pairs.b.cast<double>();
  const std::vector<int>& y = pairs.labels;
  const auto r = pair_classification_loss_grad(u, v, y, w, b);
  STATIC_REQUIRE(std::is_same_v<decltype(r.db), Eigen::VectorXd>);
  STATIC_REQUIRE(std::is_same_v<decltype(r.dU), MatrixXd>);
  const Gradients expected = widened<double>(r);
  CHECK(pair_classification_loss(u, v, y, w, b) == r.loss);

  Workspace workspace;
  PairClassificationGradient<MatrixXd, MatrixXd, MatrixXd, Eigen::VectorXd> into;
  for (int repetition = 0; repetition < 2; ++repetition) {
    pair_classification_loss_grad(u, v, y, w, b, into, workspace);
    CHECK(same(widened<double>(into), expected));
    CHECK(pair_classification_loss(u, v, y, w, b, workspace) == r.loss);
    // Another shape and loss in between.
    (void)pair_classification_loss(u.topRows(2), v.topRows(2), std::vector<int>{0, 2}, w, b,
                                   workspace);
    (void)clip_loss_grad(u, v, Temperature{0.1}, {}, workspace);
  }

  // A row for b, other orders and strides, and expressions: same bits, own types.
  const RowMajorOf<double> u_rows = u, w_rows = w;
  const Eigen::RowVectorXd b_row = b.transpose();
  const auto other = pair_classification_loss_grad(u_rows, v, y, w_rows, b_row);
  STATIC_REQUIRE(std::is_same_v<decltype(other.db), Eigen::RowVectorXd>);
  STATIC_REQUIRE(std::is_same_v<decltype(other.dU), RowMajorOf<double>>);
  STATIC_REQUIRE(std::is_same_v<decltype(other.dV), MatrixXd>);
  CHECK((other.loss == r.loss && other.dU == r.dU && other.dV == r.dV && other.dW == r.dW));
  CHECK(other.db == r.db.transpose());

  MatrixXd table(3, 16);
  table << w, b;
  const auto blocks =
      pair_classification_loss_grad(1.0 * u, v.topRows(70), y, table.leftCols(15), table.col(15));
  CHECK(same(widened<double>(blocks), expected));
  const auto strided =
      pair_classification_loss_grad(u,
                                    Eigen::Map<const MatrixXd, 0, Eigen::OuterStride<>>(
                                        v.data(), 70, 5, Eigen::OuterStride<>(70)),
                                    y, w, table.transpose().row(15));
  CHECK(strided.db == r.db.transpose());
  CHECK(strided.loss == r.loss);
}

#ifdef _OPENMP
TEST_CASE("pair classification: any number of threads gives the same bits", "[pairs]") {
  Random random(509);
  const int before = omp_get_max_threads();
  for (const Index batch : {130, 700, 2000}) {
    const Pairs pairs = random_pairs(batch, 300, 3, random);
    omp_set_num_threads(1);
    const Gradients expected = evaluate<float>(pairs);
    for (const int count : {2, 3, 8}) {
      omp_set_num_threads(count);
      CHECK(same(evaluate<float>(pairs), expected));
    }
  }
  omp_set_num_threads(before);
}
#endif

TEST_CASE("pair classification: what it refuses, before anything is written", "[pairs]") {
  const MatrixXd u = MatrixXd::Ones(2, 2), v = MatrixXd::Zero(2, 2), w = MatrixXd::Ones(3, 6);
  const Eigen::VectorXd b = Eigen::VectorXd::Ones(3);
  const std::vector<int> y = {0, 2};
  const auto throws = [](const char* kind, const MatrixXd& U, const MatrixXd& V,
                         const std::vector<int>& labels, const MatrixXd& W,
                         const Eigen::VectorXd& biases, const std::string& message) {
    PairClassificationGradient<MatrixXd, MatrixXd, MatrixXd, Eigen::VectorXd> result;
    result.loss = -7;
    result.dU = MatrixXd::Constant(1, 1, -7);
    result.db = Eigen::VectorXd::Constant(1, -7);
    Workspace workspace;
    const auto message_of = [&](const auto& call) -> std::string {
      try {
        call();
      } catch (const std::invalid_argument& error) {
        return std::string("invalid_argument ") + error.what();
      } catch (const std::overflow_error& error) {
        return std::string("overflow_error ") + error.what();
      }
      return "";
    };
    CHECK(message_of([&] { (void)pair_classification_loss(U, V, labels, W, biases); })
          == std::string(kind) + " pair_classification_loss: " + message);
    CHECK(message_of([&] { (void)pair_classification_loss_grad(U, V, labels, W, biases); })
          == std::string(kind) + " pair_classification_loss_grad: " + message);
    CHECK(message_of(
              [&] { pair_classification_loss_grad(U, V, labels, W, biases, result, workspace); })
          == std::string(kind) + " pair_classification_loss_grad: " + message);
    CHECK((result.loss == -7 && result.dU.size() == 1 && result.dU(0, 0) == -7));
    CHECK((result.dW.size() == 0 && result.db.size() == 1 && result.db(0) == -7));
  };
  const char* refused = "invalid_argument";
  throws(refused, u, MatrixXd::Zero(3, 2), y, w, b,
         "U is 2 x 2 but V is 3 x 2, they must have the same shape");
  throws(refused, MatrixXd(0, 2), MatrixXd(0, 2), {}, w, b,
         "U is 0 x 2, it must have at least one row and one column");
  throws(refused, MatrixXd(2, 0), MatrixXd(2, 0), y, MatrixXd(3, 0), b,
         "U is 2 x 0, it must have at least one row and one column");
  throws(refused, u, v, y, MatrixXd(0, 6), Eigen::VectorXd(0),
         "W is 0 x 6, it must have at least one row and one column");
  throws(refused, u, v, y, MatrixXd::Ones(3, 4), b,
         "W is 3 x 4 but U is 2 x 2, W must have 3 * 2 columns");
  throws(refused, u, v, y, w, Eigen::VectorXd::Ones(2),
         "W is 3 x 6 but b is 2 x 1, b must have 3 entries");
  throws(refused, u, v, {0}, w, b, "labels has 1 entries, but U has 2");
  throws(refused, u, v, {}, w, b, "labels has 0 entries, but U has 2");
  throws(refused, u, v, {0, 3}, w, b, "labels[1] is 3, it must be from 0 to 2");
  throws(refused, u, v, {-1, 3}, w, b, "labels[0] is -1, it must be from 0 to 2");
  for (const double bad : {not_a_number, infinity}) {
    const std::string what = bad > 0 ? "inf" : "nan";
    MatrixXd u_bad = u, v_bad = v, w_bad = w;
    Eigen::VectorXd b_bad = b;
    u_bad(1, 0) = v_bad(0, 1) = w_bad(2, 5) = b_bad(1) = bad;
    throws(refused, u_bad, v_bad, y, w_bad, b_bad, "U has " + what + " at row 1, column 0");
    throws(refused, u, v_bad, y, w_bad, b_bad, "V has " + what + " at row 0, column 1");
    throws(refused, u, v, y, w_bad, b_bad, "W has " + what + " at row 2, column 5");
    throws(refused, u, v, y, w, b_bad, "b has " + what + " at row 1, column 0");
  }
  MatrixXd huge = u;
  huge(1, 1) = 1e308;
  throws("overflow_error", huge, v, y, w, b, "a logit of row 1 overflows the scalar type");
  // The difference alone overflows, and what would be inf * 0 is no number.
  throws("overflow_error", huge, MatrixXd(-huge), y, MatrixXd::Zero(3, 6), b,
         "a logit of row 1 overflows the scalar type");
  Eigen::VectorXd far = b;
  far(0) = 1e308;
  throws("overflow_error", u, v, y, w, far, "a logit of row 0 overflows the scalar type");

  // In float, though it computes in double.
  const Eigen::MatrixXf uf = Eigen::MatrixXf::Constant(1, 1, 1e30f), vf = uf;
  const Eigen::MatrixXf wf = Eigen::MatrixXf::Constant(2, 3, 1e9f);
  CHECK_THROWS_AS(pair_classification_loss(uf, vf, std::vector<int>{0}, wf, Eigen::Vector2f(0, 0)),
                  std::overflow_error);
}

TEST_CASE("pair classification: large logits that fit", "[pairs]") {
  Pairs pairs{contrastive_tests::matrix({{1e30}}),
              contrastive_tests::matrix({{1e30}}),
              contrastive_tests::matrix({{1, 1, 0}, {-1, 2, 5}, {-1, 0, 5}}),
              Matrix::Zero(3, 1),
              {2}};
  for (Matrix* m : {&pairs.u, &pairs.v}) *m = m->cast<float>().cast<Real>();
  const Gradients g = evaluate<float>(pairs);
  CHECK(relative_error(g.loss, 3 * pairs.u(0, 0)) <= 1e-7L);
  // All the probability is the first class's: G = (1, 0, -1), and du = W_0 - W_2.
  CHECK((g.db == contrastive_tests::matrix({{1}, {0}, {-1}})));
  CHECK((g.du(0, 0) == 2 && g.dv(0, 0) == 1));
  CHECK((g.dw.row(0) == -g.dw.row(2) && g.dw(0, 1) == pairs.v(0, 0)));
}
