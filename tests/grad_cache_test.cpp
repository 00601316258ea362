// The gradient cache: a batch in chunks gives the gradients of the whole batch.
#include <algorithm>
#include <cmath>
#include <contrastive/contrastive.hpp>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
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

constexpr Index inputs = 6, hidden = 7, outputs = 4;

MatrixXd normal(std::uint64_t seed, Index rows, Index cols) {
  return Random(seed).normal_matrix(rows, cols).cast<double>();
}

/// What every row keeps of its hidden layer, by the seed alone.
MatrixXd dropout(std::uint64_t seed, Index rows) {
  Random random(seed);
  MatrixXd mask(rows, hidden);
  for (Index i = 0; i < rows; ++i)
    for (Index k = 0; k < hidden; ++k) mask(i, k) = random.integer(4) == 0 ? 0.0 : 4.0 / 3;
  return mask;
}

/// z = (mask tanh(x V)) W
struct Model {
  MatrixXd v = 0.5 * normal(601, inputs, hidden);
  MatrixXd w = 0.5 * normal(602, hidden, outputs);

  [[nodiscard]] MatrixXd forward(const MatrixXd& x, const MatrixXd& mask) const {
    return ((x * v).array().tanh() * mask.array()).matrix() * w;
  }
};

struct Gradient {
  MatrixXd v = MatrixXd::Zero(inputs, hidden);
  MatrixXd w = MatrixXd::Zero(hidden, outputs);

  void add(const Model& model, const MatrixXd& x, const MatrixXd& mask, const MatrixXd& dz) {
    const MatrixXd h = (x * model.v).array().tanh();
    w += h.cwiseProduct(mask).transpose() * dz;
    const MatrixXd dh = (dz * model.w.transpose()).cwiseProduct(mask);
    v += x.transpose() * (dh.array() * (1 - h.array().square())).matrix();
  }
};

/// Inputs of the three sides, and everything that the callables saw.
struct Data {
  Index batch, negatives;
  std::map<Side, MatrixXd> x;

  Data(Index b, Index m) : batch(b), negatives(m) {
    x[Side::query] = normal(611, b, inputs);
    x[Side::positive] = normal(612, b, inputs) + x[Side::query];
    x[Side::negative] = normal(613, m, inputs);
  }
};

using Call = std::tuple<Side, Index, Index, std::uint64_t>;

/// Runs `call(encode, backward)` and returns its result, the gradient that backward() gathered, and
/// the calls.
struct Run {
  Gradient gradient;
  std::vector<Call> encoded, decoded;

  template <class Function>
  auto operator()(const Model& model, const Data& data, const Function& call) {
    const auto encode = [&](Side side, Index first, Index count, std::uint64_t seed) {
      encoded.emplace_back(side, first, count, seed);
      CHECK(decoded.empty());
      return model.forward(data.x.at(side).middleRows(first, count), dropout(seed, count));
    };
    const auto backward = [&](Side side, Index first, Index count, std::uint64_t seed,
                              const auto& dz) {
      decoded.emplace_back(side, first, count, seed);
      CHECK((dz.rows() == count && dz.cols() == outputs));
      gradient.add(model, data.x.at(side).middleRows(first, count), dropout(seed, count), dz);
    };
    return call(encode, backward);
  }

  /// The masks of a whole side, from the seeds of its chunks.
  [[nodiscard]] MatrixXd mask(Side side, Index rows) const {
    MatrixXd all(rows, hidden);
    Index covered = 0;
    for (const auto& [s, first, count, seed] : encoded)
      if (s == side) {
        CHECK(first == covered);
        all.middleRows(first, count) = dropout(seed, count);
        covered += count;
      }
    CHECK(covered == rows);
    return all;
  }
};

/// The gradient of the whole batch at once, with the same masks.
struct Whole {
  const Model& model;
  const Data& data;
  const Run& run;
  Gradient gradient = {};

  [[nodiscard]] MatrixXd embeddings(Side side) const {
    const MatrixXd& x = data.x.at(side);
    return model.forward(x, run.mask(side, x.rows()));
  }
  void add(Side side, const MatrixXd& dz) {
    const MatrixXd& x = data.x.at(side);
    gradient.add(model, x, run.mask(side, x.rows()), dz);
  }
};

void check_close(const Gradient& got, const Gradient& expected) {
  CHECK((got.v - expected.v).cwiseAbs().maxCoeff() <= 1e-12 * expected.v.cwiseAbs().maxCoeff());
  CHECK((got.w - expected.w).cwiseAbs().maxCoeff() <= 1e-12 * expected.w.cwiseAbs().maxCoeff());
}

