// Loops over independent pieces of work: by OpenMP where the including program has it.
#ifndef CONTRASTIVE_DETAIL_THREADS_HPP
#define CONTRASTIVE_DETAIL_THREADS_HPP

#include <Eigen/Core>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "inline.hpp"

namespace contrastive::detail {

using Eigen::Index;

/// How many threads share a loop of so many multiplications: below a million they cost more than
/// they bring, and inside a parallel region of the caller it stays on the caller's thread.
inline Index thread_count([[maybe_unused]] double work) {
#ifdef _OPENMP
  if (work > 1e6 && omp_in_parallel() == 0) return omp_get_max_threads();
#endif
  return 1;
}

/// One piece, as code that is there once: compiled in two places, the same arithmetic may be
/// contracted to fused operations in one and not in the other.
template <class Piece>
CONTRASTIVE_NOINLINE void run_piece(const Piece& piece, Index i) {
  piece(i);
}

/// Runs piece(i) for i = 0 .. count - 1. Pieces write to disjoint places and each of them does its
/// sums in an order of its own, so the result does not depend on who runs which. `work` is the
/// arithmetic of all pieces together.
template <class Piece>
void parallel_for(Index count, [[maybe_unused]] double work, const Piece& piece) {
#ifdef _OPENMP
  if (count > 1 && thread_count(work) > 1) {
#pragma omp parallel for schedule(static)
    for (Index i = 0; i < count; ++i) run_piece(piece, i);
    return;
  }
#endif
  for (Index i = 0; i < count; ++i) run_piece(piece, i);
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_THREADS_HPP
