// Definitions for evaluate.hpp; included by one source file per scalar type.
#include <contrastive/contrastive.hpp>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "compare.hpp"
#include "evaluate.hpp"

namespace contrastive_tests {
namespace evaluation {

// ---- the arguments after the matrices ----

inline contrastive::Similarity similarity_of(const Problem& p) {
  return p.cosine ? contrastive::Similarity::cosine : contrastive::Similarity::dot;
}

inline contrastive::SoftmaxOptions softmax_options(const Problem& p) {
  contrastive::SoftmaxOptions options;
  options.similarity = similarity_of(p);
  options.query_ids = p.query_ids;
  options.pos_ids = p.pos_ids;
  options.neg_ids = p.neg_ids;
  options.weights = p.weights;
  options.scope =
      p.own_scope ? contrastive::NegativeScope::own : contrastive::NegativeScope::shared;
  options.neg_offsets = p.offsets;
  options.label_smoothing = p.label_smoothing;
  options.positive_margin = p.positive_margin;
  options.decoupled = p.decoupled;
  options.log_prior = p.log_prior;
  options.false_negative_margin = p.false_negative_margin;
  return options;
}

inline contrastive::SigLipOptions siglip_options(const Problem& p) {
  contrastive::SigLipOptions options;
  options.similarity = similarity_of(p);
  options.query_ids = p.query_ids;
  options.pos_ids = p.pos_ids;
  options.weights = p.weights;
  return options;
}

/// function(scale), whose type says whether it is learned.
template <class Function>
auto with_scale(const Problem& p, const Function& function) {
  if (p.learned) return function(contrastive::LogScale{p.log_scale, p.max_scale});
  return function(contrastive::Temperature{p.temperature});
}

template <class Integer, class Function>
auto with_labels_of(const Problem& p, const Function& function) {
  std::vector<Integer> labels;
  for (const std::int64_t label : p.labels) labels.push_back(static_cast<Integer>(label));
  return function(labels);
}

/// function(labels), which are of the problem's label type.
template <class Function>
auto with_labels(const Problem& p, const Function& function) {
  const auto count = static_cast<Index>(p.labels.size());
  switch (p.label_type) {
    case LabelType::int64:
      break;
    case LabelType::int32:
      return with_labels_of<std::int32_t>(p, function);
    case LabelType::int16:
      return with_labels_of<std::int16_t>(p, function);
    case LabelType::uint8:
      return with_labels_of<std::uint8_t>(p, function);
    case LabelType::uint32:
      return with_labels_of<std::uint32_t>(p, function);
    case LabelType::eigen:
    case LabelType::strided: {
      const bool strided = p.label_type == LabelType::strided;
      Eigen::Matrix<int, Eigen::Dynamic, Eigen::Dynamic> table(strided ? 3 : 1, count);
      table.setConstant(-9);
      for (Index i = 0; i < count; ++i)
        table(strided ? 1 : 0, i) = static_cast<int>(p.labels[static_cast<std::size_t>(i)]);
      if (strided) return function(table.row(1));
      const Eigen::VectorXi labels = table.row(0);
      return function(labels);
    }
  }
  return function(p.labels);
}

// ---- the losses ----

#define CONTRASTIVE_TESTS_CALLS(NAME)              \
  template <class... Arguments>                    \
  static auto value(Arguments&&... arguments) {    \
    return contrastive::NAME(arguments...);        \
  }                                                \
  template <class... Arguments>                    \
  static auto grad(Arguments&&... arguments) {     \
    return contrastive::NAME##_grad(arguments...); \
  }

#define CONTRASTIVE_TESTS_ROWS(NAME)           \
  static constexpr bool has_rows = true;       \
  template <class... Arguments>                \
  static auto rows(Arguments&&... arguments) { \
    return contrastive::NAME(arguments...);    \
  }

struct PairLoss {
  static constexpr std::size_t inputs = 2;
  template <class Result>
  static auto gradients(Result& r) {
    return std::tie(r.dQ, r.dP);
  }
  template <class Function>
  static auto with_arguments(const Problem& p, const Function& function) {
    return with_scale(p, [&](auto scale) { return function(scale, softmax_options(p)); });
  }
};

struct InfoNce : PairLoss {
  CONTRASTIVE_TESTS_CALLS(info_nce_loss)
  CONTRASTIVE_TESTS_ROWS(info_nce_rows)
};

struct Clip : PairLoss {
  CONTRASTIVE_TESTS_CALLS(clip_loss)
  CONTRASTIVE_TESTS_ROWS(clip_rows)
};

struct SigLip : PairLoss {
  CONTRASTIVE_TESTS_CALLS(siglip_loss)
  CONTRASTIVE_TESTS_ROWS(siglip_rows)
  template <class Function>
  static auto with_arguments(const Problem& p, const Function& function) {
    return with_scale(p, [&](auto scale) { return function(scale, p.bias, siglip_options(p)); });
  }
};

struct NtXent : PairLoss {
  CONTRASTIVE_TESTS_CALLS(nt_xent_loss)
  CONTRASTIVE_TESTS_ROWS(nt_xent_rows)
  template <class Result>
  static auto gradients(Result& r) {
    return std::tie(r.dZa, r.dZb);
  }
};

struct SupCon {
  CONTRASTIVE_TESTS_CALLS(sup_con_loss)
  CONTRASTIVE_TESTS_ROWS(sup_con_rows)
  static constexpr std::size_t inputs = 1;
  template <class Result>
  static auto gradients(Result& r) {
    return std::tie(r.dZ);
  }
  template <class Function>
  static auto with_arguments(const Problem& p, const Function& function) {
    return with_scale(p, [&](auto scale) {
      return with_labels(p, [&](const contrastive::Labels& labels) {
        return function(labels, scale, softmax_options(p));
      });
    });
  }
};

struct HardNegative : PairLoss {
  CONTRASTIVE_TESTS_CALLS(hard_negative_loss)
  CONTRASTIVE_TESTS_ROWS(hard_negative_rows)
  static constexpr std::size_t inputs = 3;
  template <class Result>
  static auto gradients(Result& r) {
    return std::tie(r.dQ, r.dP, r.dN);
  }
};

struct LogitsLoss {
  static constexpr std::size_t inputs = 1;
  template <class Result>
  static auto gradients(Result& r) {
    return std::tie(r.dS);
  }
  template <class Function>
  static auto with_arguments(const Problem& p, const Function& function) {
    return function(softmax_options(p));
  }
};

struct InfoNceLogits : LogitsLoss {
  CONTRASTIVE_TESTS_CALLS(info_nce_logits_loss)
};

struct ClipLogits : LogitsLoss {
  CONTRASTIVE_TESTS_CALLS(clip_logits_loss)
};

struct SigLipLogits : LogitsLoss {
  CONTRASTIVE_TESTS_CALLS(siglip_logits_loss)
  template <class Function>
  static auto with_arguments(const Problem& p, const Function& function) {
    return function(p.bias, siglip_options(p));
  }
};

struct MutualInformation : LogitsLoss {
  CONTRASTIVE_TESTS_CALLS(mutual_information_bound)
  template <class Function>
  static auto with_arguments(const Problem&, const Function& function) {
    return function();
  }
};

struct Triplet {
  CONTRASTIVE_TESTS_CALLS(triplet_loss)
  static constexpr std::size_t inputs = 3;
  template <class Result>
  static auto gradients(Result& r) {
    return std::tie(r.dA, r.dP, r.dN);
  }
  template <class Function>
  static auto with_arguments(const Problem& p, const Function& function) {
    return function(p.margin);
  }
};

struct Alignment {
  CONTRASTIVE_TESTS_CALLS(alignment_loss)
  static constexpr std::size_t inputs = 2;
  template <class Result>
  static auto gradients(Result& r) {
    return std::tie(r.dZa, r.dZb);
  }
  template <class Function>
  static auto with_arguments(const Problem& p, const Function& function) {
    return function(p.alpha, similarity_of(p));
  }
};

struct Uniformity {
  CONTRASTIVE_TESTS_CALLS(uniformity_loss)
  static constexpr std::size_t inputs = 1;
  template <class Result>
  static auto gradients(Result& r) {
    return std::tie(r.dZ);
  }
  template <class Function>
  static auto with_arguments(const Problem& p, const Function& function) {
    return function(p.t, similarity_of(p));
  }
};

#undef CONTRASTIVE_TESTS_CALLS
#undef CONTRASTIVE_TESTS_ROWS

template <class L, class = void>
constexpr bool loss_has_rows = false;
template <class L>
constexpr bool loss_has_rows<L, std::enable_if_t<L::has_rows>> = true;

/// function(L{}), L the struct above that belongs to the loss; one that takes as many matrices.
template <std::size_t inputs, class Function>
auto with_loss(Loss loss, const Function& function) {
  if constexpr (inputs == 1) {
    switch (loss) {
      case Loss::info_nce_logits:
        return function(InfoNceLogits{});
      case Loss::clip_logits:
        return function(ClipLogits{});
      case Loss::siglip_logits:
        return function(SigLipLogits{});
      case Loss::mutual_information:
        return function(MutualInformation{});
      case Loss::uniformity:
        return function(Uniformity{});
      case Loss::sup_con:
        return function(SupCon{});
      default:
        break;
    }
  } else if constexpr (inputs == 2) {
    switch (loss) {
      case Loss::info_nce:
        return function(InfoNce{});
      case Loss::clip:
        return function(Clip{});
      case Loss::siglip:
        return function(SigLip{});
      case Loss::nt_xent:
        return function(NtXent{});
      case Loss::alignment:
        return function(Alignment{});
      default:
        break;
    }
  } else {
    switch (loss) {
      case Loss::hard_negative:
        return function(HardNegative{});
      case Loss::triplet:
        return function(Triplet{});
      default:
        break;
    }
  }
  throw std::logic_error("a loss with another number of inputs");
}

// ---- the inputs in memory ----

template <class T, int order>
using Plain = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, order>;

template <class T>
constexpr T hole = std::numeric_limits<T>::quiet_NaN();  // between the elements of a strided map

template <class T, int order>
class PlainInput {
 public:
  explicit PlainInput(const Matrix& x) : matrix_(x.cast<T>()) {}
  [[nodiscard]] const auto& view() const { return matrix_; }