/// A product of fewer rows may sum in another order: embeddings differ in their last bits.
void check_close(double got, double expected) {
  CHECK(std::abs(got - expected) <= 1e-12 * std::abs(expected));
}

/// For losses of two matrices, whose results call the gradients what `first` and `second` take.
template <class Loss, class First, class Second>
void check_pair_loss(const Loss& loss, const First& first, const Second& second) {
  const Model model;
  for (const Index batch : {1, 5, 8})
    for (const Index chunk : {1, 2, 3, 5, 8, 100}) {
      CAPTURE(batch, chunk);
      const Data data(batch, 0);
      Run run;
      const auto got = run(model, data, [&](const auto& encode, const auto& backward) {
        return grad_cached(batch, chunk, encode, loss, backward, 42);
      });
      CHECK(run.encoded == run.decoded);
      CHECK(static_cast<Index>(run.encoded.size()) == 2 * ((batch + chunk - 1) / chunk));
      Whole whole{model, data, run};
      const auto expected = loss(whole.embeddings(Side::query), whole.embeddings(Side::positive));
      whole.add(Side::query, first(expected));
      whole.add(Side::positive, second(expected));
      check_close(static_cast<double>(got.loss), static_cast<double>(expected.loss));
      check_close(run.gradient, whole.gradient);
    }
}

const auto dQ_of = [](const auto& r) { return r.dQ; };
const auto dP_of = [](const auto& r) { return r.dP; };

}  // namespace

TEST_CASE("grad_cached: the losses of two matrices", "[cache]") {
  const LogScale scale{1.5};
  check_pair_loss([&](const MatrixXd& Q, const MatrixXd& P) { return clip_loss_grad(Q, P, scale); },
                  dQ_of, dP_of);
  check_pair_loss(
      [](const auto& Q, const auto& P) { return info_nce_loss_grad(Q, P, Temperature{0.2}); },
      dQ_of, dP_of);
  check_pair_loss([&](const auto& Q, const auto& P) { return siglip_loss_grad(Q, P, scale, -1.0); },
                  dQ_of, dP_of);
  check_pair_loss([](const auto& Za, const auto& Zb) { return alignment_loss_grad(Za, Zb); },
                  [](const auto& r) { return r.dZa; }, [](const auto& r) { return r.dZb; });
  const MatrixXd W = normal(621, 3, 3 * outputs);
  const Eigen::VectorXd b = normal(622, 3, 1);
  const std::vector<int> labels = {0, 2, 1, 1, 2, 0, 0, 1};
  check_pair_loss(
      [&](const auto& U, const auto& V) {
        const Eigen::Map<const Eigen::VectorXi> y(labels.data(), U.rows());
        return pair_classification_loss_grad(U, V, y, W, b);
      },
      [](const auto& r) { return r.dU; }, [](const auto& r) { return r.dV; });
}

TEST_CASE("grad_cached: hard negatives from a queue, which the encoder has no part in", "[cache]") {
  MemoryQueue<double> queue(6, outputs);
  queue.push(normal(631, 8, outputs));
  check_pair_loss(
      [&](const auto& Q, const auto& P) {
        return hard_negative_loss_grad(Q, P, queue.rows(), LogScale{1.0});
      },
      dQ_of, dP_of);
}

TEST_CASE("grad_cached: hard negatives and triplets, encoded too", "[cache]") {
  const Model model;
  const auto check = [&](Index batch, Index negatives, const auto& loss, const auto& first) {
    for (const Index chunk : {1, 2, 3, 5, 100}) {
      CAPTURE(batch, negatives, chunk);
      const Data data(batch, negatives);
      Run run;
      const auto got = run(model, data, [&](const auto& encode, const auto& backward) {
        return grad_cached(batch, negatives, chunk, encode, loss, backward, 43);
      });
      CHECK(run.encoded == run.decoded);
      Whole whole{model, data, run};
      const auto expected = loss(whole.embeddings(Side::query), whole.embeddings(Side::positive),
                                 whole.embeddings(Side::negative));
      whole.add(Side::query, first(expected));
      whole.add(Side::positive, expected.dP);
      whole.add(Side::negative, expected.dN);
      check_close(got.loss, expected.loss);
      check_close(run.gradient, whole.gradient);
    }
  };
  for (const Index negatives : {0, 1, 4, 12})
    check(
        5, negatives,
        [](const auto& Q, const auto& P, const auto& N) {
          return hard_negative_loss_grad(Q, P, N, LogScale{1.0});
        },
        dQ_of);
  check(
      5, 5,
      [](const auto& A, const auto& P, const auto& N) { return triplet_loss_grad(A, P, N, 1.0); },
      [](const auto& r) { return r.dA; });
}

