// The finite differences for a user's own gradients.
#include <cmath>
#include <contrastive/contrastive.hpp>
#include <limits>
#include <string>

#include "support/catch.hpp"
#include "support/message.hpp"
#include "support/random.hpp"

using namespace contrastive;
using contrastive_tests::message_of;
using contrastive_tests::Random;
using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::MatrixXf;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// The values of f here are of about 1 to 10 and right to 2 eps; over steps of 2^-19 and more,
/// which extrapolation makes 10/3 of, that is 2e-9.
constexpr double rounding = 2e-9;

double sum_of_sines(const MatrixXd& x) {
  return x.array().sin().sum();
}

}  // namespace

TEST_CASE("check_gradient: a right gradient of a smooth function", "[check]") {
  Random random(401);
  const MatrixXd x = random.normal_matrix(4, 3).cast<double>();
  const MatrixXd gradient = x.array().cos();
  const GradientCheck c = check_gradient(sum_of_sines, x, gradient);
  CHECK(c.max_error > 0);
  CHECK(c.max_error <= rounding);
  CHECK(std::abs(c.analytic - gradient(c.row, c.col)) == 0);
  CHECK(std::abs(c.numeric - c.analytic) <= rounding);

  const auto [max_error, row, col, analytic, numeric] = check_gradient(sum_of_sines, x, gradient);
  CHECK((max_error == c.max_error && row == c.row && col == c.col));
  CHECK((analytic == c.analytic && numeric == c.numeric));
}

TEST_CASE("check_gradient: says where a gradient is worst, and by how much", "[check]") {
  Random random(402);
  const MatrixXd x = random.normal_matrix(4, 3).cast<double>();
  const MatrixXd right = x.array().cos();
  for (Index i = 0; i < 4; ++i)
    for (Index j = 0; j < 3; ++j) {
      MatrixXd wrong = right;
      wrong(i, j) += 0.01;
      wrong((i + 1) % 4, j) -= 0.002;
      const GradientCheck c = check_gradient(sum_of_sines, x, wrong);
      CHECK((c.row == i && c.col == j));
      CHECK(c.analytic == wrong(i, j));
      CHECK(std::abs(c.numeric - right(i, j)) <= rounding);
      const double size = std::max(wrong.cwiseAbs().maxCoeff(), right.cwiseAbs().maxCoeff());
      CHECK(std::abs(c.max_error - 0.01 / size) <= rounding);
    }
  CHECK(std::abs(check_gradient(sum_of_sines, x, 2 * right).max_error - 0.5) <= rounding);
  CHECK(std::abs(check_gradient(sum_of_sines, x, -right).max_error - 2) <= rounding);
  CHECK(std::abs(check_gradient(sum_of_sines, x, 0 * right).max_error - 1) <= rounding);
}

TEST_CASE("check_gradient: gradients that vanish", "[check]") {
  const MatrixXd x = MatrixXd::Ones(2, 2);
  const auto constant = [](const MatrixXd&) { return 3.0; };
  const GradientCheck c = check_gradient(constant, x, MatrixXd::Zero(2, 2));
  CHECK((c.max_error == 0 && c.row == 0 && c.col == 0 && c.analytic == 0 && c.numeric == 0));
  CHECK(check_gradient(constant, x, MatrixXd::Identity(2, 2)).max_error == 1);
}

TEST_CASE("check_gradient: the losses here, at scales up to 100", "[check]") {
  // Truncation is (h / tau)^4, 1e-13, though the fifth derivative is tau^-5. Gradients are smaller
  // than values here, by up to five times.
  Random random(403);
  const MatrixXd q = random.normal_matrix(4, 5).cast<double>();
  const MatrixXd p = random.normal_matrix(4, 5).cast<double>();
  for (const double tau : {1.0, 0.1, 0.01}) {
    const auto r = info_nce_loss_grad(q, p, Temperature{tau});
    const auto f = [&](const MatrixXd& x) { return info_nce_loss(x, p, Temperature{tau}); };
    CHECK(check_gradient(f, q, r.dQ).max_error <= 5 * rounding);
    const auto g = [&](const MatrixXd& x) { return info_nce_loss(q, x, Temperature{tau}); };
    CHECK(check_gradient(g, p, r.dP).max_error <= 5 * rounding);
  }
}

