// A user's program in two translation units that both use the library.
#include <contrastive/contrastive.hpp>
#include <cstdio>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

float loss_in_other_file(const Eigen::MatrixXf& q, const Eigen::MatrixXf& p);

int main() {
  const Eigen::MatrixXf q = Eigen::MatrixXf::Identity(4, 4), p = q;
  const auto result = contrastive::info_nce_loss_grad(q, p, contrastive::Temperature{0.5});
  const float other = loss_in_other_file(q, p);
  std::printf("contrastive %s: %.6f %.6f\n",
              TEXT(CONTRASTIVE_VERSION_MAJOR) "." TEXT(CONTRASTIVE_VERSION_MINOR) "." TEXT(
                  CONTRASTIVE_VERSION_PATCH),
              static_cast<double>(result.loss), static_cast<double>(other));
  return result.loss > 0 && !(result.loss < other) && !(result.loss > other) ? 0 : 1;
}
