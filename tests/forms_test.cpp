// The calls as a user writes them: names, structured bindings, defaults, kinds of Eigen arguments.
#include <contrastive/contrastive.hpp>
#include <type_traits>

#include "support/catch.hpp"
#include "support/random.hpp"

using namespace contrastive;

namespace {

Eigen::MatrixXd sample(std::uint64_t seed, Eigen::Index rows = 5, Eigen::Index cols = 4) {
  return contrastive_tests::Random(seed).normal_matrix(rows, cols).cast<double>();
}

const Eigen::MatrixXd Q = sample(1);
const Eigen::MatrixXd P = sample(2);
const Eigen::MatrixXd N = sample(3, 7);
const Eigen::MatrixXd S = sample(4, 5, 5);

template <class Value>
constexpr bool is_double = std::is_same_v<std::decay_t<Value>, double>;

template <class Value>
constexpr bool is_matrix = std::is_same_v<std::decay_t<Value>, Eigen::MatrixXd>;

}  // namespace

TEST_CASE("forms: members of the results, fixed temperature", "[forms]") {
  const Temperature tau{0.05};
  {
    const auto [loss, dQ, dP] = info_nce_loss_grad(Q, P, tau);
    STATIC_REQUIRE(is_double<decltype(loss)> && is_matrix<decltype(dQ)> && is_matrix<decltype(dP)>);
    CHECK(loss == info_nce_loss(Q, P, tau));
    const auto result = info_nce_loss_grad(Q, P, tau);
    CHECK((result.loss == loss && result.dQ == dQ && result.dP == dP));
  }
  {
    const auto [loss, dQ, dP, dN] = hard_negative_loss_grad(Q, P, N, tau);
    CHECK(loss == hard_negative_loss(Q, P, N, tau));
    const auto result = hard_negative_loss_grad(Q, P, N, tau, SoftmaxOptions{});
    CHECK((result.loss == loss && result.dQ == dQ && result.dP == dP && result.dN == dN));
  }
  {
    const auto [loss, dQ, dP] = clip_loss_grad(Q, P, tau);
    CHECK(loss == clip_loss(Q, P, tau));
    const auto result = clip_loss_grad(Q, P, tau, SoftmaxOptions{});
    CHECK((result.loss == loss && result.dQ == dQ && result.dP == dP));
  }
  {
    const auto [loss, dQ, dP, d_bias] = siglip_loss_grad(Q, P, tau, -10);
    CHECK(loss == siglip_loss(Q, P, tau, -10));
    const auto result = siglip_loss_grad(Q, P, tau, -10, SigLipOptions{});
    CHECK((result.loss == loss && result.dQ == dQ && result.dP == dP && result.d_bias == d_bias));
  }
}

TEST_CASE("forms: members of the results, rows among each other", "[forms]") {
  const std::vector<int> labels = {0, 1, 0, 1, 5};
  const Temperature tau{0.5};
  {
    const auto [loss, dZa, dZb] = nt_xent_loss_grad(Q, P, tau);
    STATIC_REQUIRE(
        is_double<decltype(loss)> && is_matrix<decltype(dZa)> && is_matrix<decltype(dZb)>);
    CHECK(loss == nt_xent_loss(Q, P, tau));
    const auto result = nt_xent_loss_grad(Q, P, tau, SoftmaxOptions{});
    CHECK((result.loss == loss && result.dZa == dZa && result.dZb == dZb));
    CHECK(nt_xent_rows(Q, P, tau).size() == 10);
  }
  {
    const auto [loss, dZ] = sup_con_loss_grad(Q, labels, tau);
    STATIC_REQUIRE(is_double<decltype(loss)> && is_matrix<decltype(dZ)>);
    CHECK(loss == sup_con_loss(Q, labels, tau));
    const auto result = sup_con_loss_grad(Q, labels, tau, SoftmaxOptions{});
    CHECK((result.loss == loss && result.dZ == dZ));
    CHECK(sup_con_rows(Q, labels, tau).size() == 5);
  }
  {
    const LogScale scale{2.5};
    const auto [loss, dZa, dZb, d_log_scale] = nt_xent_loss_grad(Q, P, scale);
    STATIC_REQUIRE(is_double<decltype(d_log_scale)>);
    const auto result = nt_xent_loss_grad(Q, P, scale);
    CHECK((result.loss == loss && result.dZa == dZa && result.dZb == dZb
           && result.d_log_scale == d_log_scale));
    const auto [of_classes, dZ, by_scale] = sup_con_loss_grad(Q, labels, scale);
    const auto classes = sup_con_loss_grad(Q, labels, scale);
    CHECK((classes.loss == of_classes && classes.dZ == dZ && classes.d_log_scale == by_scale));
  }
}

