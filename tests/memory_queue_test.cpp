// The queue of past embeddings, and the slow encoder's step.
#include <algorithm>
#include <cmath>
#include <contrastive/contrastive.hpp>
#include <deque>
#include <limits>
#include <string>
#include <utility>
#include <vector>

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

using Ids = std::vector<std::int64_t>;
using Row = std::vector<double>;

/// Rows that count: row i is (10 (first + i), 10 (first + i) + 1, ...).
MatrixXd counting(Index first, Index rows, Index d = 2) {
  MatrixXd m(rows, d);
  for (Index i = 0; i < rows; ++i)
    for (Index k = 0; k < d; ++k) m(i, k) = static_cast<double>(10 * (first + i) + k);
  return m;
}

Ids counting_ids(Index first, Index rows) {
  Ids ids;
  for (Index i = 0; i < rows; ++i) ids.push_back(first + i);
  return ids;
}

template <class T>
std::vector<Row> sorted_rows(const MemoryQueue<T>& queue) {
  std::vector<Row> rows;
  const auto view = queue.rows();
  for (Index i = 0; i < view.rows(); ++i) {
    Row row;
    for (Index k = 0; k < view.cols(); ++k) row.push_back(static_cast<double>(view(i, k)));
    rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

/// The numbers of counting() rows that the queue holds, in their own order. Each row must be whole
/// and, where there are ids, have its own.
Ids held(const MemoryQueue<double>& queue) {
  Ids numbers;
  const auto rows = queue.rows();
  REQUIRE(rows.rows() == queue.size());
  REQUIRE((queue.ids().empty() || queue.ids().size() == queue.size()));
  for (Index i = 0; i < rows.rows(); ++i) {
    const auto number = static_cast<Index>(rows(i, 0) / 10);
    CHECK(rows.row(i) == counting(number, 1, rows.cols()));
    if (!queue.ids().empty()) CHECK(queue.ids()[i] == number);
    numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

}  // namespace

TEST_CASE("queue: a size that is no multiple of the batch", "[queue]") {
  MemoryQueue<double> queue(5, 2);
  for (const Index first : {1, 3, 5}) queue.push(counting(first, 2), counting_ids(first, 2));
  CHECK(held(queue) == Ids{2, 3, 4, 5, 6});

  MemoryQueue<double> small(3, 2);
  small.push(counting(1, 5), counting_ids(1, 5));
  CHECK(held(small) == Ids{3, 4, 5});
}

TEST_CASE("queue: serves what it holds and nothing else", "[queue]") {
  MemoryQueue<double> queue(5, 2);
  CHECK((queue.empty() && queue.size() == 0 && queue.capacity() == 5 && queue.dim() == 2));
  CHECK((queue.rows().rows() == 0 && queue.rows().cols() == 2 && queue.ids().empty()));

  queue.push(counting(1, 2), counting_ids(1, 2));
  CHECK((queue.size() == 2 && !queue.empty() && queue.ids().size() == 2));
  CHECK(held(queue) == Ids{1, 2});
  queue.push(MatrixXd(0, 2), Ids{});
  queue.push(MatrixXd(0, 2));
  CHECK(held(queue) == Ids{1, 2});

  queue.clear();
  CHECK((queue.size() == 0 && queue.rows().rows() == 0 && queue.ids().empty()));
  queue.push(counting(7, 1));  // a new start: now without ids
  CHECK(held(queue) == Ids{7});
  CHECK(queue.ids().empty());
}

TEST_CASE("queue: rows() is where the rows are", "[queue]") {
  MemoryQueue<float> queue(4, 3);
  queue.push(MatrixXf::Ones(2, 3));
  const float* where = queue.rows().data();
  queue.push(MatrixXf::Ones(4, 3));
  CHECK(queue.rows().data() == where);
}

TEMPLATE_TEST_CASE("queue: random sequences against std::deque", "[queue]", float, double,
                   long double) {
  using Matrix = Eigen::Matrix<TestType, Eigen::Dynamic, Eigen::Dynamic>;
  Random random(301);
  for (int sequence = 0; sequence < 60; ++sequence) {
    const Index capacity = 1 + random.integer(12), d = 1 + random.integer(4);
    const bool with_ids = sequence % 2 == 0;
    MemoryQueue<TestType> queue(capacity, d);
    std::deque<std::pair<Row, std::int64_t>> expected;
    std::int64_t next_id = 0;
    for (int step = 0; step < 30; ++step) {
      if (random.integer(12) == 0) {
        queue.clear();
        expected.clear();
      }
      const Index n = random.integer(2 * capacity + 2);
      const Matrix rows = random.normal_matrix(n, d).template cast<TestType>();
      Ids ids;
      for (Index i = 0; i < n; ++i) {
        Row row;
        for (Index k = 0; k < d; ++k) row.push_back(static_cast<double>(rows(i, k)));
        expected.emplace_back(row, next_id);
        ids.push_back(next_id++);
        if (static_cast<Index>(expected.size()) > capacity) expected.pop_front();
      }
      with_ids ? queue.push(rows, ids) : queue.push(rows);

      REQUIRE(queue.size() == static_cast<Index>(expected.size()));
      std::vector<Row> expected_rows;
      for (const auto& [row, id] : expected) expected_rows.push_back(row);
      std::sort(expected_rows.begin(), expected_rows.end());
      CHECK(sorted_rows(queue) == expected_rows);
      REQUIRE(queue.ids().size() == (with_ids ? queue.size() : 0));
      for (Index i = 0; i < queue.ids().size(); ++i) {
        const auto& [row, id] =
            expected[static_cast<std::size_t>(queue.ids()[i] - expected.front().second)];
        CHECK(id == queue.ids()[i]);
        for (Index k = 0; k < d; ++k)
          CHECK(static_cast<double>(queue.rows()(i, k)) == row[static_cast<std::size_t>(k)]);
      }
    }
  }
}

TEST_CASE("queue: any Eigen expression", "[queue]") {
  const MatrixXd rows = counting(1, 6, 3);
  const Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> by_rows = rows;
  const MatrixXd turned = rows.transpose();
  const auto holds = [](const auto& expression, const Ids& expected) {
    MemoryQueue<double> queue(4, 3);
    queue.push(expression);
    CHECK(held(queue) == expected);
  };
  holds(rows, {3, 4, 5, 6});
  holds(by_rows, {3, 4, 5, 6});
  holds(rows.middleRows(1, 2), {2, 3});
  holds(turned.transpose(), {3, 4, 5, 6});
  holds(rows.colwise().reverse(), {1, 2, 3, 4});
  holds(MatrixXd::Identity(6, 6) * rows, {3, 4, 5, 6});
  holds(rows.row(2), {3});
  holds(Eigen::Map<const MatrixXd, 0, Eigen::Stride<6, 2>>(rows.data(), 3, 3), {1, 3, 5});

  // Ids that lie apart.
  Eigen::Matrix<std::int64_t, Eigen::Dynamic, Eigen::Dynamic> table(2, 6);
  table.row(0).setConstant(-1);
  table.row(1) << 1, 2, 3, 4, 5, 6;
  MemoryQueue<double> queue(4, 3);
  queue.push(rows, table.row(1));
  CHECK(held(queue) == Ids{3, 4, 5, 6});
}

TEST_CASE("queue: rows of its own", "[queue]") {
  // Slots 0, 1, 2 hold rows 4, 5, 3: the next goes to slot 2.
  const auto full = [] {
    MemoryQueue<double> queue(3, 2);
    for (const Index first : {1, 4}) queue.push(counting(first, first == 1 ? 3 : 2));
    return queue;
  };
  MemoryQueue<double> queue = full();
  REQUIRE(queue.rows().col(0) == Eigen::Vector3d(40, 50, 30));
  queue.push(queue.rows());  // all of them again, each one slot further
  CHECK(queue.rows().col(0) == Eigen::Vector3d(50, 30, 40));
  queue = full();
  queue.push(queue.rows().topRows(2));  // 3 and 4 are the oldest and go
  CHECK(queue.rows().col(0) == Eigen::Vector3d(50, 50, 40));
  queue = full();
  queue.push(queue.rows().colwise().reverse());
  CHECK(queue.rows().col(0) == Eigen::Vector3d(50, 40, 30));
  queue = full();
  queue.push(2 * queue.rows().bottomRows(2));
  CHECK(queue.rows().col(0) == Eigen::Vector3d(60, 50, 100));

  MemoryQueue<double> square(2, 2);
  square.push(counting(1, 2));
  square.push(square.rows().transpose());
  CHECK(square.rows() == counting(1, 2).transpose());

  // Ids of its own.
  MemoryQueue<double> with_ids(3, 2);
  with_ids.push(counting(1, 3), counting_ids(1, 3));
  with_ids.push(counting(4, 1), counting_ids(4, 1));
  with_ids.push(with_ids.rows(), with_ids.ids());
  CHECK(with_ids.rows().col(0) == Eigen::Vector3d(30, 40, 20));
  CHECK(held(with_ids) == Ids{2, 3, 4});
}

TEST_CASE("queue: copies are their own, moves carry everything along", "[queue]") {
  MemoryQueue<double> queue(3, 2);
  queue.push(counting(1, 2), counting_ids(1, 2));
  MemoryQueue<double> copy = queue;
  copy.push(counting(3, 2), counting_ids(3, 2));
  CHECK(held(queue) == Ids{1, 2});
  CHECK(held(copy) == Ids{2, 3, 4});
  const MemoryQueue<double> moved = std::move(copy);
  CHECK(held(moved) == Ids{2, 3, 4});
}

TEST_CASE("queue: as the negatives of a loss", "[queue]") {
  Random random(302);
  const Index d = 5;
  MemoryQueue<double> queue(7, d);
  const MatrixXd q = random.normal_matrix(3, d).cast<double>();
  const MatrixXd p = random.normal_matrix(3, d).cast<double>();
  const Ids ids = {100, 101, 102};
  SoftmaxOptions options;
  options.pos_ids = ids;
  const Temperature tau{0.3};
  // Not filled yet: no negatives but the batch's.
  options.neg_ids = queue.ids();
  // The same but for roundings, as a small batch of InfoNCE has a path of its own.
  const double alone = info_nce_loss(q, p, tau);
  CHECK(std::abs(hard_negative_loss(q, p, queue.rows(), tau, options) - alone) < 1e-15 * alone * 8);

  // Filled and turned over, and one row in it is a positive of the batch: it is masked.
  const MatrixXd old = random.normal_matrix(9, d).cast<double>();
  queue.push(old, counting_ids(0, 9));
  queue.push(p.row(1), Ids{101});
  MatrixXd negatives(7, d);  // by age
  negatives << old.bottomRows(6), p.row(1);
  const Ids negative_ids = {3, 4, 5, 6, 7, 8, 101};
  options.neg_ids = queue.ids();
  const auto got = hard_negative_loss_grad(q, p, queue.rows(), tau, options);
  options.neg_ids = negative_ids;
  const auto expected = hard_negative_loss_grad(q, p, negatives, tau, options);
  // The sums are the same but for the order of their terms, here up to 10.
  CHECK(std::abs(got.loss - expected.loss) <= 1e-14 * expected.loss);
  CHECK((got.dQ - expected.dQ).norm() <= 1e-14 * expected.dQ.norm());
  CHECK((got.dP - expected.dP).norm() <= 1e-14 * expected.dP.norm());
  for (Index i = 0; i < 7; ++i) {
    const auto at = std::find(negative_ids.begin(), negative_ids.end(), queue.ids()[i]);
    const Index m = at - negative_ids.begin();
    CHECK((got.dN.row(i) - expected.dN.row(m)).norm() <= 1e-14 * expected.dN.norm());
  }
  CHECK(expected.loss < hard_negative_loss(q, p, negatives, tau));  // unmasked
}

TEST_CASE("queue: what it refuses, and that it is then what it was", "[queue]") {
  CHECK(message_of([] { MemoryQueue<float>(0, 3); })
        == "MemoryQueue: capacity is 0, it must be at least 1");
  CHECK(message_of([] { MemoryQueue<float>(-4, 3); })
        == "MemoryQueue: capacity is -4, it must be at least 1");
  CHECK(message_of([] { MemoryQueue<float>(3, 0); })
        == "MemoryQueue: d is 0, it must be at least 1");

  MemoryQueue<double> queue(4, 2), no_ids(4, 2);
  queue.push(counting(1, 6), counting_ids(1, 6));
  no_ids.push(counting(1, 6));
  const MatrixXd before = queue.rows();
  const auto refuses = [&](MemoryQueue<double>& q, const MatrixXd& rows, const Ids& ids,
                           const std::string& message) {
    CHECK(message_of([&] { q.push(rows, ids); }) == "MemoryQueue::push: " + message);
    CHECK(q.rows() == before);
    CHECK(held(q) == Ids{3, 4, 5, 6});
  };
  const Ids two = {7, 8};
  refuses(queue, counting(7, 2, 3), two, "rows is 2 x 3 but the queue holds rows of 2");
  refuses(queue, MatrixXd(0, 3), {}, "rows is 0 x 3 but the queue holds rows of 2");
  refuses(queue, counting(7, 3), two, "ids has 2 entries, but rows has 3");
  refuses(queue, MatrixXd(0, 2), two, "ids has 2 entries, but rows has 0");
  refuses(queue, counting(7, 2), {}, "ids are missing, but the rows in the queue have some");
  refuses(no_ids, counting(7, 2), two, "ids are given, but the rows in the queue have none");
  for (const double bad : {not_a_number, infinity, -infinity}) {
    MatrixXd rows = counting(7, 9);
    rows(1, 1) = bad;  // a row that would not be kept
    const std::string what = bad > 0 ? "inf" : bad < 0 ? "-inf" : "nan";
    refuses(no_ids, rows, {}, "rows has " + what + " at row 1, column 1");
  }
}

// ---- momentum_update ----------------------------------------------------------------------------

TEMPLATE_TEST_CASE("momentum_update: the formula", "[queue]", float, double, long double) {
  using Matrix = Eigen::Matrix<TestType, Eigen::Dynamic, Eigen::Dynamic>;
  Random random(303);
  const contrastive_tests::Matrix s = random.normal_matrix(5, 3), f = random.normal_matrix(5, 3);
  // One rounding of a sum of terms of up to 4, and where T is no narrower than the arithmetic one
  // for each of the four operations.
  const auto tolerance = 16 * static_cast<long double>(std::numeric_limits<TestType>::epsilon());
  for (const double m : {0.0, 0.25, 0.5, 0.9, 0.999, 1.0}) {
    Matrix slow = s.cast<TestType>();
    momentum_update(slow, f.cast<TestType>(), m);
    const contrastive_tests::Matrix expected = m * s + (1 - static_cast<long double>(m)) * f;
    const contrastive_tests::Matrix got = slow.template cast<long double>();
    CHECK((got - expected).cwiseAbs().maxCoeff() <= tolerance);
    if (m == 0) CHECK(got == f);
    if (m == 1) CHECK(got == s);
  }
  Matrix slow = s.cast<TestType>();
  momentum_update(slow, s.cast<TestType>(), 0.999);  // nothing to follow
  CHECK((slow.template cast<long double>() - s).cwiseAbs().maxCoeff() <= tolerance / 8);
}

TEST_CASE("momentum_update: whatever can be written to", "[queue]") {
  Random random(304);
  const MatrixXd s = random.normal_matrix(4, 3).cast<double>();
  const MatrixXd f = random.normal_matrix(4, 3).cast<double>();
  const MatrixXd expected = 0.75 * s + 0.25 * f;  // exact steps: same order of operations
  MatrixXd slow = s;
  momentum_update(slow, f, 0.75);
  CHECK(slow == expected);

  Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> by_rows = s;
  momentum_update(by_rows, f, 0.75);
  CHECK(by_rows == expected);

  slow = s;
  Eigen::Map<MatrixXd> map(slow.data(), 4, 3);
  momentum_update(map, f, 0.75);
  CHECK(slow == expected);

  slow = s;
  const Eigen::Map<MatrixXd> const_map(slow.data(), 4, 3);
  momentum_update(const_map, f, 0.75);
  CHECK(slow == expected);

  slow = s;
  Eigen::Ref<MatrixXd> ref(slow);
  momentum_update(ref, f, 0.75);
  CHECK(slow == expected);

  slow = s;
  momentum_update(slow.block(1, 1, 2, 2), f.block(1, 1, 2, 2), 0.75);
  CHECK(slow.block(1, 1, 2, 2) == expected.block(1, 1, 2, 2));
  CHECK(slow.row(0) == s.row(0));

  slow = s;
  momentum_update(slow.transpose(), f.transpose(), 0.75);
  CHECK(slow == expected);

  slow = s;
  const std::vector<int> rows = {2, 0}, columns = {0, 1, 2};
  momentum_update(slow(rows, columns), f(rows, columns), 0.75);
  CHECK((slow.row(2) == expected.row(2) && slow.row(0) == expected.row(0)));
  CHECK((slow.row(1) == s.row(1) && slow.row(3) == s.row(3)));

  Eigen::VectorXd vector = s.col(0);
  momentum_update(vector, f.col(0), 0.75);
  CHECK(vector == expected.col(0));
  Eigen::RowVector3d row = s.row(0);
  momentum_update(row, f.row(0), 0.75);
  CHECK(row == expected.row(0));

  MatrixXd nothing(0, 3);
  momentum_update(nothing, MatrixXd(0, 3), 0.75);
}

TEST_CASE("momentum_update: fast may read slow", "[queue]") {
  Random random(305);
  const MatrixXd s = random.normal_matrix(3, 3).cast<double>();
  const MatrixXd expected = 0.5 * s + 0.5 * s.transpose();
  MatrixXd slow = s;
  momentum_update(slow, slow.transpose(), 0.5);
  CHECK(slow == expected);
  slow = s;
  momentum_update(slow.topRows(2), slow.bottomRows(2), 0.5);
  CHECK(slow.row(0) == 0.5 * s.row(0) + 0.5 * s.row(1));
  CHECK(slow.row(1) == 0.5 * s.row(1) + 0.5 * s.row(2));
  slow = s;
  momentum_update(slow, 3 * slow, 0.5);
  CHECK(slow == 2 * s);
  slow = s;
  const std::vector<int> rows = {1, 2}, columns = {0, 1, 2};
  momentum_update(slow(rows, columns), slow.topRows(2), 0.5);
  CHECK(slow.row(1) == 0.5 * s.row(1) + 0.5 * s.row(0));
  CHECK(slow.row(2) == 0.5 * s.row(2) + 0.5 * s.row(1));
}

TEST_CASE("momentum_update: what it refuses", "[queue]") {
  const MatrixXd s = counting(1, 2), f = counting(3, 2);
  MatrixXd slow = s;
  const auto refuses = [&](const MatrixXd& fast, double m, const std::string& message) {
    CHECK(message_of([&] { momentum_update(slow, fast, m); }) == "momentum_update: " + message);
    CHECK(slow == s);
  };
  refuses(counting(3, 3), 0.5, "slow is 2 x 2 but fast is 3 x 2, they must have the same shape");
  refuses(f, -0.1, "momentum is -0.1, it must be from 0 to 1");
  refuses(f, 1.5, "momentum is 1.5, it must be from 0 to 1");
  refuses(f, not_a_number, "momentum is nan, it must be from 0 to 1");
  MatrixXd bad = f;
  bad(1, 0) = infinity;
  refuses(bad, 1, "fast has inf at row 1, column 0");
  bad = s;
  bad(0, 1) = not_a_number;
  CHECK(message_of([&] { momentum_update(bad, f, 0); })
        == "momentum_update: slow has nan at row 0, column 1");
}