TEST_CASE("grad_cached: a loss of one matrix", "[cache]") {
  const Model model;
  const auto loss = [](const auto& Z) { return uniformity_loss_grad(Z); };
  for (const Index chunk : {1, 2, 3, 7, 9}) {
    const Data data(7, 0);
    Run run;
    const auto got = run(model, data, [&](const auto& encode, const auto& backward) {
      return grad_cached(7, chunk, encode, loss, backward);
    });
    for (const auto& call : run.encoded) CHECK(std::get<0>(call) == Side::query);
    Whole whole{model, data, run};
    const auto expected = loss(whole.embeddings(Side::query));
    whole.add(Side::query, expected.dZ);
    check_close(got.loss, expected.loss);
    check_close(run.gradient, whole.gradient);
  }
}

TEST_CASE("grad_cached: the parameters' gradient by differences", "[cache]") {
  // No dropout, so that the loss is a function of the parameters alone.
  const Data data(5, 0);
  const Temperature tau{0.5};
  const auto encoder = [&](const Model& model) {
    return [&](Side side, Index first, Index count, std::uint64_t) {
      return model.forward(data.x.at(side).middleRows(first, count), MatrixXd::Ones(count, hidden));
    };
  };
  const Model model;
  Gradient gradient;
  const auto loss = [&](const auto& Q, const auto& P) { return info_nce_loss_grad(Q, P, tau); };
  grad_cached(5, 2, encoder(model), loss,
              [&](Side side, Index first, Index count, std::uint64_t, const auto& dz) {
                gradient.add(model, data.x.at(side).middleRows(first, count),
                             MatrixXd::Ones(count, hidden), dz);
              });
  const auto value = [&](const Model& moved) {
    const auto encode = encoder(moved);
    return info_nce_loss(encode(Side::query, 0, 5, 0), encode(Side::positive, 0, 5, 0), tau);
  };
  const auto of_v = [&](const MatrixXd& v) {
    Model moved = model;
    moved.v = v;
    return value(moved);
  };
  const auto of_w = [&](const MatrixXd& w) {
    Model moved = model;
    moved.w = w;
    return value(moved);
  };
  // Rounding of the value, 1e-16, over steps of 1e-6 and gradients of 0.1.
  CHECK(check_gradient(of_v, model.v, gradient.v).max_error <= 2e-8);
  CHECK(check_gradient(of_w, model.w, gradient.w).max_error <= 2e-8);
}

TEST_CASE("grad_cached: returns what the loss returned", "[cache]") {
  const Model model;
  const Data data(5, 0);
  Run run;
  const LogScale scale{1.0};
  const auto loss = [&](const auto& Q, const auto& P) { return clip_loss_grad(Q, P, scale); };
  const auto [value, dQ, dP, d_log_scale] =
      run(model, data, [&](const auto& encode, const auto& backward) {
        return grad_cached(5, 2, encode, loss, backward);
      });
  Whole whole{model, data, run};
  const auto expected = loss(whole.embeddings(Side::query), whole.embeddings(Side::positive));
  check_close(value, expected.loss);
  check_close(d_log_scale, expected.d_log_scale);
  CHECK((dQ - expected.dQ).norm() <= 1e-12 * expected.dQ.norm());
  CHECK((dP - expected.dP).norm() <= 1e-12 * expected.dP.norm());

  // Another struct, in float and row-major, from an encoder that returns an expression.
  using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  struct Own {
    int answer = 42;
    RowMajor dQ, dP;
  };
  const RowMajor table = RowMajor::Random(5, 3);
  RowMajor gathered = RowMajor::Zero(5, 3);
  const Own own = grad_cached(
      5, 2,
      [&](Side, Index first, Index count, std::uint64_t) { return table.middleRows(first, count); },
      [&](const RowMajor& Q, const RowMajor& P) {
        CHECK((Q == table && P == table));
        return Own{42, 2 * Q, 3 * P};
      },
      [&](Side, Index first, Index count, std::uint64_t, const RowMajor& dz) {
        gathered.middleRows(first, count) += dz;
      });
  CHECK(own.answer == 42);
  CHECK((gathered - 5 * table).norm() <= 1e-6f * table.norm());
}