TEST_CASE("forms: members of the results, learned scale", "[forms]") {
  const LogScale scale{2.5};
  {
    const auto [loss, dQ, dP, d_log_scale] = info_nce_loss_grad(Q, P, scale);
    STATIC_REQUIRE(is_double<decltype(d_log_scale)>);
    const auto result = info_nce_loss_grad(Q, P, scale);
    CHECK((result.loss == loss && result.dQ == dQ && result.dP == dP
           && result.d_log_scale == d_log_scale));
  }
  {
    const auto [loss, dQ, dP, dN, d_log_scale] = hard_negative_loss_grad(Q, P, N, scale);
    const auto result = hard_negative_loss_grad(Q, P, N, scale);
    CHECK((result.loss == loss && result.dQ == dQ && result.dP == dP && result.dN == dN
           && result.d_log_scale == d_log_scale));
  }
  {
    const auto [loss, dQ, dP, d_log_scale] = clip_loss_grad(Q, P, LogScale{2.5, 100.0});
    const auto result = clip_loss_grad(Q, P, scale);
    CHECK((result.loss == loss && result.dQ == dQ && result.dP == dP
           && result.d_log_scale == d_log_scale));
  }
  {
    const auto [loss, dQ, dP, d_log_scale, d_bias] =
        siglip_loss_grad(Q, P, LogScale{2.5, no_limit}, -10);
    const auto result = siglip_loss_grad(Q, P, scale, -10);
    CHECK((result.loss == loss && result.dQ == dQ && result.dP == dP
           && result.d_log_scale == d_log_scale && result.d_bias == d_bias));
  }
}

TEST_CASE("forms: members of the results, without a scale", "[forms]") {
  Workspace workspace;
  {
    const auto [loss, dS] = info_nce_logits_loss_grad(S);
    CHECK(loss == info_nce_logits_loss(S));
    CHECK(loss == info_nce_logits_loss(S, workspace));
    CHECK(dS == info_nce_logits_loss_grad(S, workspace).dS);
    CHECK(dS == info_nce_logits_loss_grad(S, SoftmaxOptions{}).dS);
  }
  {
    const auto [loss, dS] = clip_logits_loss_grad(S);
    CHECK(loss == clip_logits_loss(S));
    CHECK(loss == clip_logits_loss(S, workspace));
    CHECK(dS == clip_logits_loss_grad(S, workspace).dS);
    CHECK(dS == clip_logits_loss_grad(S, SoftmaxOptions{}).dS);
  }
  {
    const auto [loss, dS, d_bias] = siglip_logits_loss_grad(S, -1);
    CHECK(loss == siglip_logits_loss(S, -1));
    CHECK(loss == siglip_logits_loss(S, -1, workspace));
    CHECK(dS == siglip_logits_loss_grad(S, -1, workspace).dS);
    CHECK(d_bias == siglip_logits_loss_grad(S, -1, SigLipOptions{}).d_bias);
  }
  {
    const auto [nats, dS] = mutual_information_bound_grad(S);
    CHECK(nats == mutual_information_bound(S));
    CHECK(dS == mutual_information_bound_grad(S).dS);
  }
  {
    const auto [loss, dA, dP, dN] = triplet_loss_grad(Q, P, P.colwise().reverse(), 0.5);
    CHECK(loss == triplet_loss(Q, P, P.colwise().reverse(), 0.5));
    const auto result = triplet_loss_grad(Q, P, P.colwise().reverse(), 0.5);
    CHECK((result.dA == dA && result.dP == dP && result.dN == dN));
  }
  {
    const auto [loss, dZa, dZb] = alignment_loss_grad(Q, P);
    CHECK(loss == alignment_loss(Q, P, 2, Similarity::cosine));
    CHECK(loss == alignment_loss(Q, P));
    const auto result = alignment_loss_grad(Q, P, 2.0);
    CHECK((result.dZa == dZa && result.dZb == dZb));
  }
  {
    const auto [loss, dZ] = uniformity_loss_grad(Q);
    CHECK(loss == uniformity_loss(Q, 2, Similarity::cosine));
    CHECK(loss == uniformity_loss(Q));
    CHECK(uniformity_loss_grad(Q, 2.0).dZ == dZ);
  }
}

