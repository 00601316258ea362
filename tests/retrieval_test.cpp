// Retrieval against a full sort and plain loops, in long double.
#include <algorithm>
#include <contrastive/retrieval.hpp>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/build.hpp"
#include "support/catch.hpp"
#include "support/check.hpp"
#include "support/random.hpp"
#include "support/refused.hpp"
#ifdef _OPENMP
#include <omp.h>
#endif

using namespace contrastive_tests;
using contrastive::mean_reciprocal_rank;
using contrastive::recall_at_k;
using contrastive::Similarity;
using contrastive::top_k;
using contrastive::TopK;

namespace {

template <class T>
using MatrixOf = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
template <class T>
using RowMajorOf = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Whole numbers from -2 to 2: their dot products are exact in any type, and often equal.
Matrix small_integers(Index rows, Index cols, Random& random) {
  Matrix m(rows, cols);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j) m(i, j) = static_cast<Real>(random.integer(5) - 2);
  return m;
}

Matrix scores_of(const Matrix& queries, const Matrix& corpus, Similarity similarity) {
  Matrix s(queries.rows(), corpus.rows());
  for (Index i = 0; i < s.rows(); ++i)
    for (Index j = 0; j < s.cols(); ++j) {
      Real dot = 0, q = 0, c = 0;
      for (Index k = 0; k < queries.cols(); ++k) {
        dot += queries(i, k) * corpus(j, k);
        q += queries(i, k) * queries(i, k);
        c += corpus(j, k) * corpus(j, k);
      }
      s(i, j) = similarity == Similarity::cosine ? dot / std::sqrt(q) / std::sqrt(c) : dot;
    }
  return s;
}

/// The rows of the corpus, best first.
std::vector<Index> order_of(const Matrix& scores, Index i) {
  std::vector<Index> order(static_cast<std::size_t>(scores.cols()));
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](Index a, Index b) { return scores(i, a) > scores(i, b); });
  return order;
}

/// Exactly the first k of the stable sort.
template <class T>
void check_exact(const TopK<T>& got, const Matrix& scores, Index k) {
  REQUIRE(got.indices.rows() == scores.rows());
  REQUIRE(got.indices.cols() == k);
  REQUIRE(got.scores.rows() == scores.rows());
  REQUIRE(got.scores.cols() == k);
  Index wrong = 0;
  for (Index i = 0; i < scores.rows(); ++i) {
    const std::vector<Index> order = order_of(scores, i);
    for (Index n = 0; n < k; ++n) {
      const Index j = order[static_cast<std::size_t>(n)];
      wrong += got.indices(i, n) != j || static_cast<Real>(got.scores(i, n)) != scores(i, j);
    }
  }
  CHECK(wrong == 0);
}

template <class T>
bool same_bits(const TopK<T>& a, const TopK<T>& b) {
  return a.indices == b.indices && a.scores == b.scores;
}

double expected_recall(const Matrix& scores, const Ids& query_ids, const Ids& corpus_ids, Index k) {
  double sum = 0;
  for (Index i = 0; i < scores.rows(); ++i) {
    const std::int64_t id = query_ids[static_cast<std::size_t>(i)];
    const std::vector<Index> order = order_of(scores, i);
    double found = 0;
    for (Index n = 0; n < k; ++n)
      found += corpus_ids[static_cast<std::size_t>(order[static_cast<std::size_t>(n)])] == id;
    sum += found / static_cast<double>(std::count(corpus_ids.begin(), corpus_ids.end(), id));
  }
  return sum / static_cast<double>(scores.rows());
}

double expected_mrr(const Matrix& scores, const Ids& query_ids, const Ids& corpus_ids) {
  double sum = 0;
  for (Index i = 0; i < scores.rows(); ++i) {
    const std::vector<Index> order = order_of(scores, i);
    const auto first = std::find_if(order.begin(), order.end(), [&](Index j) {
      return corpus_ids[static_cast<std::size_t>(j)] == query_ids[static_cast<std::size_t>(i)];
    });
    sum += 1 / static_cast<double>(first - order.begin() + 1);
  }
  return sum / static_cast<double>(scores.rows());
}

/// A mean of n terms from 0 to 1 is off by at most a rounding each.
bool is_mean(double got, double expected, Index n) {
  return std::abs(got - expected) <= static_cast<double>(n + 2) * 1.2e-16;
}

