// Problems written by hand, in few words.
#ifndef CONTRASTIVE_TESTS_SUPPORT_BUILD_HPP
#define CONTRASTIVE_TESTS_SUPPORT_BUILD_HPP

#include <initializer_list>
#include <utility>
#include <vector>

#include "problem.hpp"

namespace contrastive_tests {

inline Matrix matrix(std::initializer_list<std::initializer_list<double>> rows) {
  Matrix m(static_cast<Index>(rows.size()), static_cast<Index>(rows.begin()->size()));
  Index i = 0;
  for (const auto& row : rows) {
    Index j = 0;
    for (const double x : row) m(i, j++) = x;
    ++i;
  }
  return m;
}

inline Matrix identity(Index n) {
  return Matrix::Identity(n, n);
}

/// A loss of rows as they are, at a temperature.
inline Problem dot_problem(Loss loss, std::vector<Matrix> inputs, double temperature) {
  Problem problem;
  problem.loss = loss;
  problem.inputs = std::move(inputs);
  problem.temperature = temperature;
  problem.cosine = false;
  return problem;
}

/// The same with a learned scale.
inline Problem learned_dot_problem(Loss loss, std::vector<Matrix> inputs, double log_scale,
                                   double max_scale = 100) {
  Problem problem = dot_problem(loss, std::move(inputs), 1);
  problem.learned = true;
  problem.log_scale = log_scale;
  problem.max_scale = max_scale;
  return problem;
}

/// A loss on a matrix of similarities: Q = I and P = S^T give it under dot.
inline Problem similarities_problem(Loss loss, const Matrix& similarities, double temperature) {
  return dot_problem(loss, {identity(similarities.rows()), Matrix(similarities.transpose())},
                     temperature);
}

inline Problem logits_problem(Loss loss, const Matrix& logits) {
  Problem problem;
  problem.loss = loss;
  problem.inputs = {logits};
  return problem;
}

/// The same problem with all weight on one row: its loss is that row's.
inline Problem only_row(Problem problem, Index row) {
  problem.weights.assign(static_cast<std::size_t>(problem.batch()), 0.0);
  problem.weights[static_cast<std::size_t>(row)] = 1;
  return problem;
}

}  // namespace contrastive_tests

#endif
