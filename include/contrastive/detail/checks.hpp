// The argument checks, as small named functions that every loss calls before it writes anything.
#ifndef CONTRASTIVE_DETAIL_CHECKS_HPP
#define CONTRASTIVE_DETAIL_CHECKS_HPP

#include <cmath>
#include <string>

#include "../options.hpp"
#include "error.hpp"
#include "view.hpp"

namespace contrastive::detail {

inline void check_finite(const char* function, const char* argument, double x) {
  if (!std::isfinite(x)) refuse(function, "%s is %.9g", argument, x);
}

inline void check_positive(const char* function, const char* argument, double x) {
  if (!(x > 0) || !std::isfinite(x))
    refuse(function, "%s is %.9g, it must be positive and finite", argument, x);
}

template <class T>
void check_not_empty(const char* function, const char* argument, const View<const T>& x) {
  if (x.rows == 0 || x.cols == 0)
    refuse(function, "%s is %lld x %lld, it must have at least one row and one column", argument,
           number(x.rows), number(x.cols));
}

template <class T>
void check_same_shape(const char* function, const char* name_x, const View<const T>& x,
                      const char* name_y, const View<const T>& y) {
  if (x.rows != y.rows || x.cols != y.cols)
    refuse(function, "%s is %lld x %lld but %s is %lld x %lld, they must have the same shape",
           name_x, number(x.rows), number(x.cols), name_y, number(y.rows), number(y.cols));
}

template <class T>
void check_square(const char* function, const char* argument, const View<const T>& x) {
  if (x.rows != x.cols)
    refuse(function, "%s is %lld x %lld, logits must be square", argument, number(x.rows),
           number(x.cols));
}

inline void check_length(const char* function, const char* argument, Index length, Index expected,
                         const char* what) {
  if (length != expected)
    refuse(function, "%s has %lld entries, but %s has %lld", argument, number(length), what,
           number(expected));
}

/// For a list that may be left out.
template <class T>
void check_optional_length(const char* function, const char* argument, const List<T>& list,
                           Index expected, const char* what) {
  if (!list.empty()) check_length(function, argument, list.size(), expected, what);
}

inline void check_weights(const char* function, const List<double>& weights, Index rows,
                          const char* what) {
  if (weights.empty()) return;
  check_length(function, "weights", weights.size(), rows, what);
  bool any = false;
  for (Index i = 0; i < rows; ++i) {
    const double w = weights[i];
    if (!std::isfinite(w) || w < 0)
      refuse(function, "weights[%lld] is %.9g, weights must be finite and not negative", number(i),
             w);
    any = any || w > 0;
  }
  if (!any) refuse(function, "weights sum to 0");
}

/// Whether x is finite everywhere, read in the order in which it lies in memory.
template <class T>
bool all_finite(const View<const T>& x) {
  const bool by_rows = x.col_stride <= x.row_stride;
  const Index outer = by_rows ? x.rows : x.cols, inner = by_rows ? x.cols : x.rows;
  const Index outer_stride = by_rows ? x.row_stride : x.col_stride;
  const Index inner_stride = by_rows ? x.col_stride : x.row_stride;
  // 0 * x is 0 for a finite x and nan otherwise; 16 sums side by side keep the loop wide.
  constexpr Index kLanes = 16;
  for (Index o = 0; o < outer; ++o) {
    const T* values = x.data + o * outer_stride;
    T zeros[std::size_t(kLanes)] = {};
    Index i = 0;
    if (inner_stride == 1)
      for (; i + kLanes <= inner; i += kLanes)
        for (Index l = 0; l < kLanes; ++l) zeros[l] += T(0) * values[i + l];
    for (; i < inner; ++i) zeros[0] += T(0) * values[i * inner_stride];
    for (const T zero : zeros)
      if (!(zero == T(0))) return false;
  }
  return true;
}

template <class T>
void check_finite(const char* function, const char* argument, const View<const T>& x) {
  if (all_finite(x)) return;
  for (Index i = 0; i < x.rows; ++i)
    for (Index j = 0; j < x.cols; ++j)
      if (!std::isfinite(x(i, j)))
        refuse(function, "%s has %.9g at row %lld, column %lld", argument, double(x(i, j)),
               number(i), number(j));
}

template <class T>
void check_no_zero_row(const char* function, const char* argument, const View<const T>& x) {
  for (Index i = 0; i < x.rows; ++i) {
    bool zero = true;
    for (Index j = 0; j < x.cols && zero; ++j) zero = x(i, j) == T(0);
    if (zero)
      refuse(function, "%s has a zero row, row %lld: a cosine needs a direction", argument,
             number(i));
  }
}

/// Contents of a matrix of embeddings.
template <class T>
void check_embeddings(const char* function, const char* argument, const View<const T>& x,
                      Similarity similarity) {
  check_finite(function, argument, x);
  if (similarity == Similarity::cosine) check_no_zero_row(function, argument, x);
}

inline void refuse_option(const char* function, const char* option, const char* why) {
  refuse(function, "option %s %s", option, why);
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_CHECKS_HPP
