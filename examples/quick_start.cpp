// Two matrices of embeddings in, a loss and its gradients out, and one step down the gradients.
#include <contrastive/contrastive.hpp>
#include <iostream>

int main() {
  Eigen::MatrixXf queries(3, 2), positives(3, 2);  // row i of one belongs to row i of the other
  queries << 1.0f, 0.2f, 0.1f, 1.0f, -1.0f, 0.3f;
  positives << 0.9f, -0.3f, 0.6f, 0.8f, -0.5f, -0.8f;
  const contrastive::Temperature temperature{0.1};

  const auto [loss, d_queries, d_positives] =
      contrastive::info_nce_loss_grad(queries, positives, temperature);
  std::cout.precision(4);
  std::cout << "loss      " << loss << "\nd_queries\n" << d_queries << "\n";

  queries -= 0.1f * d_queries;  // a trainer would carry them on through its encoder
  positives -= 0.1f * d_positives;
  const float after = contrastive::info_nce_loss(queries, positives, temperature);
  std::cout << "after     " << after << "\n";
  return after < loss ? 0 : 1;
}
