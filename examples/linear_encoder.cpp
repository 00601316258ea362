// Why pulling pairs together is not enough: the same linear encoder trained twice, once with
// InfoNCE, which pulls pairs together and pushes everything else apart, and once with the pulling
// alone.
//
// Every example has a hidden meaning h of 6 numbers. It is seen twice, through two fixed random
// maps and with noise of its own:
//
//     x_a = M_a h + noise,    x_b = M_b h + noise          (32 numbers each)
//
// The encoder is z = W x + b, the same for both views, and knows nothing of h. Having a bias, it
// can cheat: once b outweighs W x, all inputs land on one point of the sphere, and every pair
// agrees. That is collapse: alignment 0, as good as can be, and uniformity 0, as bad as can be.
//
// T. Wang and P. Isola, "Understanding Contrastive Representation Learning through Alignment and
// Uniformity on the Hypersphere", 2020, arXiv:2005.10242.
#include <cmath>
#include <contrastive/contrastive.hpp>
#include <cstdint>
#include <cstdio>
#include <random>

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::RowVectorXd;

constexpr Index meaning_size = 6, view_size = 32, embedding_size = 8;
constexpr Index batch_size = 128, held_out_size = 500;
constexpr double noise = 0.5;
constexpr double pi = 3.14159265358979323846;

// Normally distributed numbers by Box and Muller: std::normal_distribution differs from one
// standard library to the next.
class Normal {
 public:
  explicit Normal(std::uint64_t seed) : bits_(seed) {}

  MatrixXd matrix(Index rows, Index cols) {
    MatrixXd m(rows, cols);
    for (double& entry : m.reshaped()) entry = next();
    return m;
  }

 private:
  double uniform() { return (static_cast<double>(bits_() >> 11) + 0.5) * 0x1p-53; }  // in (0, 1)

  double next() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * pi * uniform());
  }

  std::mt19937_64 bits_;
};

// The world: pairs of views, one example a row.
struct World {
  MatrixXd map_a, map_b;  // M_a', M_b', (6 x 32)

  explicit World(Normal& normal)
      : map_a(normal.matrix(meaning_size, view_size)),
        map_b(normal.matrix(meaning_size, view_size)) {}

  struct Pairs {
    MatrixXd a, b;  // (count x 32)
  };

  Pairs draw(Index count, Normal& normal) const {
    const MatrixXd h = normal.matrix(count, meaning_size);
    return {h * map_a + noise * normal.matrix(count, view_size),
            h * map_b + noise * normal.matrix(count, view_size)};
  }
};

// z = W x + b for every row of X, and its backward pass.
struct Encoder {
  MatrixXd weight;   // W, (8 x 32)
  RowVectorXd bias;  // b

  MatrixXd operator()(const MatrixXd& x) const { return (x * weight.transpose()).rowwise() + bias; }
};

// Adam, for one parameter.
class Adam {
 public:
  template <class Parameter, class Gradient>
  void step(Parameter& parameter, const Gradient& gradient) {
    if (t_ == 0) mean_ = square_ = MatrixXd::Zero(gradient.rows(), gradient.cols());
    ++t_;
    mean_ = 0.9 * mean_ + 0.1 * gradient;
    square_ = 0.999 * square_ + 0.001 * gradient.cwiseAbs2();
    const double mean_scale = 1 / (1 - std::pow(0.9, t_));
    const double square_scale = 1 / (1 - std::pow(0.999, t_));
    parameter.array() -= learning_rate * mean_scale * mean_.array()
                         / ((square_scale * square_.array()).sqrt() + 1e-8);
  }

 private:
  static constexpr double learning_rate = 0.01;
  MatrixXd mean_, square_;
  int t_ = 0;
};

// Trains with `loss_grad`, which takes the embeddings of both views, (B x 8) each, and returns the
// loss and its gradients by them.
template <class LossGrad>
Encoder train(const World& world, int steps, LossGrad loss_grad) {
  Normal normal(2);
  Encoder encoder{0.1 * normal.matrix(embedding_size, view_size),
                  RowVectorXd::Zero(embedding_size)};
  Adam weight_step, bias_step;
  for (int step = 0; step < steps; ++step) {
    const auto [x_a, x_b] = world.draw(batch_size, normal);
    const auto [loss, dz_a, dz_b] = loss_grad(encoder(x_a), encoder(x_b));

    // z = W x + b, row by row, so dL/dW = sum over rows of dL/dz x' and dL/db = sum of dL/dz;
    // both views went through the same W and b, so both add to it.
    const MatrixXd d_weight = dz_a.transpose() * x_a + dz_b.transpose() * x_b;
    const RowVectorXd d_bias = dz_a.colwise().sum() + dz_b.colwise().sum();
    weight_step.step(encoder.weight, d_weight);
    bias_step.step(encoder.bias, d_bias);
  }
  return encoder;
}

// The share of first views whose nearest second view, by cosine, is their own.
double recall_at_1(const MatrixXd& z_a, const MatrixXd& z_b) {
  const MatrixXd cosines = z_a.rowwise().normalized() * z_b.rowwise().normalized().transpose();
  Index found = 0;
  for (Index i = 0; i < cosines.rows(); ++i) {
    Index nearest = 0;
    cosines.row(i).maxCoeff(&nearest);
    found += nearest == i;
  }
  return static_cast<double>(found) / static_cast<double>(cosines.rows());
}

struct Score {
  double alignment, uniformity, recall;
};

Score report(const char* name, const Encoder& encoder, const World::Pairs& held_out) {
  const MatrixXd z_a = encoder(held_out.a), z_b = encoder(held_out.b);
  const auto [alignment, uniformity] = contrastive::alignment_uniformity(z_a, z_b);
  const Score score{alignment, uniformity, recall_at_1(z_a, z_b)};
  const auto rounded = [](double x) { return std::round(1000 * x) / 1000 + 0.0; };  // no -0.000
  std::printf("%-12s %9.3f %11.3f %9.3f\n", name, rounded(alignment), rounded(uniformity),
              score.recall);
  return score;
}

int main() {
  Normal normal(1);
  const World world(normal);
  const World::Pairs held_out = world.draw(held_out_size, normal);

  const Encoder contrasted = train(world, 500, [](const MatrixXd& z_a, const MatrixXd& z_b) {
    return contrastive::info_nce_loss_grad(z_a, z_b, contrastive::Temperature{0.1});
  });
  // The pulling goes on until the bias has drowned everything else: for some thousand steps more
  // than alignment and uniformity need to print as 0.000, retrieval still lives on their further
  // digits.
  const Encoder pulled = train(world, 2500, [](const MatrixXd& z_a, const MatrixXd& z_b) {
    return contrastive::alignment_loss_grad(z_a, z_b);
  });

  std::printf("%-12s %9s %11s %9s\n", "trained with", "alignment", "uniformity", "recall@1");
  const Score info_nce = report("InfoNCE", contrasted, held_out);
  const Score pulling = report("pulling only", pulled, held_out);

  const bool retrieves = info_nce.recall > 0.85;
  const bool collapsed =
      pulling.alignment < 0.0005 && pulling.uniformity > -0.0005 && pulling.recall < 0.02;
  if (!retrieves) std::printf("InfoNCE did not learn to retrieve\n");
  if (!collapsed) std::printf("pulling alone did not collapse\n");
  return retrieves && collapsed ? 0 : 1;
}