 private:
  Plain<T, order> matrix_;
};

/// A map with the given inner stride, whose outer stride leaves a gap of 3, starting `shift`
/// scalars after an aligned address.
template <class T, int order, Index inner, Index shift = 0>
class MapInput {
 public:
  explicit MapInput(const Matrix& x)
      : rows_(x.rows()),
        cols_(x.cols()),
        outer_(inner * (order == Eigen::RowMajor ? x.cols() : x.rows()) + gap),
        memory_(Eigen::Matrix<T, Eigen::Dynamic, 1>::Constant(
            shift + outer_ * (order == Eigen::RowMajor ? x.rows() : x.cols()), hole<T>)) {
    for (Index i = 0; i < rows_; ++i)
      for (Index j = 0; j < cols_; ++j)
        memory_(shift
                + (order == Eigen::RowMajor ? i * outer_ + j * inner : j * outer_ + i * inner)) =
            static_cast<T>(x(i, j));
  }
  [[nodiscard]] auto view() const {
    if constexpr (inner == 1) {
      return Eigen::Map<const Plain<T, order>, 0, Eigen::OuterStride<>>(
          memory_.data() + shift, rows_, cols_, Eigen::OuterStride<>(outer_));
    } else {
      using Stride = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
      return Eigen::Map<const Plain<T, order>, 0, Stride>(memory_.data() + shift, rows_, cols_,
                                                          Stride(outer_, inner));
    }
  }

