// What holds of every loss whatever the numbers: orders, rotations, lengths, exchanges, and central
// differences of the library's own values.
#include "support/build.hpp"
#include "support/catch.hpp"
#include "support/check.hpp"
#include "support/differences.hpp"
#include "support/problems.hpp"

using namespace contrastive_tests;

namespace {

constexpr Loss embedding_losses[] = {Loss::info_nce, Loss::hard_negative, Loss::clip,
                                     Loss::siglip,   Loss::nt_xent,       Loss::sup_con,
                                     Loss::triplet,  Loss::alignment,     Loss::uniformity};

/// The sums below run in another order, over at most 60 terms of up to scale 5 each.
constexpr Real reordered = 256 * epsilon<double>;

/// A rotation: the Q of the Gram-Schmidt process on a random matrix.
Matrix random_rotation(Index n, Random& random) {
  Matrix r = random.normal_matrix(n, n);
  for (Index j = 0; j < n; ++j) {
    for (Index k = 0; k < j; ++k) r.col(j) -= r.col(k) * r.col(k).dot(r.col(j));
    r.col(j) /= r.col(j).norm();
  }
  return r;
}

}  // namespace

TEST_CASE("identity: gradients are the differences of the library's values", "[identities]") {
  for (const Loss loss : all_losses) {
    Random random(31);
    for (int repetition = 0; repetition < 4; ++repetition) {
      const Problem problem = random_problem(loss, 6, 5, random);
      CAPTURE(describe(loss).function, repetition);
      const auto library = [](const Problem& p) {
        Answer answer;
        answer.value = evaluate_value<Real>(p);
        return answer;
      };
      check_against_differences(problem, evaluate<Real>(problem), library, random);
    }
  }
}

TEST_CASE("identity: the order of the pairs changes the order of the gradients alone",
          "[identities]") {
  for (const Loss loss : embedding_losses) {
    Random random(32);
    const Index batch = 53;
    Problem problem = plain_problem(loss, batch, 6, random, 2 * batch);
    const bool has_options = has_scale(loss);
    if (has_options) {
      if (has_ids(loss)) problem.pos_ids = random_ids(batch, 30, random);
      problem.weights = random_weights(batch, random);
    }
    problem.own_scope = loss == Loss::hard_negative;  // two negatives each, which move along
    const Answer before = evaluate<double>(problem);
    const auto moved = [&](Index i) { return (i * 17 + 5) % batch; };
    Problem permuted = problem;
    const auto permute = [&](const Matrix& x) {
      Matrix y = x;
      const Index each = x.rows() / batch;
      for (Index i = 0; i < batch; ++i)
        y.middleRows(i * each, each) = x.middleRows(moved(i) * each, each);
      return y;
    };
    for (Matrix& x : permuted.inputs) x = permute(x);
    for (std::size_t i = 0; has_options && i < static_cast<std::size_t>(batch); ++i) {
      const auto from = static_cast<std::size_t>(moved(static_cast<Index>(i)));
      if (has_ids(loss)) permuted.pos_ids[i] = problem.pos_ids[from];
      if (loss == Loss::sup_con) permuted.labels[i] = problem.labels[from];
      permuted.weights[i] = problem.weights[from];
    }
    Answer expected = before;
    for (Matrix& gradient : expected.gradients) gradient = permute(gradient);
    CAPTURE(describe(loss).function);
    check_answer(evaluate<double>(permuted), expected, reordered);
  }
}

TEST_CASE("identity: a rotation of the space rotates the gradients", "[identities]") {
  for (const Loss loss : embedding_losses)
    for (const bool cosine : {true, false}) {
      Random random(33);
      Problem problem = plain_problem(loss, 11, 7, random, 5);
      problem.cosine = cosine;
      if (!cosine) problem.log_scale = -1;
      const Matrix rotation = random_rotation(7, random);
      const Answer before = evaluate<Real>(problem);
      Problem rotated = problem;
      for (Matrix& x : rotated.inputs) x = x * rotation;
      Answer expected = before;
      for (Matrix& gradient : expected.gradients) gradient = gradient * rotation;
      CAPTURE(describe(loss).function, cosine);
      check_answer(evaluate<Real>(rotated), expected, 1000 * epsilon<Real>);
    }
}