TEST_CASE("forms: results made earlier", "[forms]") {
  Workspace workspace;
  {
    InfoNceGradient<Eigen::MatrixXd, Eigen::MatrixXd, Temperature> result;
    info_nce_loss_grad(Q, P, Temperature{0.1}, {}, result, workspace);
    CHECK(result.dP == info_nce_loss_grad(Q, P, Temperature{0.1}).dP);
  }
  {
    ClipGradient<Eigen::MatrixXd, Eigen::MatrixXd, LogScale> result;
    clip_loss_grad(Q, P, LogScale{}, {}, result, workspace);
    CHECK(result.d_log_scale == clip_loss_grad(Q, P, LogScale{}).d_log_scale);
  }
  {
    HardNegativeGradient<Eigen::MatrixXd, Eigen::MatrixXd, Eigen::MatrixXd, LogScale> result;
    hard_negative_loss_grad(Q, P, N, LogScale{}, {}, result, workspace);
    CHECK(result.dN == hard_negative_loss_grad(Q, P, N, LogScale{}).dN);
  }
  {
    SigLipGradient<Eigen::MatrixXd, Eigen::MatrixXd, LogScale> result;
    siglip_loss_grad(Q, P, LogScale{}, -10, {}, result, workspace);
    CHECK(result.d_bias == siglip_loss_grad(Q, P, LogScale{}, -10).d_bias);
  }
  {
    NtXentGradient<Eigen::MatrixXd, Eigen::MatrixXd, LogScale> result;
    nt_xent_loss_grad(Q, P, LogScale{}, {}, result, workspace);
    CHECK(result.dZb == nt_xent_loss_grad(Q, P, LogScale{}).dZb);
    CHECK(result.loss == nt_xent_loss(Q, P, LogScale{}, {}, workspace));
  }
  {
    SupConGradient<Eigen::MatrixXd, Temperature> result;
    const Eigen::Matrix<std::int64_t, 5, 1> labels(3, 3, 1, 1, 3);
    sup_con_loss_grad(Q, labels, Temperature{0.5}, {}, result, workspace);
    CHECK(result.dZ == sup_con_loss_grad(Q, labels, Temperature{0.5}).dZ);
    CHECK(result.loss == sup_con_loss(Q, labels, Temperature{0.5}, {}, workspace));
  }
  {
    LogitsGradient<Eigen::MatrixXd> result;
    info_nce_logits_loss_grad(S, result, workspace);
    CHECK(result.dS == info_nce_logits_loss_grad(S).dS);
    clip_logits_loss_grad(S, result, workspace);
    CHECK(result.dS == clip_logits_loss_grad(S).dS);
  }
  {
    SigLipLogitsGradient<Eigen::MatrixXd> result;
    siglip_logits_loss_grad(S, 1, result, workspace);
    CHECK(result.dS == siglip_logits_loss_grad(S, 1).dS);
  }
  {
    MutualInformationGradient<Eigen::MatrixXd> result;
    mutual_information_bound_grad(S, result, workspace);
    CHECK(result.nats == mutual_information_bound(S, workspace));
  }
  {
    TripletGradient<Eigen::MatrixXd, Eigen::MatrixXd, Eigen::MatrixXd> result;
    triplet_loss_grad(Q, P, Q, 1, result, workspace);
    CHECK(result.loss == triplet_loss(Q, P, Q, 1, workspace));
  }
  {
    AlignmentGradient<Eigen::MatrixXd, Eigen::MatrixXd> result;
    alignment_loss_grad(Q, P, 2, Similarity::dot, result, workspace);
    CHECK(result.dZa == alignment_loss_grad(Q, P, 2, Similarity::dot).dZa);
  }
  {
    UniformityGradient<Eigen::MatrixXd> result;
    uniformity_loss_grad(Q, 2, Similarity::dot, result, workspace);
    CHECK(result.dZ == uniformity_loss_grad(Q, 2, Similarity::dot).dZ);
  }
}

TEST_CASE("forms: a workspace may be moved, emptied and used again", "[forms]") {
  Workspace workspace;
  const double expected = clip_loss(Q, P, Temperature{0.1});
  CHECK(clip_loss(Q, P, Temperature{0.1}, {}, workspace) == expected);
  CHECK(workspace.size() > 0);
  Workspace moved = std::move(workspace);
  CHECK(clip_loss(Q, P, Temperature{0.1}, {}, moved) == expected);
  moved.release();
  CHECK(moved.size() == 0);
  CHECK(clip_loss(Q, P, Temperature{0.1}, {}, moved) == expected);
}