 private:
  static constexpr Index gap = shift == 0 ? 3 : 0;
  Index rows_, cols_, outer_;
  Eigen::Matrix<T, Eigen::Dynamic, 1> memory_;
};

template <class T, int order>
class BlockInput {
 public:
  explicit BlockInput(const Matrix& x)
      : rows_(x.rows()),
        cols_(x.cols()),
        matrix_(Plain<T, order>::Constant(rows_ + 3, cols_ + 4, hole<T>)) {
    matrix_.block(1, 2, rows_, cols_) = x.cast<T>();
  }
  [[nodiscard]] auto view() const { return matrix_.block(1, 2, rows_, cols_); }

 private:
  Index rows_, cols_;
  Plain<T, order> matrix_;
};

template <class T, int order>
class ExpressionInput {
 public:
  explicit ExpressionInput(const Matrix& x) : half_(x.cast<T>() / T(2)) {}
  [[nodiscard]] auto view() const { return half_ + half_; }

 private:
  Plain<T, order> half_;
};

template <class First, class Second, class Third, class Function>
auto with_views(const Problem& p, const Function& function) {
  switch (p.inputs.size()) {
    case 1: {
      const First x(p.inputs[0]);
      return function(x.view());
    }
    case 2: {
      const First x(p.inputs[0]);
      const Second y(p.inputs[1]);
      return function(x.view(), y.view());
    }
    default: {
      const First x(p.inputs[0]);
      const Second y(p.inputs[1]);
      const Third z(p.inputs[2]);
      return function(x.view(), y.view(), z.view());
    }
  }
}

/// Those of the layouts for which every form of a call is compiled.
template <class T, class Function>
auto with_main_layout(const Problem& p, Layout layout, const Function& function) {
  constexpr int column = Eigen::ColMajor;
  constexpr int row = Eigen::RowMajor;
  using Column = PlainInput<T, column>;
  using Row = PlainInput<T, row>;
  switch (layout) {
    case Layout::column_major:
      return with_views<Column, Column, Column>(p, function);
    case Layout::row_major:
      return with_views<Row, Row, Row>(p, function);
    case Layout::inner_stride:
      return with_views<MapInput<T, row, 2>, MapInput<T, column, 3>, MapInput<T, row, 3>>(p,
                                                                                          function);
    default:
      throw std::logic_error("this form is not compiled for this layout");
  }
}

template <class T, class Function>
auto with_layout(const Problem& p, Layout layout, const Function& function) {
  constexpr int column = Eigen::ColMajor;
  constexpr int row = Eigen::RowMajor;
  switch (layout) {
    case Layout::mixed:
      return with_views<PlainInput<T, row>, PlainInput<T, column>, PlainInput<T, row>>(p, function);
    case Layout::outer_stride:
      return with_views<MapInput<T, column, 1>, MapInput<T, row, 1>, MapInput<T, column, 1>>(
          p, function);
    case Layout::block:
      return with_views<BlockInput<T, column>, BlockInput<T, row>, BlockInput<T, column>>(p,
                                                                                          function);
    case Layout::expression:
      return with_views<ExpressionInput<T, column>, ExpressionInput<T, row>,
                        ExpressionInput<T, row>>(p, function);
    case Layout::unaligned:
      return with_views<MapInput<T, column, 1, 1>, MapInput<T, row, 1, 1>,
                        MapInput<T, column, 1, 1>>(p, function);
    default:
      return with_main_layout<T>(p, layout, function);
  }
}

/// function(L{}, value, grad) for the views of the inputs: value and grad make the library's call,
/// with the arguments of the problem and then those they are given.
template <class Function>
auto calling(const Problem& p, const Function& function) {
  return [&p, &function](const auto&... views) {
    return with_loss<sizeof...(views)>(p.loss, [&](auto loss) {
      using L = decltype(loss);
      return L::with_arguments(p, [&](const auto&... arguments) {
        const auto value = [&](auto&... rest) { return L::value(views..., arguments..., rest...); };
        const auto grad = [&](auto&... rest) { return L::grad(views..., arguments..., rest...); };
        return function(loss, value, grad);
      });
    });
  };
}

/// function(rows): rows makes the library's call as value and grad do above.
template <class Result, class Function>
auto calling_rows(const Problem& p, const Function& function) {
  return [&p, &function](const auto&... views) {
    return with_loss<sizeof...(views)>(p.loss, [&](auto loss) -> Result {
      using L = decltype(loss);
      if constexpr (loss_has_rows<L>)
        return L::with_arguments(p, [&](const auto&... arguments) {
          return function([&](auto&... rest) { return L::rows(views..., arguments..., rest...); });
        });
      else
        throw std::logic_error("a loss without rows");
    });
  };
}

/// The report of InfoNCE or of hard negatives.
inline auto calling_report(const Problem& p) {
  return [&p](const auto&... views) -> contrastive::BatchReport {
    if constexpr (sizeof...(views) > 1)
      return with_scale(p, [&](auto scale) {
        return contrastive::batch_report(views..., scale, softmax_options(p));
      });
    else
      throw std::logic_error("a loss without a report");
  };
}

// ---- results ----

template <class R, class = void>
constexpr bool has_d_log_scale = false;
template <class R>
constexpr bool has_d_log_scale<R, std::void_t<decltype(R::d_log_scale)>> = true;

template <class R, class = void>
constexpr bool has_d_bias = false;
template <class R>
constexpr bool has_d_bias<R, std::void_t<decltype(R::d_bias)>> = true;

template <class R, class = void>
constexpr bool has_nats = false;
template <class R>
constexpr bool has_nats<R, std::void_t<decltype(R::nats)>> = true;

template <class R>
auto& value_of(R& result) {
  if constexpr (has_nats<std::remove_const_t<R>>)
    return result.nats;
  else
    return result.loss;
}

template <class L, class R>
Answer to_answer(const R& result) {
  Answer answer;
  answer.value = value_of(result);
  std::apply([&](const auto&... d) { (answer.gradients.push_back(d.template cast<Real>()), ...); },
             L::gradients(result));
  if constexpr (has_d_log_scale<R>) answer.d_log_scale = result.d_log_scale;
  if constexpr (has_d_bias<R>) answer.d_bias = result.d_bias;
  return answer;
}

/// A result whose every number is x, with matrices that fit nothing.
template <class L, class R, class T>
R filled_result(T x) {
  R result;
  value_of(result) = x;
  std::apply([&](auto&... d) { (d.setConstant(3, 2, x), ...); }, L::gradients(result));
  if constexpr (has_d_log_scale<R>) result.d_log_scale = x;
  if constexpr (has_d_bias<R>) result.d_bias = x;
  return result;
}

template <class Function>
Refusal refusal_of(const Function& function) {
  try {
    function();
  } catch (const std::invalid_argument& error) {
    return {"invalid_argument", error.what()};
  } catch (const std::overflow_error& error) {
    return {"overflow_error", error.what()};
  } catch (const std::exception& error) {
    return {"another exception", error.what()};
  }
  return {};
}

}  // namespace evaluation

template <class T>
Answer evaluate(const Problem& problem, Layout layout) {
  const auto call = [](auto loss, const auto&, const auto& grad) {
    return evaluation::to_answer<decltype(loss)>(grad());
  };
  return evaluation::with_layout<T>(problem, layout, evaluation::calling(problem, call));
}

template <class T>
Answer evaluate(const Problem& problem, Layout layout, contrastive::Workspace& workspace) {
  const auto call = [&](auto loss, const auto&, const auto& grad) {
    return evaluation::to_answer<decltype(loss)>(grad(workspace));
  };
  return evaluation::with_main_layout<T>(problem, layout, evaluation::calling(problem, call));
}

template <class T>
Answer evaluate_into(const Problem& problem, Layout layout, contrastive::Workspace& workspace) {
  const auto call = [&](auto loss, const auto&, const auto& grad) {
    using L = decltype(loss);
    auto result = evaluation::filled_result<L, decltype(grad())>(evaluation::hole<T>);
    static_assert(std::is_void_v<decltype(grad(result, workspace))>);
    grad(result, workspace);
    return evaluation::to_answer<L>(result);
  };
  return evaluation::with_main_layout<T>(problem, layout, evaluation::calling(problem, call));
}

template <class T>
Real evaluate_value(const Problem& problem, Layout layout) {
  const auto call = [](auto, const auto& value, const auto&) {
    static_assert(std::is_same_v<decltype(value()), T>);
    return static_cast<Real>(value());
  };
  return evaluation::with_layout<T>(problem, layout, evaluation::calling(problem, call));
}

template <class T>
Real evaluate_value(const Problem& problem, Layout layout, contrastive::Workspace& workspace) {
  const auto call = [&](auto, const auto& value, const auto&) {
    return static_cast<Real>(value(workspace));
  };
  return evaluation::with_main_layout<T>(problem, layout, evaluation::calling(problem, call));
}

template <class T>
Refusals refusals(const Problem& problem, Layout layout) {
  const auto call = [](auto loss, const auto& value, const auto& grad) {
    using L = decltype(loss);
    using Result = decltype(grad());
    contrastive::Workspace workspace;
    auto result = evaluation::filled_result<L, Result>(T(7));
    const Answer before = evaluation::to_answer<L>(result);
    Refusals refusals;
    refusals.value = evaluation::refusal_of([&] { (void)value(); });
    refusals.grad = evaluation::refusal_of([&] { (void)grad(); });
    refusals.into = evaluation::refusal_of([&] { grad(result, workspace); });
    refusals.result_is_untouched = same_bits(evaluation::to_answer<L>(result), before);
    return refusals;
  };
  return evaluation::with_main_layout<T>(problem, layout, evaluation::calling(problem, call));
}

template <class T>
Matrix evaluate_rows(const Problem& problem, Layout layout) {
  const auto call = [](const auto& rows) {
    static_assert(std::is_same_v<decltype(rows()), Eigen::Matrix<T, Eigen::Dynamic, 1>>);
    return Matrix(rows().template cast<Real>());
  };
  return evaluation::with_main_layout<T>(problem, layout,
                                         evaluation::calling_rows<Matrix>(problem, call));
}

template <class T>
Matrix evaluate_rows_into(const Problem& problem, Layout layout,
                          contrastive::Workspace& workspace) {
  const auto call = [&](const auto& rows) {
    Eigen::Matrix<T, Eigen::Dynamic, 1> result;
    result.setConstant(3, evaluation::hole<T>);
    rows(result, workspace);
    return Matrix(result.template cast<Real>());
  };
  return evaluation::with_main_layout<T>(problem, layout,
                                         evaluation::calling_rows<Matrix>(problem, call));
}

template <class T>
Refusals row_refusals(const Problem& problem) {
  const auto call = [](const auto& rows) {
    contrastive::Workspace workspace;
    Eigen::Matrix<T, Eigen::Dynamic, 1> result;
    result.setConstant(3, T(7));
    Refusals refusals;
    refusals.value = evaluation::refusal_of([&] { (void)rows(); });
    refusals.into = evaluation::refusal_of([&] { rows(result, workspace); });
    refusals.result_is_untouched = result.size() == 3 && (result.array() == T(7)).all();
    return refusals;
  };
  return evaluation::with_main_layout<T>(problem, Layout::column_major,
                                         evaluation::calling_rows<Refusals>(problem, call));
}

template <class T>
Report evaluate_report(const Problem& problem, Layout layout) {
  const contrastive::BatchReport r =
      evaluation::with_main_layout<T>(problem, layout, evaluation::calling_report(problem));
  return {r.loss,          r.log_candidates, r.top1_rows, r.top1_columns,
          r.mean_positive, r.mean_negative,  r.masked,    r.mutual_information};
}

template <class T>
Refusal report_refusal(const Problem& problem) {
  return evaluation::refusal_of([&] { (void)evaluate_report<T>(problem); });
}

/// The functions above for one scalar type.
#define CONTRASTIVE_TESTS_INSTANTIATE(T)                                                  \
  template Answer evaluate<T>(const Problem&, Layout);                                    \
  template Answer evaluate<T>(const Problem&, Layout, contrastive::Workspace&);           \
  template Answer evaluate_into<T>(const Problem&, Layout, contrastive::Workspace&);      \
  template Real evaluate_value<T>(const Problem&, Layout);                                \
  template Real evaluate_value<T>(const Problem&, Layout, contrastive::Workspace&);       \
  template Refusals refusals<T>(const Problem&, Layout);                                  \
  template Matrix evaluate_rows<T>(const Problem&, Layout);                               \
  template Matrix evaluate_rows_into<T>(const Problem&, Layout, contrastive::Workspace&); \
  template Refusals row_refusals<T>(const Problem&);                                      \
  template Report evaluate_report<T>(const Problem&, Layout);                             \
  template Refusal report_refusal<T>(const Problem&);

}  // namespace contrastive_tests
