// The library's answer to a problem, for each scalar type, storage of the inputs and form of call.
// Defined in evaluate.ipp and instantiated once per scalar type, so that most test files do not
// compile the library.
#ifndef CONTRASTIVE_TESTS_SUPPORT_EVALUATE_HPP
#define CONTRASTIVE_TESTS_SUPPORT_EVALUATE_HPP

#include <contrastive/workspace.hpp>
#include <string>

#include "problem.hpp"

namespace contrastive_tests {

/// How the inputs lie in memory.
enum class Layout {
  column_major,
  row_major,
  mixed,         // row-major, column-major, row-major
  outer_stride,  // maps whose columns, or rows, lie apart
  inner_stride,  // maps whose elements lie apart too
  block,         // blocks of larger matrices
  expression,    // X / 2 + X / 2, which is X exactly
  unaligned      // maps that begin one scalar after an aligned address
};

constexpr Layout all_layouts[] = {Layout::column_major, Layout::row_major,    Layout::mixed,
                                  Layout::outer_stride, Layout::inner_stride, Layout::block,
                                  Layout::expression,   Layout::unaligned};

// All of the layouts for the plain forms; with a workspace or a result, column_major, row_major and
// inner_stride.

/// loss_grad(..., options).
template <class T>
Answer evaluate(const Problem& problem, Layout layout = Layout::column_major);

/// loss_grad(..., options, workspace).
template <class T>
Answer evaluate(const Problem& problem, Layout layout, contrastive::Workspace& workspace);

/// loss_grad(..., options, result, workspace), into a result of other shapes that is full of NaN.
template <class T>
Answer evaluate_into(const Problem& problem, Layout layout, contrastive::Workspace& workspace);

/// loss(..., options).
template <class T>
Real evaluate_value(const Problem& problem, Layout layout = Layout::column_major);

/// loss(..., options, workspace).
template <class T>
Real evaluate_value(const Problem& problem, Layout layout, contrastive::Workspace& workspace);

/// rows(..., options), each row's loss in one column, and rows(..., options, result, workspace)
/// into a result of another size that is full of NaN.
template <class T>
Matrix evaluate_rows(const Problem& problem, Layout layout = Layout::column_major);
template <class T>
Matrix evaluate_rows_into(const Problem& problem, Layout layout, contrastive::Workspace& workspace);

/// batch_report(...), whose header most test files do not need.
struct Report {
  Real loss = 0;
  Real log_candidates = 0;
  Real top1_rows = 0;
  Real top1_columns = 0;
  Real mean_positive = 0;
  Real mean_negative = 0;
  Real masked = 0;
  std::optional<Real> mutual_information = {};
};

/// batch_report(..., options) of InfoNCE and of hard negatives.
template <class T>
Report evaluate_report(const Problem& problem, Layout layout = Layout::column_major);

/// What a call threw: "invalid_argument", "overflow_error", another name, or nothing.
struct Refusal {
  std::string kind = {};
  std::string message = {};
};

struct Refusals {
  Refusal value = {};               // of loss(...)
  Refusal grad = {};                // of loss_grad(...)
  Refusal into = {};                // of loss_grad(..., result, workspace)
  bool result_is_untouched = true;  // whether `into` left the result as it was
};

template <class T>
Refusals refusals(const Problem& problem, Layout layout = Layout::column_major);

/// Of rows(...) in `value`, and of rows(..., result, workspace) in `into`.
template <class T>
Refusals row_refusals(const Problem& problem);

/// Of batch_report(...).
template <class T>
Refusal report_refusal(const Problem& problem);

}  // namespace contrastive_tests

#endif
