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
  if (!std::isfinite(x)) refuse(function, {argument, " is ", number(x)});
}

inline void check_positive(const char* function, const char* argument, double x) {
  if (!(x > 0) || !std::isfinite(x))
    refuse(function, {argument, " is ", number(x), ", it must be positive and finite"});
}

template <class T>
void check_not_empty(const char* function, const char* argument, const View<const T>& x) {
  if (x.rows == 0 || x.cols == 0)
    refuse(function, {argument, " is ", shape(x.rows, x.cols),
                      ", it must have at least one row and one column"});
}

template <class T>
void check_same_shape(const char* function, const char* name_x, const View<const T>& x,
                      const char* name_y, const View<const T>& y) {
  if (x.rows != y.rows || x.cols != y.cols)
    refuse(function, {name_x, " is ", shape(x.rows, x.cols), " but ", name_y, " is ",
                      shape(y.rows, y.cols), ", they must have the same shape"});
}

template <class T>
void check_square(const char* function, const char* argument, const View<const T>& x) {
  if (x.rows != x.cols)
    refuse(function, {argument, " is ", shape(x.rows, x.cols), ", logits must be square"});
}

inline void check_length(const char* function, const char* argument, Index length, Index expected,
                         const char* what) {
  if (length != expected)
    refuse(function,
           {argument, " has ", number(length), " entries, but ", what, " has ", number(expected)});
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
      refuse(function, {"weights[", number(i), "] is ", number(w),
                        ", weights must be finite and not negative"});
    any = any || w > 0;
  }
  if (!any) refuse(function, {"weights sum to 0"});
}

/// Whether x is finite everywhere, read in the order in which it lies in memory.
template <class T>
bool all_finite(const View<const T>& x) {
  const bool by_rows = x.col_stride <= x.row_stride;
  const Index outer = by_rows ? x.rows : x.cols, inner = by_rows ? x.cols : x.rows;
  const Index outer_stride = by_rows ? x.row_stride : x.col_stride;
  const Index inner_stride = by_rows ? x.col_stride : x.row_stride;
  // 0 * x is 0 for a finite x and nan otherwise; 16 sums side by side keep the loop wide.
  using Lanes = Eigen::Array<T, 16, 1>;
  for (Index o = 0; o < outer; ++o) {
    const T* values = x.data + o * outer_stride;
    Lanes zeros = Lanes::Zero();
    Index i = 0;
    if (inner_stride == 1)
      for (; i + 16 <= inner; i += 16) zeros += T(0) * Eigen::Map<const Lanes>(values + i);
    T rest = 0;
    for (; i < inner; ++i) rest += T(0) * values[i * inner_stride];
    if (!(zeros.sum() + rest == T(0))) return false;
  }
  return true;
}

template <class T>
void check_finite(const char* function, const char* argument, const View<const T>& x) {
  if (all_finite(x)) return;
  for (Index i = 0; i < x.rows; ++i)
    for (Index j = 0; j < x.cols; ++j)
      if (!std::isfinite(x(i, j)))
        refuse(function, {argument, " has ", number(double(x(i, j))), " at row ", number(i),
                          ", column ", number(j)});
}

template <class T>
void check_no_zero_row(const char* function, const char* argument, const View<const T>& x) {
  for (Index i = 0; i < x.rows; ++i) {
    bool zero = true;
    for (Index j = 0; j < x.cols && zero; ++j) zero = x(i, j) == T(0);
    if (zero)
      refuse(function,
             {argument, " has a zero row, row ", number(i), ": a cosine needs a direction"});
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
  refuse(function, {"option ", option, " ", why});
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_CHECKS_HPP
