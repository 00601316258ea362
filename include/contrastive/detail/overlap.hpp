// Whether what is about to be written is also what is read.
#ifndef CONTRASTIVE_DETAIL_OVERLAP_HPP
#define CONTRASTIVE_DETAIL_OVERLAP_HPP

#include <Eigen/Core>
#include <cstdint>

#include "view.hpp"

namespace contrastive::detail {

/// The addresses of a matrix's first and last entry in memory; strides may be negative.
struct AddressRange {
  std::uintptr_t first = 0;
  std::uintptr_t last = 0;

  template <class T>
  explicit AddressRange(const View<T>& x) {
    Index before = 0, after = 0;
    for (const Index reach : {(x.rows - 1) * x.row_stride, (x.cols - 1) * x.col_stride})
      (reach < 0 ? before : after) += reach;
    first = reinterpret_cast<std::uintptr_t>(x.data + before);
    last = reinterpret_cast<std::uintptr_t>(x.data + after);
  }
};

/// Whether two matrices may share an entry. One without entries shares none.
template <class T, class U>
bool overlap(const View<T>& x, const View<U>& y) {
  if (x.rows == 0 || x.cols == 0 || y.rows == 0 || y.cols == 0) return false;
  const AddressRange a(x), b(y);
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_OVERLAP_HPP
