// Options as C++20 lets one write them.
#include <contrastive/contrastive.hpp>
#include <vector>

#include "support/catch.hpp"
#include "support/random.hpp"

#if __cplusplus >= 202002L

using namespace contrastive;

TEST_CASE("designated initialisers", "[forms]") {
  contrastive_tests::Random random(17);
  const Eigen::MatrixXd Q = random.normal_matrix(4, 3).cast<double>();
  const Eigen::MatrixXd P = random.normal_matrix(4, 3).cast<double>();
  const std::vector<std::int64_t> ids = {1, 2, 1, 3};
  const std::vector<double> weights = {1, 2, 3, 4};
  SoftmaxOptions options;
  options.similarity = Similarity::dot;
  options.pos_ids = ids;
  options.weights = weights;
  CHECK(clip_loss(Q, P, Temperature{.tau = 0.5},
                  {.similarity = Similarity::dot, .pos_ids = ids, .weights = weights})
        == clip_loss(Q, P, Temperature{0.5}, options));
  options = {};
  options.scope = NegativeScope::own;
  CHECK(hard_negative_loss(Q, P, Q, LogScale{.alpha = 1, .max_scale = no_limit},
                           {.query_ids = {},
                            .pos_ids = {},
                            .neg_ids = {},
                            .weights = {},
                            .scope = NegativeScope::own,
                            .neg_offsets = {}})
        == hard_negative_loss(Q, P, Q, LogScale{1, no_limit}, options));
  options = {};
  options.label_smoothing = 0.1;
  options.positive_margin = 0.2;
  options.decoupled = true;
  options.log_prior = weights;
  options.false_negative_margin = 0.05;
  CHECK(clip_loss(Q, P, Temperature{.tau = 0.5},
                  {.label_smoothing = 0.1,
                   .positive_margin = 0.2,
                   .decoupled = true,
                   .log_prior = weights,
                   .false_negative_margin = 0.05})
        == clip_loss(Q, P, Temperature{0.5}, options));
  CHECK(
      info_nce_loss(Q, P, Temperature{0.5},
                    {.neg_offsets = {}, .label_smoothing = 1, .false_negative_margin = 0})
      == info_nce_loss(Q, P, Temperature{0.5}, {.label_smoothing = 1, .false_negative_margin = 0}));
  SigLipOptions sigmoid;
  sigmoid.query_ids = ids;
  sigmoid.weights = weights;
  CHECK(siglip_loss(Q, P, Temperature{0.5}, -1, {.query_ids = ids, .weights = weights})
        == siglip_loss(Q, P, Temperature{0.5}, -1, sigmoid));
}

#endif
