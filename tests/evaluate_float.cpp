#include "support/evaluate.ipp"

namespace contrastive_tests {
CONTRASTIVE_TESTS_INSTANTIATE(float)
}  // namespace contrastive_tests