Ids first_ids(Index n) {
  Ids ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  return ids;
}

/// Around the edges of a chunk, a tile and a block, of 48, 240 and 60 or of twice as much.
constexpr Index edges[] = {1, 2, 5, 47, 48, 49, 95, 97, 239, 240, 241, 481, 500};

#ifdef _OPENMP
class Threads {
 public:
  explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~Threads() { omp_set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};
#endif

}  // namespace

TEMPLATE_TEST_CASE("top_k is the first k of a stable sort", "[retrieval]", float, double,
                   long double) {
  Random random(101);
  contrastive::Workspace workspace;
  for (const Index n : edges)
    for (const Index queries : edges) {
      if (queries > 49 && n > 49 && queries + n < 480) continue;  // enough of those
      if (std::is_same_v<TestType, long double> && queries * n > 30000) continue;
      const Matrix q = small_integers(queries, 5, random), c = small_integers(n, 5, random);
      const MatrixOf<TestType> tq = q.cast<TestType>(), tc = c.cast<TestType>();
      const Matrix scores = scores_of(q, c, Similarity::dot);
      for (const Index k : {Index{1}, Index{2}, Index{10}, Index{32}, Index{33}, n / 2, n}) {
        if (k < 1 || k > n) continue;
        CAPTURE(queries, n, k);
        check_exact(top_k(tq, tc, k, Similarity::dot, workspace), scores, k);
      }
    }
}

TEMPLATE_TEST_CASE("top_k: cosines, and equal rows in the order of their indices", "[retrieval]",
                   float, double, long double) {
  Random random(102);
  for (const Index d : {1, 3, 40, 300}) {
    const Index half = 150, n = 2 * half;
    const Matrix q = random.normal_matrix(37, d);
    Matrix c(n, d);
    c.topRows(half) = random.normal_matrix(half, d);
    c.bottomRows(half) = c.topRows(half);
    const Matrix scores = scores_of(q, c, Similarity::cosine);
    const auto all = top_k(q.cast<TestType>(), c.cast<TestType>(), n);
    // A sum of d products of unit vectors' entries, each rounded: (d + 4) epsilon covers it.
    const Real tolerance = static_cast<Real>(d + 4) * epsilon<TestType>;
    for (Index i = 0; i < q.rows(); ++i) {
      std::vector<bool> seen(static_cast<std::size_t>(n), false);
      Index wrong = 0;
      for (Index m = 0; m < n; ++m) {
        const Index j = all.indices(i, m);
        wrong += seen[static_cast<std::size_t>(j)];
        seen[static_cast<std::size_t>(j)] = true;
        wrong += std::abs(static_cast<Real>(all.scores(i, m)) - scores(i, j)) > tolerance;
        if (m == 0) continue;
        const bool falls = all.scores(i, m) < all.scores(i, m - 1);
        const bool ties = all.scores(i, m) == all.scores(i, m - 1);
        wrong += !(falls || (ties && j > all.indices(i, m - 1)));
      }
      // Of two equal rows the later comes after the earlier, with its score.
      std::vector<TestType> score(static_cast<std::size_t>(n));
      for (Index m = 0; m < n; ++m)
        score[static_cast<std::size_t>(all.indices(i, m))] = all.scores(i, m);
      for (std::size_t j = 0; j < static_cast<std::size_t>(half); ++j)
        wrong += score[j] != score[j + static_cast<std::size_t>(half)];
      CAPTURE(d, i);
      CHECK(wrong == 0);
    }
    for (const Index k : {1, 2, 31, 32, 33, 151, 299}) {
      const auto some = top_k(q.cast<TestType>(), c.cast<TestType>(), k);
      CAPTURE(d, k);
      CHECK(some.indices == all.indices.leftCols(k));
      CHECK(some.scores == all.scores.leftCols(k));
    }
  }
}