TEST_CASE("grad_cached: seeds", "[cache]") {
  const Model model;
  const Data data(40, 40);
  const auto calls = [&](Index chunk, std::uint64_t base) {
    Run run;
    run(model, data, [&](const auto& encode, const auto& backward) {
      return grad_cached(
          40, 40, chunk, encode,
          [](const auto& Q, const auto& P, const auto& N) {
            return hard_negative_loss_grad(Q, P, N, Temperature{1});
          },
          backward, base);
    });
    return run.encoded;
  };
  std::set<std::uint64_t> seen;
  std::size_t total = 0;
  for (const std::uint64_t base : {0ULL, 1ULL, 2ULL, 3ULL, ~0ULL}) {
    for (const Call& call : calls(1, base)) seen.insert(std::get<3>(call));
    total += 120;
  }
  CHECK(seen.size() == total);  // all sides, chunks and base seeds

  // A function of side, first row and base seed, not of the chunk's length or of the call.
  CHECK(calls(4, 5) == calls(4, 5));
  std::map<std::pair<Side, Index>, std::uint64_t> seeds;
  for (const auto& [side, first, count, seed] : calls(4, 5)) seeds[{side, first}] = seed;
  for (const auto& [side, first, count, seed] : calls(8, 5)) CHECK(seeds[{side, first}] == seed);
}

TEST_CASE("grad_cached: what it refuses, before any backward()", "[cache]") {
  int backwards = 0;
  const auto backward = [&](Side, Index, Index, std::uint64_t, const auto&) { ++backwards; };
  const auto loss = [](const auto& Q, const auto& P) {
    return info_nce_loss_grad(Q, P, Temperature{1});
  };
  const auto ones = [](Side, Index, Index count, std::uint64_t) {
    return MatrixXd(MatrixXd::Ones(count, 3));
  };
  const auto refuses = [&](Index batch, Index chunk, const auto& encode, const std::string& text) {
    CHECK(message_of([&] { grad_cached(batch, chunk, encode, loss, backward); })
          == "grad_cached: " + text);
    CHECK(backwards == 0);
  };
  refuses(0, 2, ones, "the batch is 0, it must be at least 1");
  refuses(-3, 2, ones, "the batch is -3, it must be at least 1");
  refuses(5, 0, ones, "the chunk is 0, it must be at least 1");
  refuses(5, -1, ones, "the chunk is -1, it must be at least 1");

  const auto odd_at = [](Side odd_side, Index odd_first, const auto& odd) {
    return [=](Side side, Index first, Index count, std::uint64_t) {
      MatrixXd rows = MatrixXd::Ones(count, 3);
      if (side == odd_side && first == odd_first) odd(rows);
      return rows;
    };
  };
  refuses(5, 2, odd_at(Side::positive, 2, [](MatrixXd& rows) { MatrixXd(1, 3).swap(rows); }),
          "encode's chunk of Side::positive from row 2 is 1 x 3, it must have 2 rows and at least "
          "one column");
  refuses(5, 2, odd_at(Side::query, 0, [](MatrixXd& rows) { MatrixXd(2, 0).swap(rows); }),
          "encode's chunk of Side::query from row 0 is 2 x 0, it must have 2 rows and at least one "
          "column");
  refuses(5, 2, odd_at(Side::query, 4, [](MatrixXd& rows) { MatrixXd(1, 4).swap(rows); }),
          "encode's chunk of Side::query from row 4 is 1 x 4, but the first has 3 columns");
  refuses(5, 2,
          odd_at(Side::query, 2,
                 [](MatrixXd& rows) { rows(1, 2) = std::numeric_limits<double>::quiet_NaN(); }),
          "encode's chunk of Side::query from row 2 has nan at row 1, column 2");
  refuses(5, 2,
          odd_at(Side::positive, 4,
                 [](MatrixXd& rows) { rows(0, 0) = std::numeric_limits<double>::infinity(); }),
          "encode's chunk of Side::positive from row 4 has inf at row 0, column 0");

  // The loss refuses in its own name, and gradients must fit.
  CHECK(message_of([&] {
          grad_cached(5, 2, odd_at(Side::query, 4, [](MatrixXd& rows) { rows.setZero(); }), loss,
                      backward);
        })
        == "info_nce_loss_grad: Q has a zero row, row 4: a cosine needs a direction");
  struct Wrong {
    MatrixXd dQ, dP;
  };
  CHECK(message_of([&] {
          grad_cached(
              5, 2, ones,
              [](const MatrixXd& Q, const MatrixXd&) {
                return Wrong{Q, MatrixXd::Ones(4, 3)};
              },
              backward);
        })
        == "grad_cached: Side::positive is 5 x 3 but the loss returned a gradient of 4 x 3");
  CHECK(message_of([&] {
          grad_cached(
              5, -1, 2, ones,
              [](const auto& Q, const auto& P, const auto& N) {
                return hard_negative_loss_grad(Q, P, N, Temperature{1});
              },
              backward);
        })
        == "grad_cached: the number of negatives is -1, it must be at least 0");
  CHECK(backwards == 0);
}

TEST_CASE("grad_cached: the engine's own Side is another", "[cache]") {
  STATIC_REQUIRE(std::is_enum_v<contrastive::Side>);
  STATIC_REQUIRE(std::is_class_v<contrastive::detail::Side<float>>);
}