TEST_CASE("forms: alignment_uniformity is both measures", "[forms]") {
  for (const Similarity similarity : {Similarity::cosine, Similarity::dot}) {
    const auto [alignment, uniformity] = alignment_uniformity(Q, P, 1.5, 0.5, similarity);
    CHECK(alignment == alignment_loss(Q, P, 1.5, similarity));
    const double mean =
        (uniformity_loss(Q, 0.5, similarity) + uniformity_loss(P, 0.5, similarity)) / 2;
    CHECK(std::abs(uniformity - mean) <= 1e-14 * std::abs(mean));
  }
  const auto both = alignment_uniformity(Q, P);
  STATIC_REQUIRE(is_double<decltype(both.alignment)>);
  CHECK(both.alignment == alignment_loss(Q, P));
  const double mean = (uniformity_loss(Q) + uniformity_loss(P)) / 2;
  CHECK(std::abs(both.uniformity - mean) <= 1e-14 * std::abs(mean));
}

TEST_CASE("forms: gradients have the storage order of their argument", "[forms]") {
  using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const RowMajor rows = Q.cast<float>();
  const Eigen::MatrixXf columns = P.cast<float>();
  const auto result = clip_loss_grad(rows, columns, Temperature{0.1});
  STATIC_REQUIRE(std::is_same_v<decltype(result.loss), float>);
  STATIC_REQUIRE(std::is_same_v<decltype(result.dQ), RowMajor>);
  STATIC_REQUIRE(std::is_same_v<decltype(result.dP), Eigen::MatrixXf>);
  STATIC_REQUIRE(
      std::is_same_v<
          decltype(clip_loss_grad(rows.transpose(), columns.transpose(), Temperature{0.1}).dQ),
          Eigen::MatrixXf>);
}

TEST_CASE("forms: vectors, fixed sizes and every expression", "[forms]") {
  const Temperature tau{0.1};
  const Eigen::RowVectorXd one = Q.row(0);
  CHECK(info_nce_loss(one, P.row(0), tau) == 0);
  CHECK(info_nce_loss_grad(one, P.row(0), tau).dQ.isZero(0));

  const Eigen::VectorXd column = Q.col(0);
  SoftmaxOptions dot;
  dot.similarity = Similarity::dot;
  CHECK(info_nce_loss(column, P.col(0), tau, dot)
        == info_nce_loss(Eigen::MatrixXd(Q.col(0)), Eigen::MatrixXd(P.col(0)), tau, dot));

  const Eigen::Matrix<double, 5, 4> fixed = Q;
  const Eigen::Matrix<double, 5, 4, Eigen::RowMajor> fixed_rows = P;
  const double expected = clip_loss(Q, P, tau);
  CHECK(clip_loss(fixed, fixed_rows, tau) == expected);
  CHECK(clip_loss(Q.array().matrix(), (P + Eigen::MatrixXd::Zero(5, 4)), tau) == expected);
  CHECK(clip_loss(Q.transpose().eval().transpose(), P.topRows(5), tau) == expected);
  CHECK(clip_loss(Eigen::Ref<const Eigen::MatrixXd>(Q), Eigen::Ref<const Eigen::MatrixXd>(P), tau)
        == expected);
  CHECK(clip_loss(Q.colwise().reverse(), P.colwise().reverse(), tau)
        == clip_loss(Eigen::MatrixXd(Q.colwise().reverse()), Eigen::MatrixXd(P.colwise().reverse()),
                     tau));
  // Every other row and column of a larger matrix, through a map's strides and a sequence.
  const Eigen::MatrixXd large = sample(6, 10, 8);
  using Stride = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
  const Eigen::Map<const Eigen::MatrixXd, 0, Stride> sparse(large.data(), 5, 4, Stride(20, 2));
  CHECK(clip_loss(sparse, P, tau) == clip_loss(Eigen::MatrixXd(sparse), P, tau));
  CHECK(clip_loss(large(Eigen::seqN(0, 5, 2), Eigen::seqN(0, 4, 2)), P, tau)
        == clip_loss(Eigen::MatrixXd(sparse), P, tau));
}