TEMPLATE_TEST_CASE("a corpus that is packed in several sections", "[retrieval]", float, double) {
  Random random(103);
  // 4 MiB are at most 953 rows of this width, so a section has 1024 or a few more.
  const Index n = 4500, d = 1100, queries = 7;
  const Matrix q = small_integers(queries, d, random);
  Matrix c(n, d);
  const Matrix few = small_integers(300, d, random);
  for (Index j = 0; j < n; ++j) c.row(j) = few.row(j % 300);  // each row comes 15 times
  const MatrixOf<TestType> tq = q.cast<TestType>();
  const RowMajorOf<TestType> tc = c.cast<TestType>();
  const Matrix scores = scores_of(q, c, Similarity::dot);
  for (const Index k : {1, 20, 100, 2000})
    check_exact(top_k(tq, tc, k, Similarity::dot), scores, k);
  Ids query_ids, corpus_ids;
  for (Index j = 0; j < n; ++j) corpus_ids.push_back(j / 2);
  for (Index i = 0; i < queries; ++i) query_ids.push_back(random.integer(n / 2));
  CHECK(is_mean(recall_at_k(tq, tc, query_ids, corpus_ids, 2000, Similarity::dot),
                expected_recall(scores, query_ids, corpus_ids, 2000), queries));
  CHECK(is_mean(mean_reciprocal_rank(tq, tc, query_ids, corpus_ids, Similarity::dot),
                expected_mrr(scores, query_ids, corpus_ids), queries));
}

TEST_CASE("equal rows have equal scores whatever the sections around them hold", "[retrieval]") {
  // A query that is long and has an entry at the bottom of the range, which every packing by
  // another power of two would round differently.
  const Index n = 4500, d = 1100;
  Eigen::MatrixXf q = Eigen::MatrixXf::Zero(1, d), c = Eigen::MatrixXf::Zero(n, d);
  q(0, 0) = 1e25F;
  q(0, 1) = 1.2345678e-37F;
  c(3, 0) = -1e10F;
  for (const Index j : {Index{5}, Index{2000}, Index{4499}}) c(j, 1) = 0.7654321F;
  const auto [indices, scores] = top_k(q, c, 3, Similarity::dot);
  CHECK(indices(0, 0) == 5);
  CHECK(indices(0, 1) == 2000);
  CHECK(indices(0, 2) == 4499);
  CHECK(scores(0, 0) > 0);
  CHECK(scores(0, 0) == scores(0, 2));
}

TEST_CASE("top_k by hand", "[retrieval]") {
  const Eigen::MatrixXd q = matrix({{1, 0}, {0, 2}}).cast<double>();
  const Eigen::MatrixXd c = matrix({{3, 4}, {1, 0}, {0, -1}, {6, 8}}).cast<double>();
  const auto [indices, scores] = top_k(q, c, 3);  // cosines 0.6 1 0 0.6 and 0.8 0 -1 0.8
  CHECK(indices == (Eigen::Matrix<Index, 2, 3>() << 1, 0, 3, 0, 3, 1).finished());
  const Eigen::MatrixXd expected = matrix({{1, 0.6, 0.6}, {0.8, 0.8, 0}}).cast<double>();
  CHECK((scores - expected).cwiseAbs().maxCoeff() <= 1e-15);
  const auto dots = top_k(q, c, 4, Similarity::dot);  // 3 1 0 6 and 8 0 -2 16
  CHECK(dots.indices == (Eigen::Matrix<Index, 2, 4>() << 3, 0, 1, 2, 3, 0, 1, 2).finished());
  CHECK(dots.scores == matrix({{6, 3, 1, 0}, {16, 8, 0, -2}}).cast<double>());
}

TEST_CASE("recall and reciprocal rank by hand", "[retrieval]") {
  const Eigen::MatrixXd one = Eigen::MatrixXd::Identity(1, 1);
  Eigen::MatrixXd q(3, 1), c(5, 1), square(3, 1);
  q << 1, 1, -1;
  c << 5, 4, 3, 2, 1;  // ranked 0 1 2 3 4 by the first two queries, 4 3 2 1 0 by the last
  const Ids items = {7, 8, 7};
  const Ids ids = {8, 7, 7, 7, 9};
  const auto recall = [&](Index k) { return recall_at_k(q, c, items, ids, k, Similarity::dot); };
  // Answers at ranks 2, 3, 4; at 1; at 2, 3, 4.
  CHECK(is_mean(recall(1), 1.0 / 3, 3));
  CHECK(is_mean(recall(2), (1.0 / 3 + 1 + 1.0 / 3) / 3, 3));
  CHECK(is_mean(recall(3), (2.0 / 3 + 1 + 2.0 / 3) / 3, 3));
  CHECK(recall(4) == 1);
  CHECK(recall(5) == 1);
  CHECK(is_mean(mean_reciprocal_rank(q, c, items, ids, Similarity::dot), (0.5 + 1 + 0.5) / 3, 3));

  // Row i answers query i: with c = 1 2 3 at ranks 3, 2 and 3.
  square << 1, 2, 3;
  CHECK(recall_at_k(q, square, 1, Similarity::dot) == 0);
  CHECK(is_mean(recall_at_k(q, square, 2, Similarity::dot), 1.0 / 3, 3));
  CHECK(recall_at_k(q, square, 3, Similarity::dot) == 1);
  CHECK(
      is_mean(mean_reciprocal_rank(q, square, Similarity::dot), (1.0 / 3 + 0.5 + 1.0 / 3) / 3, 3));

  // All equal: the smaller index comes first, so row i's own has rank i + 1.
  square << 1, 1, 1;
  CHECK(is_mean(recall_at_k(q, square, 1), 1.0 / 3, 3));
  CHECK(is_mean(mean_reciprocal_rank(q, square), (1 + 0.5 + 1.0 / 3) / 3, 3));
  CHECK(recall_at_k(one, one, 1) == 1);
  CHECK(mean_reciprocal_rank(one, one) == 1);
}