TEST_CASE("check_gradient: float, and float computed in double", "[check]") {
  Random random(404);
  const MatrixXf q = random.normal_matrix(4, 5).cast<float>();
  const MatrixXf p = random.normal_matrix(4, 5).cast<float>();
  const Temperature tau{0.2};
  const auto r = info_nce_loss_grad(q, p, tau);
  // As for double, with the eps of float and steps of 2^-8 and more: 1e-4, of slopes of about 0.2.
  const auto f = [&](const MatrixXf& x) { return info_nce_loss(x, p, tau); };
  CHECK(check_gradient(f, q, r.dQ).max_error <= 5e-4);
  // What is left is the rounding of x + h and x - h, which moves their middle by 2^-25, and that of
  // the gradient.
  const auto wide = [&](const MatrixXf& x) {
    return info_nce_loss(x.cast<double>(), p.cast<double>(), tau);
  };
  const auto exact = info_nce_loss_grad(q.cast<double>(), p.cast<double>(), tau);
  CHECK(check_gradient(wide, q, exact.dQ).max_error <= 1e-6);
}

TEST_CASE("check_gradient: long double", "[check]") {
  using Matrix = contrastive_tests::Matrix;
  Random random(405);
  const Matrix x = random.normal_matrix(3, 3);
  const Matrix gradient = x.array().cos();
  const auto f = [](const Matrix& m) { return m.array().sin().sum(); };
  CHECK(check_gradient(f, x, gradient).max_error <= 1e-11);  // 50 eps^(2/3), as for double
}

TEST_CASE("check_gradient: entries of very different size", "[check]") {
  // The steps are relative to the entries: the sum of log |x| has the gradient 1 / x.
  const auto f = [](const MatrixXd& x) { return x.array().abs().log().sum(); };
  for (const double size : {1e-200, 1e-6, 1.0, 1e6, 1e200}) {
    MatrixXd x(2, 2);
    x << 1, -2, 3, 0.5;
    x *= size;
    const MatrixXd gradient = x.cwiseInverse();
    // The value is up to 4 log(1e200) = 2000 times the largest slope times size.
    CHECK(check_gradient(f, x, gradient).max_error <= 2000 * rounding);
  }
  // A large entry among small ones, and one of zero: each has the step for its own size, or for
  // that of most.
  MatrixXd x = MatrixXd::Ones(1, 50), gradient = MatrixXd::Zero(1, 50);
  x(0, 17) = 1e6;
  gradient(0, 17) = 1e-6;
  const auto log_of_large = [](const MatrixXd& m) { return std::log(m(0, 17)); };
  CHECK(check_gradient(log_of_large, x, gradient).max_error <= 14 * rounding);
  const auto other_logs = [](const MatrixXd& m) { return m.leftCols(17).array().log().sum(); };
  gradient.setZero();
  gradient.leftCols(17).setOnes();
  CHECK(check_gradient(other_logs, x, gradient).max_error <= rounding);
  x(0, 3) = 0;
  CHECK(check_gradient(sum_of_sines, x.leftCols(5), x.leftCols(5).array().cos().matrix()).max_error
        <= rounding);
}

TEST_CASE("check_gradient: kinks", "[check]") {
  const auto relu = [](const MatrixXd& x) { return (x.array().max)(0.0).sum(); };
  MatrixXd x(1, 4), gradient(1, 4);
  x << 1e-4, -1e-4, 0.3, 0;
  gradient << 1, 0, 1, 0.5;  // near the kink its own side, at it the mean of both
  CHECK(check_gradient(relu, x, gradient).max_error <= rounding);
}

TEST_CASE("check_gradient: f not finite, and gradients that are not", "[check]") {
  MatrixXd x = MatrixXd::Ones(2, 2), gradient = MatrixXd::Ones(2, 2);
  const auto sum = [](const MatrixXd& m) { return m.sum(); };
  for (const double bad : {not_a_number, infinity}) {
    gradient(1, 0) = bad;
    const GradientCheck c = check_gradient(sum, x, gradient);
    CHECK(c.max_error == infinity);
    CHECK((c.row == 1 && c.col == 0));
    CHECK(!std::isfinite(c.analytic));
    CHECK(std::abs(c.numeric - 1) <= rounding);
  }
  // No number to the left of x(0, 1) = 1, however near.
  gradient.setOnes();
  const auto one_sided = [](const MatrixXd& m) { return m(0, 1) < 1 ? not_a_number : m.sum(); };
  const GradientCheck c = check_gradient(one_sided, x, gradient);
  CHECK(c.max_error == infinity);
  CHECK((c.row == 0 && c.col == 1 && c.analytic == 1 && std::isnan(c.numeric)));
}

