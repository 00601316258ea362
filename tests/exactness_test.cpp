// Losses far below one, and gradients far below their neighbours, keep their digits.
#include "support/build.hpp"
#include "support/catch.hpp"
#include "support/check.hpp"
#include "support/problems.hpp"

using namespace contrastive_tests;

namespace {

constexpr Loss softmax_losses[] = {Loss::info_nce, Loss::clip, Loss::hard_negative};
/// Those of pairs, which SupCon is too where each class has two rows.
constexpr Loss losses_of_pairs[] = {Loss::info_nce, Loss::clip, Loss::hard_negative, Loss::nt_xent,
                                    Loss::sup_con};

/// SupCon of NT-Xent's rows, an item a class.
Problem as_classes(Problem problem) {
  const Index batch = problem.batch();
  Matrix z(2 * batch, problem.inputs[0].cols());
  z << problem.inputs[0], problem.inputs[1];
  problem.inputs = {z};
  for (Index i = 0; i < 2 * batch; ++i) problem.labels.push_back(i % batch);
  return problem;
}

/// B pairs in d dimensions whose positives lie at a distance of about `noise` from the queries, at
/// a low temperature: each row's loss is exp(-(1 - c) / tau), of very different sizes.
Problem nearly_separable(Loss loss, Index batch, Index d, double noise, std::uint64_t seed) {
  Random random(seed);
  Problem problem;
  problem.loss = loss;
  problem.temperature = 0.01;
  const Matrix q = random.normal_matrix(batch, d);
  const Matrix shift = random.normal_matrix(batch, d);
  problem.inputs = {q, q + static_cast<Real>(noise) * shift};
  if (loss == Loss::hard_negative) problem.inputs.push_back(random.normal_matrix(batch, d));
  for (Matrix& x : problem.inputs)  // exact in float, so that one oracle serves both
    x = x.unaryExpr([](Real v) { return static_cast<Real>(static_cast<float>(v)); });
  return loss == Loss::sup_con ? as_classes(problem) : problem;
}

}  // namespace

TEMPLATE_TEST_CASE("exactness: a tiny loss keeps its digits", "[exactness]", float, double) {
  // log(1 + exp(-x)) for logits that are exact: off by the roundings of exp and log1p alone, and by
  // x 2^-24 where the scale that makes the logit is rounded.
  for (const Real x : {5, 12, 21, 46, 80}) {
    const Matrix l = x * identity(2);
    const Real expected = std::log1p(std::exp(-x));  // from 7e-3 down to 2e-35
    const Real tolerance = 16 * epsilon<TestType>;
    CAPTURE(x);
    for (const Loss loss : {Loss::info_nce_logits, Loss::clip_logits}) {
      const Answer got = evaluate<TestType>(logits_problem(loss, l));
      CHECK(relative_error(got.value, expected) <= tolerance);
      const Real g = std::exp(-x) / (1 + std::exp(-x)) / 2;
      CHECK(relative_error(got.gradients[0], matrix({{-1, 1}, {1, -1}}) * g) <= tolerance);
      CHECK(got.gradients[0](0, 0) == -got.gradients[0](0, 1));
    }
    for (const Loss loss : softmax_losses) {
      Problem problem = dot_problem(loss, {identity(2), l}, 1);
      if (loss == Loss::hard_negative) problem.inputs.push_back(Matrix(0, 2));
      CHECK(relative_error(evaluate_value<TestType>(problem), expected) <= tolerance);
    }
    Problem sigmoid = logits_problem(Loss::siglip_logits, 2 * l - Matrix::Constant(2, 2, x));
    CHECK(relative_error(evaluate_value<TestType>(sigmoid), 2 * expected) <= tolerance);
    sigmoid.inputs[0] = 2 * l;
    sigmoid.bias = static_cast<double>(-x);
    CHECK(relative_error(evaluate_value<TestType>(sigmoid), 2 * expected) <= tolerance);
  }
}

