// Bad input in a program without exceptions: the message must reach stderr before the abort.
#include <contrastive/contrastive.hpp>

int main() {
  const Eigen::MatrixXf q = Eigen::MatrixXf::Ones(3, 4), p = Eigen::MatrixXf::Ones(2, 4);
  return contrastive::info_nce_loss(q, p, contrastive::Temperature{1.0}) > 0 ? 0 : 1;
}
