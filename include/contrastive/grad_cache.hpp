// A large batch through a small memory: the encoder chunk by chunk, the loss over all of it.
#ifndef CONTRASTIVE_GRAD_CACHE_HPP
#define CONTRASTIVE_GRAD_CACHE_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "detail/checks.hpp"
#include "detail/view.hpp"
#include "results.hpp"

namespace contrastive {

/// The matrices of a loss, in the order of its arguments.
enum class Side { query, positive, negative };

namespace detail {

/// A bijection of 64 bits that scatters neighbours (a step of splitmix64).
inline std::uint64_t scramble(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// One side of a batch, cut into chunks.
struct Chunks {
  contrastive::Side side;
  Index rows;
  Index chunk;
  std::uint64_t base_seed;

  /// f(first, count, seed) for one chunk after the other. Seeds differ between all chunks of a
  /// call, as what is scrambled differs.
  template <class F>
  void for_each(const F& f) const {
    Index count = 0;
    for (Index first = 0; first < rows; first += count) {
      count = (std::min)(chunk, rows - first);
      f(first, count,
        scramble(scramble(base_seed) + 3 * static_cast<std::uint64_t>(first)
                 + static_cast<std::uint64_t>(side)));
    }
  }

  [[nodiscard]] std::string name() const {
    const char* names[] = {"Side::query", "Side::positive", "Side::negative"};
    return names[static_cast<std::size_t>(side)];
  }
};

/// The embeddings of a side, of which `cols` is the number of columns where there are no rows.
template <class Encode>
auto encode_chunks(const Chunks& chunks, Encode& encode, Index cols) {
  using Rows = std::decay_t<decltype(encode(chunks.side, Index{}, Index{}, std::uint64_t{}))>;
  static_assert(std::is_base_of_v<Eigen::MatrixBase<Rows>, Rows>,
                "contrastive: encode returns an Eigen matrix of one embedding a row");
  require_same_scalar<Rows>();
  GradientOf<Rows> all(chunks.rows, cols);
  chunks.for_each([&](Index first, Index count, std::uint64_t seed) {
    const std::string what =
        "encode's chunk of " + chunks.name() + " from row " + std::to_string(first);
    const auto& rows = encode(chunks.side, first, count, seed);
    if (rows.rows() != count || rows.cols() == 0)
      refuse("grad_cached", "%s is %lld x %lld, it must have %lld rows and at least one column",
             what.c_str(), number(rows.rows()), number(rows.cols()), number(count));
    if (first == 0) all.resize(chunks.rows, rows.cols());
    if (rows.cols() != all.cols())
      refuse("grad_cached", "%s is %lld x %lld, but the first has %lld columns", what.c_str(),
             number(rows.rows()), number(rows.cols()), number(all.cols()));
    auto block = all.middleRows(first, count);
    block = rows;
    check_finite("grad_cached", what.c_str(), strided_view(std::as_const(block)));
  });
  return all;
}

/// Hands the gradient back in the same chunks.
template <class Backward, class Gradient>
void backward_chunks(const Chunks& chunks, Backward& backward, const Gradient& gradient) {
  chunks.for_each([&](Index first, Index count, std::uint64_t seed) {
    backward(chunks.side, first, count, seed, gradient.middleRows(first, count));
  });
}

// The gradients in a result by the first, second and third matrix of its loss, by whatever name.
template <class R>
auto gradient_by_first(const R& r) -> decltype((r.dQ)) {
  return r.dQ;
}
template <class R>
auto gradient_by_first(const R& r) -> decltype((r.dZa)) {
  return r.dZa;
}
template <class R>
auto gradient_by_first(const R& r) -> decltype((r.dZ)) {
  return r.dZ;
}
template <class R>
auto gradient_by_first(const R& r) -> decltype((r.dA)) {
  return r.dA;
}
template <class R>
auto gradient_by_first(const R& r) -> decltype((r.dU)) {
  return r.dU;
}
template <class R>
auto gradient_by_second(const R& r) -> decltype((r.dP)) {
  return r.dP;
}
template <class R>
auto gradient_by_second(const R& r) -> decltype((r.dZb)) {
  return r.dZb;
}
template <class R>
auto gradient_by_second(const R& r) -> decltype((r.dV)) {
  return r.dV;
}
template <class R>
auto gradient_by_third(const R& r) -> decltype((r.dN)) {
  return r.dN;
}

template <class X, class DX>
void check_gradient_shape(const Chunks& chunks, const X& x, const DX& dx) {
  if (x.rows() != dx.rows() || x.cols() != dx.cols())
    refuse("grad_cached", "%s is %lld x %lld but the loss returned a gradient of %lld x %lld",
           chunks.name().c_str(), number(x.rows()), number(x.cols()), number(dx.rows()),
           number(dx.cols()));
}

inline void check_counts(Index batch, Index negatives, Index chunk) {
  const auto check = [](const char* argument, Index n, Index least) {
    if (n < least)
      refuse("grad_cached", "%s is %lld, it must be at least %lld", argument, number(n),
             number(least));
  };
  check("the batch", batch, 1);
  check("the number of negatives", negatives, 0);
  check("the chunk", chunk, 1);
}

}  // namespace detail

/// The gradient cache: the gradients of a loss over a batch that is too large to be encoded at
/// once, to the parameters of the encoder, exactly.
///
/// A contrastive loss needs all embeddings, but of the encoder it needs no more than that. So the
/// encoder runs twice:
///
///     1. encode() every chunk, keeping the embeddings and none of the activations;
///     2. loss(Q, P) of the whole batch: the value and the gradients by the embeddings;
///     3. backward() every chunk with its rows of those gradients. It runs the encoder again for
///        this chunk, now keeping the activations, and adds to the gradients of the parameters.
///
/// As the loss depends on the parameters through the embeddings alone, what backward() adds up to
/// is the gradient of the whole batch, whatever the chunk.
///
///     auto encode = [&](Side side, Index first, Index count, std::uint64_t seed) {
///       return model.forward(inputs(side, first, count), seed);
///     };
///     auto clip = [&](const auto& Q, const auto& P) { return clip_loss_grad(Q, P, scale); };
///     auto backward = [&](Side side, Index first, Index count, std::uint64_t seed,
///                         const auto& gradient) {
///       model.forward(inputs(side, first, count), seed, activations);   // as encode() did
///       model.backward(activations, gradient, d_model);                 // d_model += ...
///     };
///     auto [loss, dQ, dP, d_log_scale] = grad_cached(B, 32, encode, clip, backward, step);
///
/// An encoder with randomness, such as dropout, takes it from the seed alone: backward() gets the
/// seed that encode() got for the same chunk, and so repeats the same embeddings. Seeds differ
/// between all sides and chunks of one call, and follow from side, first row and base seed.
///
/// Calls come in order: encode() for all queries, then all positives, loss(), then backward() in
/// the same order. Chunks have `chunk` rows, the last of a side what is left.
///
/// @param batch     B.
/// @param chunk     the most rows that are encoded at a time; may be more than B.
/// @param encode    encode(Side, first, count, seed) returns the embeddings of rows first ..
///                  first + count - 1 of that side (count x d), any Eigen expression.
/// @param loss      loss(Q, P) returns the result of any loss here, or another struct with dQ and
///                  dP (or dZa and dZb, dU and dV). It gets plain matrices (B x d). A loss of one
///                  matrix, loss(Z) with a dZ, has only Side::query. Matrices that the encoder has
///                  no part in, a queue or a classifier, are the callable's own.
/// @param backward  backward(Side, first, count, seed, gradient) with the gradient by those rows
///                  (count x d), a block of the result's dQ or dP.
/// @param seed      the base of all seeds; one that changes from step to step.
/// @return what loss() returned.
/// @throws std::invalid_argument if batch or chunk is less than 1; encode() returns another number
///     of rows than count, another number of columns than before for the same side, or what is not
///     finite; the gradients have not the shape of the embeddings. backward() was not called then.
/// @par Accuracy
/// 1e-12 in double of what the whole batch at once gives: only the order of the encoder's own sums
/// over rows changes.
/// @par Complexity
/// One more pass of the encoder forwards. Memory: that of the encoder for one chunk, and of the
/// loss for the batch, with embeddings and their gradients 4 B d scalars.
/// @see Gao, Zhang, Han, Callan, "Scaling Deep Contrastive Learning Batch Size under Memory Limited
///      Setup", 2021, arXiv:2101.06983, section 3.
template <class Encode, class Loss, class Backward>
auto grad_cached(Eigen::Index batch, Eigen::Index chunk, Encode&& encode, Loss&& loss,
                 Backward&& backward, std::uint64_t seed = 0) {
  detail::check_counts(batch, 0, chunk);
  const detail::Chunks queries{Side::query, batch, chunk, seed};
  const auto Q = detail::encode_chunks(queries, encode, 0);
  if constexpr (std::is_invocable_v<Loss&, decltype((Q)), decltype((Q))>) {
    const detail::Chunks positives{Side::positive, batch, chunk, seed};
    const auto P = detail::encode_chunks(positives, encode, 0);
    auto result = loss(Q, P);
    const auto& dQ = detail::gradient_by_first(result);
    const auto& dP = detail::gradient_by_second(result);
    detail::check_gradient_shape(queries, Q, dQ);
    detail::check_gradient_shape(positives, P, dP);
    detail::backward_chunks(queries, backward, dQ);
    detail::backward_chunks(positives, backward, dP);
    return result;
  } else {
    static_assert(
        std::is_invocable_v<Loss&, decltype((Q))>,
        "contrastive: the loss of grad_cached takes (Q, P), or (Q) alone; with a number of "
        "negatives (Q, P, N)");
    auto result = loss(Q);
    const auto& dQ = detail::gradient_by_first(result);
    detail::check_gradient_shape(queries, Q, dQ);
    detail::backward_chunks(queries, backward, dQ);
    return result;
  }
}

/// The same for a loss of three matrices, loss(Q, P, N), whose `negatives` rows of N are encoded
/// too: hard negatives, also none, or with as many as the batch the triplet loss. They come last,
/// as Side::negative.
template <class Encode, class Loss, class Backward>
auto grad_cached(Eigen::Index batch, Eigen::Index negatives, Eigen::Index chunk, Encode&& encode,
                 Loss&& loss, Backward&& backward, std::uint64_t seed = 0) {
  detail::check_counts(batch, negatives, chunk);
  const detail::Chunks queries{Side::query, batch, chunk, seed};
  const detail::Chunks positives{Side::positive, batch, chunk, seed};
  const detail::Chunks extra{Side::negative, negatives, chunk, seed};
  const auto Q = detail::encode_chunks(queries, encode, 0);
  const auto P = detail::encode_chunks(positives, encode, 0);
  const auto N = detail::encode_chunks(extra, encode, Q.cols());
  auto result = loss(Q, P, N);
  const auto& dQ = detail::gradient_by_first(result);
  const auto& dP = detail::gradient_by_second(result);
  const auto& dN = detail::gradient_by_third(result);
  detail::check_gradient_shape(queries, Q, dQ);
  detail::check_gradient_shape(positives, P, dP);
  detail::check_gradient_shape(extra, N, dN);
  detail::backward_chunks(queries, backward, dQ);
  detail::backward_chunks(positives, backward, dP);
  detail::backward_chunks(extra, backward, dN);
  return result;
}

}  // namespace contrastive

#endif  // CONTRASTIVE_GRAD_CACHE_HPP
