#include "support/evaluate.ipp"

namespace contrastive_tests {
CONTRASTIVE_TESTS_INSTANTIATE(double)
}  // namespace contrastive_tests