TEMPLATE_TEST_CASE("recall and reciprocal rank against plain loops", "[retrieval]", float, double,
                   long double) {
  Random random(104);
  contrastive::Workspace workspace;
  for (const Index n : {1, 2, 48, 97, 241, 700}) {
    if (std::is_same_v<TestType, long double> && n > 241) continue;
    for (const Index kinds : {1, 3, 40, 1000}) {
      const Index queries = n / 2 + 1;
      const Matrix q = small_integers(queries, 4, random), c = small_integers(n, 4, random);
      const MatrixOf<TestType> tq = q.cast<TestType>(), tc = c.cast<TestType>();
      const Matrix scores = scores_of(q, c, Similarity::dot);
      Ids query_ids, corpus_ids;
      for (Index j = 0; j < n; ++j) corpus_ids.push_back(random.integer(kinds) - 20);
      for (Index i = 0; i < queries; ++i)
        query_ids.push_back(corpus_ids[static_cast<std::size_t>(random.integer(n))]);
      CAPTURE(n, kinds);
      for (const Index k : {Index{1}, Index{10}, n}) {
        if (k > n) continue;
        CHECK(is_mean(recall_at_k(tq, tc, query_ids, corpus_ids, k, Similarity::dot, workspace),
                      expected_recall(scores, query_ids, corpus_ids, k), queries));
      }
      CHECK(is_mean(mean_reciprocal_rank(tq, tc, query_ids, corpus_ids, Similarity::dot, workspace),
                    expected_mrr(scores, query_ids, corpus_ids), queries));
    }
    // Row i answers query i: the same as with ids 0 .. n - 1.
    const Matrix q = small_integers(n, 4, random), c = small_integers(n, 4, random);
    const MatrixOf<TestType> tq = q.cast<TestType>(), tc = c.cast<TestType>();
    const Matrix scores = scores_of(q, c, Similarity::dot);
    const Ids ids = first_ids(n);
    const Index k = n / 3 + 1;
    CHECK(is_mean(recall_at_k(tq, tc, k, Similarity::dot, workspace),
                  expected_recall(scores, ids, ids, k), n));
    CHECK(is_mean(mean_reciprocal_rank(tq, tc, Similarity::dot, workspace),
                  expected_mrr(scores, ids, ids), n));
  }
}

TEMPLATE_TEST_CASE("recall and reciprocal rank agree with top_k on cosines", "[retrieval]", float,
                   double) {
  Random random(105);
  const Index n = 333;
  const Matrix q = random.normal_matrix(n, 24);
  const MatrixOf<TestType> tq = q.cast<TestType>();
  const MatrixOf<TestType> tc = (q + 1.5L * random.normal_matrix(n, 24)).cast<TestType>();
  const auto all = top_k(tq, tc, n);
  double reciprocal = 0;
  for (const Index k : {1, 5, 40}) {
    Index hits = 0;
    for (Index i = 0; i < n; ++i) hits += (all.indices.row(i).head(k).array() == i).any();
    CHECK(is_mean(recall_at_k(tq, tc, k), static_cast<double>(hits) / static_cast<double>(n), n));
  }
  for (Index i = 0; i < n; ++i)
    for (Index m = 0; m < n; ++m)
      if (all.indices(i, m) == i) reciprocal += 1 / static_cast<double>(m + 1);
  CHECK(is_mean(mean_reciprocal_rank(tq, tc), reciprocal / static_cast<double>(n), n));
}

