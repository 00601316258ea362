// Loops over independent pieces of work: by OpenMP where the including program has it.
#ifndef CONTRASTIVE_DETAIL_THREADS_HPP
#define CONTRASTIVE_DETAIL_THREADS_HPP

#include <Eigen/Core>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace contrastive::detail {

using Eigen::Index;

/// Runs piece(i) for i = 0 .. count - 1. Pieces write to disjoint places and each of them does its
/// sums in an order of its own, so the result does not depend on who runs which. `work` is the
/// arithmetic of all pieces together: below a million multiplications threads cost more than they
/// bring. Inside a parallel region of the caller it stays on the caller's thread.
template <class Piece>
void parallel_for(Index count, [[maybe_unused]] double work, const Piece& piece) {
#ifdef _OPENMP
  if (work > 1e6 && count > 1 && omp_in_parallel() == 0) {
#pragma omp parallel for schedule(static)
    for (Index i = 0; i < count; ++i) piece(i);
    return;
  }
#endif
  for (Index i = 0; i < count; ++i) piece(i);
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_THREADS_HPP