TEST_CASE("exactness: losses of 1e-9 and 1e-20 among many candidates", "[exactness]") {
  for (const Real size : {1e-9L, 1e-20L, 1e-30L}) {
    const Index batch = 100;
    const Real x = -std::log(size / (batch - 1));
    const Matrix l = x * identity(batch);
    for (const Loss loss : {Loss::info_nce_logits, Loss::clip_logits}) {
      const Problem problem = logits_problem(loss, l);
      const Answer expected = oracle_answer(problem);
      REQUIRE(relative_error(expected.value, size) < 1e-8L);
      // x itself is rounded to the scalar type: 2^-24 x for float.
      CHECK(relative_error(evaluate_value<double>(problem), expected.value)
            <= 4 * x * epsilon<double>);
      CHECK(relative_error(evaluate_value<float>(problem), expected.value)
            <= 4 * x * epsilon<float>);
    }
  }
}

TEMPLATE_TEST_CASE("exactness: tiny losses of rows among each other", "[exactness]", float,
                   double) {
  // Both views are r I, x = r^2: each row's loss is log(1 + 2 (B - 1) e^-x). A row pulls its
  // positive with 2 (B - 1) p / 2B, p = 1 / (e^x + 2 (B - 1)), and pushes each other with p / 2B;
  // each pair does so from both ends.
  for (const Index batch : {2, 24, 25, 100, 130})
    for (const Real root : {2, 5, 7, 9}) {
      const Real x = root * root, others = 2 * static_cast<Real>(batch - 1);
      const Real expected = std::log1p(others * std::exp(-x));  // from 4 down to 1e-35
      const Real wrong = 1 / (std::exp(x) + others) / (2 * static_cast<Real>(batch));
      const Matrix one = root * identity(batch);
      // Another item pushes by both its views.
      Matrix slope = Matrix::Constant(batch, batch, 4 * wrong * root);
      slope.diagonal().setConstant(-2 * others * wrong * root);
      Problem problem = dot_problem(Loss::nt_xent, {one, one}, 1);
      const Real tolerance = 32 * epsilon<TestType>;
      CAPTURE(batch, x, expected);
      const Answer views = evaluate<TestType>(problem);
      CHECK(relative_error(views.value, expected) <= tolerance);
      for (const Matrix& gradient : views.gradients)
        CHECK(relative_error_by_row(gradient, slope) <= tolerance);
      problem.loss = Loss::sup_con;
      const Answer classes = evaluate<TestType>(as_classes(problem));
      CHECK(relative_error(classes.value, expected) <= tolerance);
      Matrix both(2 * batch, batch);
      both << slope, slope;
      CHECK(relative_error_by_row(classes.gradients[0], both) <= tolerance);
    }
}

TEST_CASE("exactness: each row of the gradient of a nearly separable batch", "[exactness]") {
  for (const Loss loss : losses_of_pairs)
    for (const Index batch : {6, 30, 100, 130})
      for (const double noise : {0.05, 0.3}) {
        const Problem problem = nearly_separable(loss, batch, 16, noise, 51);
        const Answer expected = oracle_answer(problem);
        CAPTURE(describe(loss).function, batch, noise, expected.value);
        const Answer single = evaluate<float>(problem);
        const Answer twice = evaluate<double>(problem);
        // A float logit at scale 100 is uncertain by about 100 2^-24 = 6e-6, a few times of which
        // add up in a row: 1e-4 of the row's own size.
        CHECK(relative_error(single.value, expected.value) <= 1e-4L);
        CHECK(relative_error(twice.value, expected.value) <= 1e-12L);
        for (std::size_t k = 0; k < expected.gradients.size(); ++k) {
          CAPTURE(k);
          // Rows of less than 1e-30 are made of numbers that a float has no full digits for.
          CHECK(relative_error_by_row(single.gradients[k], expected.gradients[k], 1e-30L) <= 1e-4L);
          CHECK(relative_error_by_row(twice.gradients[k], expected.gradients[k]) <= 1e-11L);
        }
      }
}