TEMPLATE_TEST_CASE("retrieval: same bits in any layout and form", "[retrieval]", float, double,
                   long double) {
  Random random(106);
  contrastive::Workspace workspace;
  TopK<TestType> result;
  for (const Index n : {3, 50, 245}) {
    const Index d = 17, k = n / 3 + 1;
    const MatrixOf<TestType> q = random.normal_matrix(n, d).template cast<TestType>();
    const MatrixOf<TestType> c = random.normal_matrix(n, d).template cast<TestType>();
    const auto expected = top_k(q, c, k);
    const double mrr = mean_reciprocal_rank(q, c), recall = recall_at_k(q, c, k);

    const RowMajorOf<TestType> rows = q;
    MatrixOf<TestType> wide = MatrixOf<TestType>::Constant(n + 3, 2 * d, TestType(7));
    const Eigen::Map<MatrixOf<TestType>, 0, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>> strided(
        wide.data(), n, d, {2 * (n + 3), 1});
    Eigen::Map<MatrixOf<TestType>, 0, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>(
        wide.data(), n, d, {2 * (n + 3), 1}) = c;
    CHECK(same_bits(top_k(rows, strided, k), expected));
    CHECK(same_bits(top_k(TestType(2) * q, c + MatrixOf<TestType>::Zero(n, d), k), expected));
    CHECK(mean_reciprocal_rank(rows, strided) == mrr);
    CHECK(recall_at_k(rows, strided, k, Similarity::cosine, workspace) == recall);
    top_k(q, c, k, Similarity::cosine, result, workspace);
    CHECK(same_bits(result, expected));
    CHECK(same_bits(top_k(q, c, k, Similarity::cosine, workspace), expected));
  }
}

TEST_CASE("top_k of a corpus in itself", "[retrieval]") {
  Random random(107);
  Eigen::MatrixXf x = random.normal_matrix(100, 16).cast<float>();
  x.row(70) = x.row(20);
  const auto [indices, scores] = top_k(x, x, 2);
  for (Index i = 0; i < 100; ++i) CHECK(indices(i, 0) == (i == 70 ? 20 : i));
  CHECK(indices(20, 1) == 70);
  CHECK(indices(70, 1) == 70);
}

TEST_CASE("lists may be strided Eigen vectors", "[retrieval]") {
  const Eigen::MatrixXd x = Eigen::MatrixXd::Identity(3, 3);
  Eigen::Matrix<std::int64_t, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> ids(3, 2);
  ids << 5, 1, 6, 2, 7, 3;
  CHECK(recall_at_k(x, x, ids.col(0), ids.col(0), 1) == 1);
  CHECK(mean_reciprocal_rank(x, x, ids.col(1), Ids{3, 2, 1}) < 1);
}

#ifdef _OPENMP
TEMPLATE_TEST_CASE("threads: retrieval gives the same bits", "[retrieval][threads]", float,
                   double) {
  Random random(108);
  for (const Index queries : {1, 13, 260, 1001}) {
    const Index n = 3011, d = 30;
    const MatrixOf<TestType> q = random.normal_matrix(queries, d).template cast<TestType>();
    MatrixOf<TestType> c = random.normal_matrix(n, d).template cast<TestType>();
    c.bottomRows(n / 2) = c.topRows(n / 2);
    Ids query_ids, corpus_ids;
    for (Index j = 0; j < n; ++j) corpus_ids.push_back(j % 100);
    for (Index i = 0; i < queries; ++i) query_ids.push_back(i % 100);
    const auto measure = [&] {
      return std::vector<double>{recall_at_k(q, c, query_ids, corpus_ids, 10),
                                 mean_reciprocal_rank(q, c, query_ids, corpus_ids)};
    };
    const Threads one(1);
    const auto expected = top_k(q, c, 3), expected_many = top_k(q, c, 70);
    const std::vector<double> measures = measure();
    for (const int count : {2, 3, 8}) {
      const Threads several(count);
      CAPTURE(queries, count);
      CHECK(same_bits(top_k(q, c, 3), expected));
      CHECK(same_bits(top_k(q, c, 70), expected_many));
      CHECK(measure() == measures);
    }
    int equal = 0;
#pragma omp parallel num_threads(3) reduction(+ : equal)
    equal += same_bits(top_k(q, c, 3), expected) ? 1 : 0;
    CHECK(equal == 3);
  }
}
#endif

