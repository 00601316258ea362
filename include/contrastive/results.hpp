// What the losses return: plain structs that work with structured bindings.
#ifndef CONTRASTIVE_RESULTS_HPP
#define CONTRASTIVE_RESULTS_HPP

#include <Eigen/Core>

#include "temperature.hpp"

namespace contrastive {

/// The plain dynamic matrix in which the gradient with respect to an `X` comes back: the scalar,
/// the shape and the storage order of X.
template <class X>
using GradientOf = Eigen::Matrix<typename X::Scalar, Eigen::Dynamic, Eigen::Dynamic,
                                 X::IsRowMajor ? Eigen::RowMajor : Eigen::ColMajor>;

/// Each row's loss, as a column with the scalar of Q.
template <class Q>
using RowLosses = Eigen::Matrix<typename Q::Scalar, Eigen::Dynamic, 1>;

namespace detail {

template <class DQ, class DP, class Scale>
struct PairGradient {
  typename DQ::Scalar loss{};
  DQ dQ{};
  DP dP{};
};

template <class DQ, class DP>
struct PairGradient<DQ, DP, LogScale> {
  typename DQ::Scalar loss{};
  DQ dQ{};
  DP dP{};
  typename DQ::Scalar d_log_scale{};
};

template <class DQ, class DP, class DN, class Scale>
struct HardNegativeGradient {
  typename DQ::Scalar loss{};
  DQ dQ{};
  DP dP{};
  DN dN{};
};

template <class DQ, class DP, class DN>
struct HardNegativeGradient<DQ, DP, DN, LogScale> {
  typename DQ::Scalar loss{};
  DQ dQ{};
  DP dP{};
  DN dN{};
  typename DQ::Scalar d_log_scale{};
};

template <class DQ, class DP, class Scale>
struct SigLipGradient {
  typename DQ::Scalar loss{};
  DQ dQ{};
  DP dP{};
  typename DQ::Scalar d_bias{};
};

template <class DQ, class DP>
struct SigLipGradient<DQ, DP, LogScale> {
  typename DQ::Scalar loss{};
  DQ dQ{};
  DP dP{};
  typename DQ::Scalar d_log_scale{};
  typename DQ::Scalar d_bias{};
};

template <class DS>
struct LogitsGradient {
  typename DS::Scalar loss{};
  DS dS{};
};

template <class DS>
struct SigLipLogitsGradient {
  typename DS::Scalar loss{};
  DS dS{};
  typename DS::Scalar d_bias{};
};

template <class DS>
struct MutualInformationGradient {
  typename DS::Scalar nats{};
  DS dS{};
};

template <class DA, class DP, class DN>
struct TripletGradient {
  typename DA::Scalar loss{};
  DA dA{};
  DP dP{};
  DN dN{};
};

template <class DU, class DV, class DW, class DB>
struct PairClassificationGradient {
  typename DU::Scalar loss{};
  DU dU{};
  DV dV{};
  DW dW{};
  DB db{};
};

template <class DA, class DB>
struct AlignmentGradient {
  typename DA::Scalar loss{};
  DA dZa{};
  DB dZb{};
};

template <class DA, class DB, class Scale>
struct NtXentGradient {
  typename DA::Scalar loss{};
  DA dZa{};
  DB dZb{};
};

template <class DA, class DB>
struct NtXentGradient<DA, DB, LogScale> {
  typename DA::Scalar loss{};
  DA dZa{};
  DB dZb{};
  typename DA::Scalar d_log_scale{};
};

template <class DZ, class Scale>
struct SupConGradient {
  typename DZ::Scalar loss{};
  DZ dZ{};
};

template <class DZ>
struct SupConGradient<DZ, LogScale> {
  typename DZ::Scalar loss{};
  DZ dZ{};
  typename DZ::Scalar d_log_scale{};
};

template <class DZ>
struct UniformityGradient {
  typename DZ::Scalar loss{};
  DZ dZ{};
};

}  // namespace detail

// The public names. Q, P, N, ... are the types of the arguments, any Eigen types; Scale is
// Temperature or LogScale. Losses are in nats, gradients have the shape of their argument.

/// loss, dQ, dP, and with a LogScale d_log_scale
template <class Q, class P, class Scale>
using InfoNceGradient = detail::PairGradient<GradientOf<Q>, GradientOf<P>, Scale>;

/// loss, dQ, dP, and with a LogScale d_log_scale
template <class Q, class P, class Scale>
using ClipGradient = detail::PairGradient<GradientOf<Q>, GradientOf<P>, Scale>;

/// loss, dQ, dP, dN, and with a LogScale d_log_scale
template <class Q, class P, class N, class Scale>
using HardNegativeGradient =
    detail::HardNegativeGradient<GradientOf<Q>, GradientOf<P>, GradientOf<N>, Scale>;

/// loss, dQ, dP, with a LogScale d_log_scale, d_bias
template <class Q, class P, class Scale>
using SigLipGradient = detail::SigLipGradient<GradientOf<Q>, GradientOf<P>, Scale>;

/// loss, dZa, dZb, and with a LogScale d_log_scale
template <class Za, class Zb, class Scale>
using NtXentGradient = detail::NtXentGradient<GradientOf<Za>, GradientOf<Zb>, Scale>;

/// loss, dZ, and with a LogScale d_log_scale
template <class Z, class Scale>
using SupConGradient = detail::SupConGradient<GradientOf<Z>, Scale>;

/// loss, dS
template <class S>
using LogitsGradient = detail::LogitsGradient<GradientOf<S>>;

/// loss, dS, d_bias
template <class S>
using SigLipLogitsGradient = detail::SigLipLogitsGradient<GradientOf<S>>;

/// nats, dS
template <class S>
using MutualInformationGradient = detail::MutualInformationGradient<GradientOf<S>>;

/// loss, dA, dP, dN
template <class A, class P, class N>
using TripletGradient = detail::TripletGradient<GradientOf<A>, GradientOf<P>, GradientOf<N>>;

/// The same for a vector, which stays a column or a row.
template <class X>
using VectorGradientOf =
    Eigen::Matrix<typename X::Scalar, X::ColsAtCompileTime == 1 ? Eigen::Dynamic : 1,
                  X::ColsAtCompileTime == 1 ? 1 : Eigen::Dynamic>;

/// loss, dU, dV, dW, db
template <class U, class V, class W, class B>
using PairClassificationGradient =
    detail::PairClassificationGradient<GradientOf<U>, GradientOf<V>, GradientOf<W>,
                                       VectorGradientOf<B>>;

/// loss, dZa, dZb
template <class Za, class Zb>
using AlignmentGradient = detail::AlignmentGradient<GradientOf<Za>, GradientOf<Zb>>;

/// loss, dZ
template <class Z>
using UniformityGradient = detail::UniformityGradient<GradientOf<Z>>;

/// The two measures of an embedding space; lower is better for both.
template <class Scalar>
struct AlignmentUniformity {
  Scalar alignment{};
  Scalar uniformity{};
};

}  // namespace contrastive

#endif  // CONTRASTIVE_RESULTS_HPP