TEST_CASE("exactness: each row of a nearly separable batch with other targets", "[exactness]") {
  for (const Loss loss : {Loss::info_nce, Loss::clip, Loss::hard_negative, Loss::nt_xent})
    for (const bool decoupled : {false, true})
      for (const double e : {0.0, 0.1})
        for (const double margin : {0.0, 0.2}) {
          Random random(54);
          Problem problem = nearly_separable(loss, 100, 16, 0.05, 51);
          problem.decoupled = decoupled;
          problem.label_smoothing = e;
          problem.positive_margin = margin;
          if (has_prior(loss)) problem.log_prior = random_prior(100, random);
          const Answer expected = oracle_answer(problem);
          const Answer single = evaluate<float>(problem);
          const Answer twice = evaluate<double>(problem);
          CAPTURE(describe(loss).function, decoupled, e, margin, expected.value);
          // As above; a decoupled loss, or that of smoothed labels, is a difference of logits of up
          // to 100, each of which a float holds to 100 2^-24.
          const Real size = std::max(Real(1), expected.value_size);
          CHECK(std::abs(single.value - expected.value)
                <= 1e-4L * (expected.value_size == 0 ? std::abs(expected.value) : size));
          CHECK(std::abs(twice.value - expected.value)
                <= 1e-12L * (expected.value_size == 0 ? std::abs(expected.value) : size));
          for (std::size_t k = 0; k < expected.gradients.size(); ++k) {
            CAPTURE(k);
            CHECK(relative_error_by_row(single.gradients[k], expected.gradients[k], 1e-30L)
                  <= 1e-4L);
            CHECK(relative_error_by_row(twice.gradients[k], expected.gradients[k]) <= 1e-11L);
          }
        }
}

TEMPLATE_TEST_CASE("exactness: a margin leaves a tiny loss its digits", "[exactness]", float,
                   double) {
  // log(1 + exp(-scale (1 - m))): scale 64, m 1/2.
  for (const Loss loss : softmax_losses) {
    Problem problem = dot_problem(loss, {identity(2), identity(2)}, 1.0 / 64);
    if (loss == Loss::hard_negative) problem.inputs.push_back(Matrix(0, 2));
    problem.positive_margin = 0.5;
    const Answer got = evaluate<TestType>(problem);
    const Real expected = std::log1p(std::exp(-Real(32)));
    CHECK(relative_error(got.value, expected) <= 64 * epsilon<TestType>);
    problem.decoupled = true;  // 0 - 32, and gradients of 1 in place of tiny ones
    const Answer decoupled = evaluate<TestType>(problem);
    CHECK(relative_error(decoupled.value, -32) <= 16 * epsilon<TestType>);
    CHECK(relative_error(decoupled.gradients[1], matrix({{-32, 32}, {32, -32}}))
          <= 16 * epsilon<TestType>);
  }
}

TEMPLATE_TEST_CASE("exactness: means of smoothed labels over many equal rows", "[exactness]", float,
                   double) {
  // s_ii - s_ij is 1 for all j, of logits with all the digits of a float: their sums over a row and
  // over a column must not lose more than the logits' own last bit.
  const Index batch = 2000;
  const Real logit = static_cast<Real>(1000.1F);
  Matrix l = Matrix::Constant(batch, batch, logit);
  l.diagonal().array() += 1;
  for (const Loss loss : {Loss::info_nce_logits, Loss::clip_logits}) {
    Problem problem = logits_problem(loss, l);
    const Real plain = evaluate_value<TestType>(problem);
    problem.label_smoothing = 0.5;
    const Real got = evaluate_value<TestType>(problem);
    // And the mean over rows of about 8 sums once a term in double.
    CAPTURE(describe(loss).function, got - plain - 0.5L * (batch - 1) / batch);
    CHECK(std::abs(got - plain - 0.5L * (batch - 1) / batch)
          <= logit * epsilon<TestType> + 4 * batch * epsilon<double>);
  }
}

TEST_CASE("exactness: the sums over a batch do not wear a float out", "[exactness]") {
  // 2,000 equal rows: a loss of log 2000 each, whose running sum in float would lose digits.
  const Index batch = 2000;
  Problem problem =
      dot_problem(Loss::info_nce, {Matrix::Ones(batch, 1), Matrix::Ones(batch, 1)}, 1);
  const Real expected = std::log(static_cast<Real>(batch));
  for (const Loss loss : {Loss::info_nce, Loss::clip}) {
    problem.loss = loss;
    CHECK(relative_error(evaluate_value<float>(problem), expected) <= 4 * epsilon<float>);
  }
  problem.loss = Loss::siglip;  // 2000 (log 2) a row
  problem.inputs[0].setZero();
  CHECK(relative_error(evaluate_value<float>(problem), batch * std::log(Real(2)))
        <= 4 * epsilon<float>);
  // Alignment of rows that are all 1/3 apart.
  Problem alignment = dot_problem(
      Loss::alignment, {Matrix::Zero(batch * 10, 1), Matrix::Constant(batch * 10, 1, 1 / 3.0F)}, 1);
  CHECK(relative_error(evaluate_value<float>(alignment), static_cast<Real>(1 / 3.0F * (1 / 3.0F)))
        <= 4 * epsilon<float>);
}