namespace {

template <class Call>
void check_refusal(const Call& call, const std::string& function,
                   const std::vector<std::string>& words,
                   const std::string& kind = "invalid_argument") {
  Refusal got;
  try {
    call();
  } catch (const std::invalid_argument& error) {
    got = {"invalid_argument", error.what()};
  } catch (const std::overflow_error& error) {
    got = {"overflow_error", error.what()};
  }
  check_message(got, kind, function, words);
}

/// Every function, in both forms, refuses q and c. Lists are given where the shapes allow them.
template <class T>
void check_all_refuse(const MatrixOf<T>& q, const MatrixOf<T>& c, Index k, Similarity similarity,
                      const std::vector<std::string>& words,
                      const std::string& kind = "invalid_argument") {
  TopK<T> result;
  result.indices.setConstant(1, 2, 77);
  result.scores.setConstant(1, 2, T(5));
  contrastive::Workspace workspace;
  check_refusal([&] { top_k(q, c, k, similarity, result, workspace); }, "top_k", words, kind);
  CHECK(result.indices == Eigen::Matrix<Index, 1, 2>::Constant(77));
  CHECK(result.scores == Eigen::Matrix<T, 1, 2>::Constant(T(5)));
  check_refusal([&] { (void)top_k(q, c, k, similarity); }, "top_k", words, kind);
  const Ids query_ids(static_cast<std::size_t>(q.rows()), 0);
  const Ids corpus_ids(static_cast<std::size_t>(c.rows()), 0);
  check_refusal([&] { (void)recall_at_k(q, c, query_ids, corpus_ids, k, similarity); },
                "recall_at_k", words, kind);
  check_refusal([&] { (void)mean_reciprocal_rank(q, c, query_ids, corpus_ids, similarity); },
                "mean_reciprocal_rank", words, kind);
  if (q.rows() != c.rows()) return;
  check_refusal([&] { (void)recall_at_k(q, c, k, similarity); }, "recall_at_k", words, kind);
  check_refusal([&] { (void)mean_reciprocal_rank(q, c, similarity); }, "mean_reciprocal_rank",
                words, kind);
}

}  // namespace

TEST_CASE("retrieval refuses shapes, k and contents that make no sense", "[retrieval][errors]") {
  using M = Eigen::MatrixXd;
  const M x = M::Ones(3, 4);
  check_all_refuse<double>(M::Ones(3, 4), M::Ones(3, 5), 1, Similarity::dot, {"3 x 4", "3 x 5"});
  check_all_refuse<double>(M::Ones(0, 4), M::Ones(0, 4), 1, Similarity::dot, {"queries", "0 x 4"});
  check_all_refuse<double>(x, M::Ones(0, 4), 1, Similarity::dot, {"corpus", "0 x 4"});
  check_all_refuse<double>(M::Ones(3, 0), M::Ones(3, 0), 1, Similarity::dot, {"queries", "3 x 0"});
  check_refusal([&] { (void)recall_at_k(x, M::Ones(5, 4), 1); }, "recall_at_k", {"3 x 4", "5 x 4"});
  check_refusal([&] { (void)mean_reciprocal_rank(x, M::Ones(5, 4)); }, "mean_reciprocal_rank",
                {"3 x 4", "5 x 4"});

  for (const Index k : {-1, 0, 6}) {
    const std::vector<std::string> words = k < 1
                                               ? std::vector<std::string>{"k", std::to_string(k)}
                                               : std::vector<std::string>{"k", "6", "corpus", "5"};
    const M five = M::Ones(5, 4);
    check_refusal([&] { (void)top_k(five, five, k); }, "top_k", words);
    check_refusal([&] { (void)recall_at_k(five, five, k); }, "recall_at_k", words);
    check_refusal([&] { (void)recall_at_k(five, five, first_ids(5), first_ids(5), k); },
                  "recall_at_k", words);
  }

  for (const double bad : {not_a_number, std::numeric_limits<double>::infinity()})
    for (const Similarity similarity : {Similarity::cosine, Similarity::dot}) {
      M y = x;
      y(1, 2) = bad;
      check_all_refuse<double>(y, x, 1, similarity, {"queries", "row 1", "column 2"});
      check_all_refuse<double>(x, y, 1, similarity, {"corpus", "row 1", "column 2"});
    }
  M y = x;
  y.row(2).setZero();
  check_all_refuse<double>(y, x, 1, Similarity::cosine, {"queries", "zero row", "row 2"});
  check_all_refuse<double>(x, y, 1, Similarity::cosine, {"corpus", "zero row", "row 2"});
  CHECK(top_k(y, x, 1, Similarity::dot).scores(2, 0) == 0);
}

