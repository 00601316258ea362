#include <contrastive/contrastive.hpp>

float loss_in_other_file(const Eigen::MatrixXf& q, const Eigen::MatrixXf& p);

float loss_in_other_file(const Eigen::MatrixXf& q, const Eigen::MatrixXf& p) {
  return contrastive::info_nce_loss_grad(q, p, contrastive::Temperature{0.5}).loss;
}
