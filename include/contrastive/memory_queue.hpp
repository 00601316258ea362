// Momentum contrast: a queue of past embeddings as negatives, and the slow encoder that fills it.
#ifndef CONTRASTIVE_MEMORY_QUEUE_HPP
#define CONTRASTIVE_MEMORY_QUEUE_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "detail/checks.hpp"
#include "detail/overlap.hpp"
#include "detail/view.hpp"
#include "options.hpp"
#include "results.hpp"

namespace contrastive {

/// The newest embeddings of the last steps, at most `capacity` of them, to be negatives of the next
/// batch:
///
///     MemoryQueue<float> queue(65536, 128);
///     for (...) {
///       options.neg_ids = queue.ids();
///       auto [loss, dQ, dK, dN] = hard_negative_loss_grad(Q, K, queue.rows(), scale, options);
///       queue.push(K, ids);                 // dN is of no use: what is in the queue is a constant
///     }
///
/// The batch need not divide the capacity. Rows stand in the order of their slots, not of their
/// age: new rows go to the slots that are free, then to those of the oldest. Row i of rows() has
/// the id ids()[i], and a row keeps its place as long as it stays. Rows are kept as they are given;
/// a cosine normalises them.
///
/// Either all rows have an id or none has; the first push after construction or clear() decides.
///
/// All memory is taken at construction: pushing a plain matrix, a map or a block of one allocates
/// nothing. Other expressions are evaluated first, and rows of the queue itself are copied first.
///
/// @tparam T  float, double or long double, that of the matrices it is used with.
/// @see He, Fan, Wu, Xie, Girshick, "Momentum Contrast for Unsupervised Visual Representation
///      Learning", 2020, arXiv:1911.05722, section 3.2.
template <class T>
class MemoryQueue {
  static_assert(detail::is_supported_scalar<T>,
                "contrastive: a MemoryQueue holds float, double or long double");

 public:
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Index = Eigen::Index;

  /// An empty queue of rows of d numbers.
  ///
  /// @throws std::invalid_argument if the capacity or d is less than 1.
  MemoryQueue(Index capacity, Index d)
      : slots_(at_least_one("capacity", capacity), at_least_one("d", d)),
        slot_ids_(static_cast<std::size_t>(capacity)),
        new_ids_(static_cast<std::size_t>(capacity)) {}

  /// Takes rows (n x d) in, and lets the oldest go where there is no room. Of more rows than the
  /// capacity the last are kept. No rows change nothing.
  ///
  /// @param rows  any Eigen expression, also of the queue's own rows.
  /// @param ids   n of them, or none.
  /// @throws std::invalid_argument if rows has not d columns; ids is not n long; rows with and
  ///     without ids would mix; a row is not finite, be it one that would be kept or not. The queue
  ///     is then what it was.
  template <class Rows>
  void push(const Eigen::MatrixBase<Rows>& rows, const List<std::int64_t>& ids = {}) {
    detail::require_same_scalar<Matrix, Rows>();
    const detail::Bound<Rows> bound(rows);
    if (detail::overlap(bound.view(), detail::strided_view(slots_))) {
      const Matrix copy = rows;
      take(detail::strided_view(copy), ids);
    } else {
      take(bound.view(), ids);
    }
  }

  /// The rows held (size() x d), where they are: a view that the next push() or clear() outdates.
  [[nodiscard]] Eigen::Map<const Matrix> rows() const {
    return Eigen::Map<const Matrix>(slots_.data(), size_, slots_.cols());
  }

  /// Their ids, to be `neg_ids`; empty where rows have none. A view, as rows().
  [[nodiscard]] List<std::int64_t> ids() const {
    using Ids = Eigen::Matrix<std::int64_t, Eigen::Dynamic, 1>;
    return Eigen::Map<const Ids>(slot_ids_.data(), has_ids_ ? size_ : 0);
  }

  [[nodiscard]] Index size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] Index capacity() const { return slots_.rows(); }
  /// Numbers in a row.
  [[nodiscard]] Index dim() const { return slots_.cols(); }

  /// Lets all rows go, and what was decided about ids.
  void clear() {
    size_ = 0;
    next_ = 0;
  }

 private:
  static Index at_least_one(const char* argument, Index n) {
    if (n < 1)
      detail::refuse("MemoryQueue", "%s is %lld, it must be at least 1", argument,
                     detail::number(n));
    return n;
  }

  void take(const detail::View<const T>& rows, const List<std::int64_t>& ids) {
    check(rows, ids);
    if (rows.rows == 0) return;
    has_ids_ = !ids.empty();
    const Index kept = (std::min)(rows.rows, capacity()), first = rows.rows - kept;
    for (Index i = 0; has_ids_ && i < kept; ++i)  // they may be a view of slot_ids_
      new_ids_[std::size_t(i)] = ids[first + i];
    for (Index i = 0; i < kept; ++i) {
      for (Index k = 0; k < dim(); ++k) slots_(next_, k) = rows(first + i, k);
      if (has_ids_) slot_ids_[std::size_t(next_)] = new_ids_[std::size_t(i)];
      next_ = next_ + 1 == capacity() ? 0 : next_ + 1;
    }
    size_ = (std::min)(size_ + kept, capacity());
  }