TEST_CASE("exactness: large logits and small ones in one row", "[exactness]") {
  Random random(52);
  for (const Loss loss : {Loss::info_nce_logits, Loss::clip_logits, Loss::siglip_logits}) {
    Problem problem = logits_problem(loss, 256 * random.normal_matrix(60, 60));
    const Answer expected = oracle_answer(problem);
    // Differences of logits of up to 1000 round by 1000 2^-24 in float.
    check_answer(evaluate<double>(problem), expected, 1000 * epsilon<double>);
    check_answer(evaluate<float>(problem), expected, 1000 * epsilon<float>);
  }
}

TEMPLATE_TEST_CASE("exactness: a row whose logits all lie far below the others'", "[exactness]",
                   float, double) {
  // Row 1 lies about `depth` below the largest logit of all, its positive 8 below its largest: its
  // loss is log(1 + e^8), whatever its exponentials relative to the largest logit are.
  for (int step = 0; step <= 80; ++step) {
    const Real depth = step <= 40 ? 40 + step : 480 + (step - 40);
    const Real top = depth / 2;
    Problem problem = logits_problem(Loss::clip_logits, Matrix::Zero(3, 3));
    problem.inputs[0].row(0) << 0, top, top - 30;
    problem.inputs[0].row(1) << top - depth, top - depth - 8, top - depth - 60;
    problem.inputs[0].row(2) << top - 30, top - 30, 0;
    problem.weights = {0, 1, 0};
    CAPTURE(depth);
    for (const Loss loss : {Loss::clip_logits, Loss::info_nce_logits}) {
      problem.loss = loss;
      const Answer expected = oracle_answer(problem);
      // Logits of up to 560 round in their differences.
      const Real tolerance = 600 * epsilon<TestType>;
      check_answer(evaluate<TestType>(problem), expected, tolerance, underflow<TestType>);
    }
    // The same as dot products: Q = I.
    problem.loss = Loss::clip;
    problem.cosine = false;
    problem.inputs = {identity(3), Matrix(problem.inputs[0].transpose())};
    const Answer expected = oracle_answer(problem);
    const Answer got = evaluate<TestType>(problem);
    CHECK(relative_error(got.value, expected.value) <= 600 * epsilon<TestType>);
    CHECK(relative_error(got.gradients[1], expected.gradients[1], underflow<TestType>)
          <= 600 * epsilon<TestType>);
  }
}

TEMPLATE_TEST_CASE("exactness: uniformity of rows far from the origin", "[exactness]", float,
                   double) {
  // Distances of about 1 between rows at 1e4: to hold them, the rows' mean has to be taken off
  // first.
  Random random(53);
  Problem problem = plain_problem(Loss::uniformity, 20, 3, random);
  problem.cosine = false;
  problem.inputs[0] = 0.5L * problem.inputs[0] + Matrix::Constant(20, 3, 8192);
  problem.inputs[0] =
      problem.inputs[0].unaryExpr([](Real v) { return static_cast<Real>(static_cast<float>(v)); });
  const Answer expected = oracle_answer(problem);
  check_answer(evaluate<TestType>(problem), expected, 200 * epsilon<TestType>);
}

