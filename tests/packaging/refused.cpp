// Compiled with one EXPRESSION, which the library must refuse with a static_assert, or accept.
#include <contrastive/contrastive.hpp>
#include <cstdint>
#include <vector>

int main() {
  using namespace contrastive;
  [[maybe_unused]] const Eigen::MatrixXf f = Eigen::MatrixXf::Ones(2, 2);
  [[maybe_unused]] const Eigen::MatrixXd d = Eigen::MatrixXd::Ones(2, 2);
  [[maybe_unused]] const Eigen::MatrixXi i = Eigen::MatrixXi::Ones(2, 2);
  [[maybe_unused]] const std::vector<int> ints{1, 2};
  [[maybe_unused]] const std::vector<std::int64_t> ids{1, 2};
  [[maybe_unused]] const std::vector<float> floats{1, 2};
  [[maybe_unused]] const std::vector<double> doubles{1, 2};
  [[maybe_unused]] const Temperature tau{1.0};
  [[maybe_unused]] SoftmaxOptions options;
  [[maybe_unused]] MemoryQueue<float> queue(4, 2);
  [[maybe_unused]] Eigen::MatrixXf slow = f;
  [[maybe_unused]] const Eigen::MatrixXf w = Eigen::MatrixXf::Ones(2, 6);
  [[maybe_unused]] const Eigen::VectorXf b = Eigen::VectorXf::Ones(2);
  (void)(EXPRESSION);
}