  void check(const detail::View<const T>& rows, const List<std::int64_t>& ids) const {
    const char* function = "MemoryQueue::push";
    if (rows.cols != dim())
      detail::refuse(function, "rows is %lld x %lld but the queue holds rows of %lld",
                     detail::number(rows.rows), detail::number(rows.cols), detail::number(dim()));
    detail::check_optional_length(function, "ids", ids, rows.rows, "rows");
    if (size_ > 0 && rows.rows > 0 && ids.empty() == has_ids_)
      detail::refuse(function, "%s",
                     has_ids_ ? "ids are missing, but the rows in the queue have some"
                              : "ids are given, but the rows in the queue have none");
    detail::check_finite(function, "rows", rows);
  }

  Matrix slots_;
  std::vector<std::int64_t> slot_ids_;
  std::vector<std::int64_t> new_ids_;
  Index size_ = 0;
  Index next_ = 0;        ///< the slot of the next row: a free one, or that of the oldest
  bool has_ids_ = false;  ///< whether the rows of the last push had ids
};

namespace detail {

/// A writable Eigen expression as something to assign to: plain matrices by reference, views of
/// them by value.
template <class Slow>
struct Written {
  using Expression = std::remove_cv_t<std::remove_reference_t<Slow>>;
  static_assert(std::is_base_of_v<Eigen::MatrixBase<Expression>, Expression>,
                "contrastive: momentum_update takes Eigen matrices, vectors, maps or blocks");
  static constexpr bool is_plain =
      std::is_base_of_v<Eigen::PlainObjectBase<Expression>, Expression>;
  static_assert((int(Expression::Flags) & int(Eigen::LvalueBit)) != 0
                    && !(is_plain && std::is_const_v<std::remove_reference_t<Slow>>),
                "contrastive: momentum_update cannot write to what is const");
  static_assert(!is_plain || std::is_lvalue_reference_v<Slow>,
                "contrastive: momentum_update would write to a temporary matrix");
  using Type = std::conditional_t<is_plain, Expression&, Expression>;
};

/// slow = m slow + (1 - m) fast, in the order in which slow lies in memory.
template <class Slow, class T>
void mix(Slow& slow, const View<const T>& fast, double m) {
  using W = Wide<T>;
  const W kept = W(m), share = 1 - W(m);
  constexpr bool by_rows = Slow::IsRowMajor;
  const Index outer_size = by_rows ? slow.rows() : slow.cols();
  const Index inner_size = by_rows ? slow.cols() : slow.rows();
  for (Index outer = 0; outer < outer_size; ++outer)
    for (Index inner = 0; inner < inner_size; ++inner) {
      const Index i = by_rows ? outer : inner, j = by_rows ? inner : outer;
      T& x = slow.coeffRef(i, j);
      x = T(kept * W(x) + share * W(fast(i, j)));
    }
}

}  // namespace detail

/// The step of the slow encoder that fills the queue:
///
///     slow = momentum slow + (1 - momentum) fast
///
/// With momentum 1 slow stays as it is, with 0 it becomes fast, exactly.
///
/// @param slow      a matrix, vector, map or block of one, written in place.
/// @param fast      any expression of the same shape and scalar type, also one that reads slow.
/// @param momentum  in [0, 1]; 0.999 in MoCo.
/// @throws std::invalid_argument if shapes differ, the momentum is out of range, or slow or fast
///     is not finite. Nothing is written then.
/// @see He et al. (MoCo), 2020, arXiv:1911.05722, equation 2.
template <class Slow, class Fast>
void momentum_update(Slow&& slow, const Eigen::MatrixBase<Fast>& fast, double momentum) {
  using Written = detail::Written<Slow>;
  using Expression = typename Written::Expression;
  detail::require_same_scalar<Expression, Fast>();
  const char* function = "momentum_update";
  typename Written::Type written(slow);
  const detail::Bound<Expression> old(written);
  const detail::Bound<Fast> given(fast);
  detail::check_same_shape(function, "slow", old.view(), "fast", given.view());
  if (!(momentum >= 0 && momentum <= 1))
    detail::refuse(function, "momentum is %.9g, it must be from 0 to 1", momentum);
  detail::check_finite(function, "slow", old.view());
  detail::check_finite(function, "fast", given.view());

  // What is written may be read again elsewhere, as in momentum_update(A, A.transpose(), m).
  if (!detail::is_in_memory<Expression> || detail::overlap(old.view(), given.view())) {
    const GradientOf<Fast> copy = fast;
    detail::mix(written, detail::strided_view(copy), momentum);
  } else {
    detail::mix(written, given.view(), momentum);
  }
}

}  // namespace contrastive

#endif  // CONTRASTIVE_MEMORY_QUEUE_HPP