TEMPLATE_TEST_CASE("exactness: uniformity of rows whose exponentials all underflow", "[exactness]",
                   float, double) {
  // Rows 64 apart on a line: neighbours have exp(-8192), all others nothing beside that. The mean
  // is a multiple of 32, and every exponent exact, if the mean is summed without rounding: in
  // double for float, and where it is a sum over a power of two. Else it is off by some 2^-53 of
  // the line's length, which moves exponents of 2t |delta|^2 apart. Only the ends feel a neighbour
  // that none opposite balances.
  for (const Index rows : {2, 3, 4, 47, 49, 63, 64, 65, 239, 241, 256, 481, 512}) {
    const auto n = static_cast<Real>(rows);
    Problem problem = dot_problem(Loss::uniformity, {Matrix::Zero(rows, 3)}, 1);
    for (Index i = 0; i < rows; ++i) problem.inputs[0](i, 1) = static_cast<Real>(64 * i);
    const bool exact = std::is_same_v<TestType, float> || (rows & (rows - 1)) == 0;
    const Real off = exact ? 0 : 4 * std::pow(32 * n, Real(2)) * epsilon<TestType>;
    const Answer got = evaluate<TestType>(problem);
    CAPTURE(rows);
    CHECK(std::abs(got.value - (-8192 + std::log(2 / n))) <= 8192 * epsilon<TestType> + off);
    CHECK(same_bits(evaluate_value<TestType>(problem), got.value));
    // d/dz_0 of log sum exp(-2 r^2): 2 t r over the number of neighbours.
    Matrix expected = Matrix::Zero(rows, 3);
    expected(0, 1) = 256 / (n - 1);
    expected(rows - 1, 1) = -256 / (n - 1);
    CHECK(largest(got.gradients[0] - expected) <= (4 * epsilon<TestType> + off) * 256);
  }
}

TEST_CASE("exactness: uniformity of rows far apart, in both similarities", "[exactness]") {
  for (const bool cosine : {true, false})
    for (const double t : {40.0, 400.0, 3000.0}) {
      Random random(55);
      for (const Index rows : {2, 3, 47, 48, 49, 63, 64, 65, 239, 240, 241}) {
        Problem problem = plain_problem(Loss::uniformity, rows, 7, random);
        problem.cosine = cosine;
        problem.t = t;
        check_loss(problem);
      }
    }
}

TEMPLATE_TEST_CASE("exactness: uniformity of near duplicates", "[exactness]", float, double) {
  // Rows about 2^-10 apart: the gradient, a sum of their differences, keeps its digits under both
  // similarities, as rows are taken off their mean first. The loss is about -10^-6, the log of a
  // number next to 1, of which it has the rounding.
  for (const bool cosine : {true, false})
    for (const Index rows : {2, 3, 48, 49, 121, 241}) {
      Random random(56);
      Problem problem = plain_problem(Loss::uniformity, rows, 5, random);
      problem.cosine = cosine;
      const Matrix centre = Matrix::Ones(rows, 1) * random.normal_matrix(1, 5);
      problem.inputs[0] = centre + 0x1p-10L * problem.inputs[0];
      problem.inputs[0] = problem.inputs[0].unaryExpr(
          [](Real v) { return static_cast<Real>(static_cast<float>(v)); });
      const Answer expected = oracle_answer(problem);
      const Answer got = evaluate<TestType>(problem);
      CAPTURE(cosine, rows);
      CHECK(std::abs(got.value - expected.value) <= 8 * epsilon<TestType>);
      // Unit rows are rounded in double, by 2^-53 of 1 where they differ by 2^-10.
      const Real tolerance =
          64 * epsilon<TestType> + (std::is_same_v<TestType, float> ? 0 : 1024 * epsilon<double>);
      CHECK(relative_error(got.gradients[0], expected.gradients[0]) <= tolerance);
    }
}

TEMPLATE_TEST_CASE("exactness: uniformity of duplicates among rows far away", "[exactness]", float,
                   double) {
  // One pair of equal rows has exp(0), all others nothing: log(2 / n (n - 1)) and no gradient.
  for (const Index rows : {3, 49, 241})
    for (const Index copy : {Index(1), rows - 1}) {
      Problem problem = dot_problem(Loss::uniformity, {Matrix::Zero(rows, 2)}, 1);
      for (Index i = 0; i < rows; ++i) problem.inputs[0](i, 0) = static_cast<Real>(64 * i);
      problem.inputs[0].row(copy) = problem.inputs[0].row(0);
      const Answer got = evaluate<TestType>(problem);
      const auto n = static_cast<Real>(rows);
      CAPTURE(rows, copy);
      // The mean is rounded, and exponents of up to 10^9 with it, to that of the pair.
      const Real size = 4 * std::pow(64 * n, Real(2)) * epsilon<TestType>;
      CHECK(std::abs(got.value - std::log(2 / (n * (n - 1)))) <= size);
      CHECK_FALSE(got.gradients[0].hasNaN());
    }
}