TEST_CASE("identity: the length of a row divides its gradient under cosine", "[identities]") {
  for (const Loss loss : embedding_losses) {
    if (!has_similarity(loss)) continue;
    Random random(34);
    const Problem problem = plain_problem(loss, 11, 7, random, 5);
    const Answer before = evaluate<double>(problem);
    for (std::size_t k = 0; k < problem.inputs.size(); ++k)
      for (const Real factor : {Real(0x1p-40L), Real(3), Real(0x1p80L)}) {
        Problem longer = problem;
        longer.inputs[k].row(2) *= factor;
        Answer expected = before;
        expected.gradients[k].row(2) /= factor;
        const Answer got = evaluate<double>(longer);
        CAPTURE(describe(loss).function, k, factor);
        CHECK(relative_error(got.value, expected.value) <= reordered);
        for (std::size_t j = 0; j < problem.inputs.size(); ++j)
          CHECK(relative_error_by_row(got.gradients[j], expected.gradients[j]) <= 10 * reordered);
      }
  }
}

TEST_CASE("identity: CLIP, NT-Xent and the sigmoid loss do not tell one side from the other",
          "[identities]") {
  for (const Loss loss : {Loss::clip, Loss::siglip, Loss::nt_xent}) {
    Random random(35);
    const Problem problem = plain_problem(loss, 53, 6, random);
    Problem exchanged = problem;
    std::swap(exchanged.inputs[0], exchanged.inputs[1]);
    Answer expected = evaluate<double>(problem);
    std::swap(expected.gradients[0], expected.gradients[1]);
    CAPTURE(describe(loss).function);
    check_answer(evaluate<double>(exchanged), expected, reordered);
  }
}

TEST_CASE("identity: CLIP is half of InfoNCE over rows and half over columns", "[identities]") {
  Random random(36);
  Problem rows = plain_problem(Loss::info_nce, 53, 6, random);
  rows.pos_ids = random_ids(53, 30, random);
  rows.weights = random_weights(53, random);
  Problem columns = rows;
  std::swap(columns.inputs[0], columns.inputs[1]);
  Problem both = rows;
  both.loss = Loss::clip;
  const Answer by_rows = evaluate<double>(rows);
  const Answer by_columns = evaluate<double>(columns);
  Answer expected;
  expected.value = (by_rows.value + by_columns.value) / 2;
  expected.gradients = {Matrix((by_rows.gradients[0] + by_columns.gradients[1]) / 2),
                        Matrix((by_rows.gradients[1] + by_columns.gradients[0]) / 2)};
  expected.d_log_scale = (*by_rows.d_log_scale + *by_columns.d_log_scale) / 2;
  check_answer(evaluate<double>(both), expected, reordered);
}

TEST_CASE("identity: losses over embeddings are losses over their logits", "[identities]") {
  const std::pair<Loss, Loss> pairs[] = {{Loss::info_nce, Loss::info_nce_logits},
                                         {Loss::clip, Loss::clip_logits},
                                         {Loss::siglip, Loss::siglip_logits}};
  for (const auto& [over_rows, over_logits] : pairs) {
    Random random(37);
    Problem problem = plain_problem(over_rows, 53, 6, random);
    problem.cosine = false;
    problem.log_scale = -1;
    problem.pos_ids = random_ids(53, 30, random);
    problem.weights = random_weights(53, random);
    Problem logits = problem;
    logits.loss = over_logits;
    logits.cosine = true;  // the default, as a matrix of logits has no similarity
    const Real scale = oracle::scale_of(problem);
    logits.inputs = {Matrix(scale * problem.inputs[0] * problem.inputs[1].transpose())};
    const Answer got = evaluate<Real>(problem);
    const Answer expected = evaluate<Real>(logits);
    const Matrix& G = expected.gradients[0];
    CAPTURE(describe(over_rows).function);
    const Real tolerance = 1000 * epsilon<Real>;
    CHECK(relative_error(got.value, expected.value) <= tolerance);
    CHECK(relative_error(got.gradients[0], Matrix(scale * G * problem.inputs[1])) <= tolerance);
    CHECK(relative_error(got.gradients[1], Matrix(scale * G.transpose() * problem.inputs[0]))
          <= tolerance);
    CHECK(relative_error(*got.d_log_scale, G.cwiseProduct(logits.inputs[0]).sum()) <= tolerance);
    if (got.d_bias) CHECK(relative_error(*got.d_bias, G.sum()) <= tolerance);
  }
}