TEST_CASE("retrieval refuses ids that do not fit", "[retrieval][errors]") {
  const Eigen::MatrixXd q = Eigen::MatrixXd::Ones(2, 4), c = Eigen::MatrixXd::Ones(3, 4);
  const auto check = [&](const Ids& items, const Ids& ids, const std::vector<std::string>& words) {
    check_refusal([&] { (void)recall_at_k(q, c, items, ids, 1); }, "recall_at_k", words);
    check_refusal([&] { (void)mean_reciprocal_rank(q, c, items, ids); }, "mean_reciprocal_rank",
                  words);
  };
  check({1}, {1, 2, 3}, {"query_item_ids", "1", "2"});
  check({1, 2}, {1, 2}, {"corpus_ids", "2", "3"});
  check({}, {1, 2, 3}, {"query_item_ids", "0", "2"});
  check({1, 2}, {}, {"corpus_ids", "0", "3"});
  check({1, 44}, {1, 2, 3}, {"query_item_ids[1]", "44", "corpus"});
}

TEMPLATE_TEST_CASE("retrieval refuses dot products that overflow", "[retrieval][errors]", float,
                   double) {
  const TestType huge = std::sqrt(std::numeric_limits<TestType>::max()) * TestType(2);
  MatrixOf<TestType> q = MatrixOf<TestType>::Ones(300, 3), c = MatrixOf<TestType>::Ones(300, 3);
  q(141, 1) = huge;
  c(260, 1) = huge;
  for (const TestType sign : {TestType(1), TestType(-1)}) {
    c(260, 1) = sign * huge;
    check_all_refuse<TestType>(q, c, 5, Similarity::dot, {"row 141", "row 260"}, "overflow_error");
  }
  // The norms alone say nothing: here no product overflows.
  c(260, 1) = 1;
  c(260, 2) = huge;
  q(141, 2) = 0;
  const auto [indices, scores] = top_k(q, c, 2, Similarity::dot);
  CHECK(scores(141, 0) == huge + TestType(1));
  CHECK(indices(0, 0) == 260);
  CHECK(mean_reciprocal_rank(q, c, Similarity::dot) > 0);
  // And cosines never do.
  CHECK(top_k(q, c, 2).scores.allFinite());
}

TEMPLATE_TEST_CASE("what a refused call left in the workspace does not matter", "[retrieval]",
                   float, double) {
  const TestType huge = std::sqrt(std::numeric_limits<TestType>::max()) * TestType(2);
  MatrixOf<TestType> q = MatrixOf<TestType>::Constant(100, 2, huge), c = q;
  c.col(1) *= TestType(-1);  // every score is inf - inf
  contrastive::Workspace workspace;
  TopK<TestType> result;
  CHECK_THROWS_AS(top_k(q, c, 1, Similarity::dot, result, workspace), std::overflow_error);
  Random random(109);
  const Matrix small_q = small_integers(40, 3, random), small_c = small_integers(5, 3, random);
  check_exact(
      top_k(small_q.cast<TestType>(), small_c.cast<TestType>(), 3, Similarity::dot, workspace),
      scores_of(small_q, small_c, Similarity::dot), 3);
}

TEMPLATE_TEST_CASE("retrieval of rows at the ends of the range", "[retrieval]", float, double) {
  const TestType most = std::numeric_limits<TestType>::max();
  const TestType least = std::numeric_limits<TestType>::denorm_min();
  MatrixOf<TestType> q(2, 2), c(3, 2);
  q << most, 0, 0, least;
  c << least, 0, most, most, 0, -least;
  const auto [indices, scores] = top_k(q, c, 3);
  CHECK(indices == (Eigen::Matrix<Index, 2, 3>() << 0, 1, 2, 1, 0, 2).finished());
  CHECK(scores(0, 0) == 1);
  CHECK(scores(1, 2) == -1);
  CHECK(std::abs(scores(1, 0) - std::sqrt(TestType(0.5))) <= 2 * epsilon<TestType>);
}