TEST_CASE("check_gradient: any Eigen matrix, and x comes back to f as it was", "[check]") {
  Random random(406);
  const MatrixXd x = random.normal_matrix(3, 4).cast<double>();
  const MatrixXd gradient = x.array().cos();
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const RowMajor by_rows = x;
  const auto f = [](const auto& m) { return m.array().sin().sum(); };
  CHECK(check_gradient(f, by_rows, gradient).max_error <= rounding);
  CHECK(check_gradient(f, x.topRows(2), gradient.topRows(2)).max_error <= rounding);
  CHECK(check_gradient(f, x.transpose(), gradient.transpose()).max_error <= rounding);
  CHECK(check_gradient(f, 1.0 * x, 1.0 * gradient).max_error <= rounding);
  const auto of_vector = [](const Eigen::VectorXd& v) { return v.array().sin().sum(); };
  CHECK(check_gradient(of_vector, x.col(1), gradient.col(1)).max_error <= rounding);
  CHECK(check_gradient(f, x.row(1), gradient.row(1)).max_error <= rounding);
  CHECK(check_gradient(f, Eigen::Matrix2d(x.topLeftCorner(2, 2)),
                       Eigen::Matrix2d(gradient.topLeftCorner(2, 2)))
            .max_error
        <= rounding);

  // In every call at most one entry differs from x.
  int most = 0;
  const auto counting = [&](const MatrixXd& m) {
    most = std::max(most, static_cast<int>((m.array() != x.array()).count()));
    return m.sum();
  };
  CHECK(check_gradient(counting, x, MatrixXd::Ones(3, 4)).max_error <= rounding);
  CHECK(most == 1);
}

TEST_CASE("check_gradient: a step of one's own", "[check]") {
  int calls = 0;
  const auto cube = [&](const MatrixXd& m) {
    ++calls;
    return m(0, 0) * m(0, 0) * m(0, 0);
  };
  const MatrixXd x = MatrixXd::Constant(1, 1, 2);
  GradientCheckOptions options;
  options.step = 0.5;
  const GradientCheck c = check_gradient(cube, x, MatrixXd::Constant(1, 1, 12), options);
  CHECK(c.numeric == 12.25);  // (2.5^3 - 1.5^3) / 1
  CHECK(calls == 3);
  CHECK(c.max_error == 0.25 / 12.25);
}

TEST_CASE("check_gradient: what it refuses", "[check]") {
  const MatrixXd x = MatrixXd::Ones(2, 3);
  const auto refuses = [&](const auto& f, const MatrixXd& at, const MatrixXd& gradient, double step,
                           const std::string& message) {
    GradientCheckOptions options;
    options.step = step;
    CHECK(message_of([&] { (void)check_gradient(f, at, gradient, options); })
          == "check_gradient: " + message);
  };
  const auto sum = [](const MatrixXd& m) { return m.sum(); };
  refuses(sum, x, x.transpose(), 0,
          "x is 2 x 3 but gradient is 3 x 2, they must have the same shape");
  refuses(sum, MatrixXd(0, 3), MatrixXd(0, 3), 0,
          "x is 0 x 3, it must have at least one row and one column");
  MatrixXd bad = x;
  bad(1, 2) = infinity;
  refuses(sum, bad, x, 0, "x has inf at row 1, column 2");
  refuses(sum, x, x, -1, "step is -1, it must be finite and not negative");
  refuses(sum, x, x, not_a_number, "step is nan, it must be finite and not negative");
  refuses(sum, x, x, 1e-20, "step is 1e-20, which does not change 1 at row 0, column 0");
  refuses([](const MatrixXd&) { return not_a_number; }, x, x, 0, "f(x) is nan");
}