TEST_CASE("identity: NT-Xent is SupCon where each class has two rows", "[identities]") {
  for (const Index batch : {1, 2, 13, 24, 25, 53, 120, 121})
    for (const bool cold : {false, true}) {
      Random random(310);
      Problem pairs = plain_problem(Loss::nt_xent, batch, 6, random);
      pairs.weights = random_weights(batch, random);
      if (cold) pairs.log_scale = 4.5;
      Problem classes = pairs;
      classes.loss = Loss::sup_con;
      Matrix z(2 * batch, 6);
      z << pairs.inputs[0], pairs.inputs[1];
      classes.inputs = {z};
      for (Index i = 0; i < 2 * batch; ++i) classes.labels.push_back(i % batch);
      classes.weights.insert(classes.weights.end(), pairs.weights.begin(), pairs.weights.end());
      Answer expected = evaluate<double>(pairs);
      Matrix gradient(2 * batch, 6);
      gradient << expected.gradients[0], expected.gradients[1];
      expected.gradients = {gradient};
      expected.d_log_scale_size = oracle_answer(pairs).d_log_scale_size;
      CAPTURE(batch, cold);
      check_answer(evaluate<double>(classes), expected, cold ? 16 * reordered : reordered);
    }
}

TEST_CASE("identity: NT-Xent is hard negatives of each view among all views", "[identities]") {
  // Of a row's candidates the other views of its own side are extra negatives, and itself is left
  // out by its id.
  const Index batch = 29;
  Random random(311);
  Problem views = plain_problem(Loss::nt_xent, batch, 6, random);
  const auto one_side = [&](std::size_t side) {
    Problem problem = views;
    problem.loss = Loss::hard_negative;
    problem.inputs = {views.inputs[side], views.inputs[1 - side], views.inputs[side]};
    for (Index i = 0; i < batch; ++i) problem.pos_ids.push_back(i);
    problem.neg_ids = problem.pos_ids;
    return evaluate<double>(problem);
  };
  const Answer a = one_side(0), b = one_side(1);
  Answer expected;
  expected.value = (a.value + b.value) / 2;
  expected.gradients = {Matrix((a.gradients[0] + a.gradients[2] + b.gradients[1]) / 2),
                        Matrix((b.gradients[0] + b.gradients[2] + a.gradients[1]) / 2)};
  expected.d_log_scale = (*a.d_log_scale + *b.d_log_scale) / 2;
  check_answer(evaluate<double>(views), expected, reordered);
}

TEST_CASE("identity: the mutual-information bound is log N minus InfoNCE", "[identities]") {
  Random random(38);
  const Problem bound = plain_problem(Loss::mutual_information, 53, 1, random);
  Problem loss = bound;
  loss.loss = Loss::info_nce_logits;
  const Answer got = evaluate<double>(bound);
  const Answer expected = evaluate<double>(loss);
  CHECK(std::abs(got.value - (std::log(Real(53)) - expected.value)) <= 8 * epsilon<double>);
  CHECK(relative_error(got.gradients[0], Matrix(-expected.gradients[0])) <= reordered);
  CHECK(got.value <= std::log(Real(53)));
}

TEST_CASE("identity: rows of dS sum to zero in a softmax", "[identities]") {
  for (const Loss loss : {Loss::info_nce_logits, Loss::mutual_information}) {
    Random random(39);
    const Answer got = evaluate<double>(plain_problem(loss, 53, 1, random));
    const Matrix sums = got.gradients[0].rowwise().sum();
    CHECK(largest(sums) <= 53 * epsilon<double> / 53);
  }
}
