// What a loss can be asked for.
#ifndef CONTRASTIVE_OPTIONS_HPP
#define CONTRASTIVE_OPTIONS_HPP

#include <Eigen/Core>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace contrastive {

/// How two embeddings are compared. `cosine` divides rows by their norms and carries gradients back
/// through that; `dot` takes rows as they are, also right for rows that are unit vectors already.
enum class Similarity { cosine, dot };

/// Whether an extra negative is a candidate of every query, or of its own query alone.
enum class NegativeScope { shared, own };

/// A view of a list of `T`, made from a std::vector, an Eigen vector (also a strided one) or
/// anything else with data() and size(). It keeps no copy: the list must outlive the call.
/// An empty list means "not given".
template <class T>
class List {
 public:
  List() = default;

  template <class Container, class = std::enable_if_t<!std::is_same_v<Container, List>>>
  List(const Container& list)  // NOLINT(google-explicit-constructor): a view, like std::span
      : data_(list.data()), size_(static_cast<Eigen::Index>(list.size())) {
    using Element = std::remove_cv_t<std::remove_pointer_t<decltype(list.data())>>;
    static_assert(std::is_same_v<Element, T>,
                  "contrastive: a list of ids or offsets has elements of type std::int64_t, "
                  "a list of weights or priors has elements of type double");
    if constexpr (std::is_base_of_v<Eigen::EigenBase<Container>, Container>) {
      static_assert(Container::IsVectorAtCompileTime,
                    "contrastive: a list made from an Eigen object takes a vector, not a matrix");
      stride_ = list.innerStride();
    }
  }

  [[nodiscard]] Eigen::Index size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] T operator[](Eigen::Index i) const { return data_[i * stride_]; }

 private:
  const T* data_ = nullptr;
  Eigen::Index size_ = 0;
  Eigen::Index stride_ = 1;
};

/// Options of the losses that are a softmax over candidates: InfoNCE, hard negatives, CLIP.
///
/// In every softmax, row i's candidates are its own positive, the other rows j of P, and then the
/// extra negatives. A loss refuses an option that it has no use for.
struct SoftmaxOptions {
  Similarity similarity = Similarity::cosine;

  /// Row j of P (j not i) is no candidate of row i where query_ids or pos_ids of i and j are equal.
  List<std::int64_t> query_ids{};
  List<std::int64_t> pos_ids{};
  /// Extra negative m is no candidate of row i where neg_ids[m] equals pos_ids[i].
  List<std::int64_t> neg_ids{};

  /// One weight a pair: means over rows (and columns) become sum(w L) / sum(w).
  List<double> weights{};

  /// Hard negatives: whose candidates the rows of N are. With `own` and no offsets each query has
  /// its N.rows() / B rows in order.
  NegativeScope scope = NegativeScope::shared;
  /// With `own`: query i has the rows neg_offsets[i] .. neg_offsets[i + 1] - 1 of N, also none.
  List<std::int64_t> neg_offsets{};

  /// e in [0, 1]: a row's loss is lse - (1 - e) s_pos - e mean(s), over its candidates.
  double label_smoothing = 0;
  /// m: the positive's logit becomes scale (c_ii - m), in the denominator too.
  double positive_margin = 0;
  /// The positive is left out of the log-sum-exp, and of nothing else.
  bool decoupled = false;
  /// log_prior[j] is taken off the logit of row j of P, for every query: where j was drawn with
  /// that log-probability, up to a constant. In CLIP's columns it cancels.
  List<double> log_prior{};
  /// m: a candidate whose similarity exceeds c_ii - m (without positive_margin and log_prior) is
  /// left out, an extra negative too; in CLIP's columns c_jj - m. The own positive never is. No
  /// gradient flows through the choice.
  std::optional<double> false_negative_margin{};
};

/// Options of the sigmoid loss.
struct SigLipOptions {
  Similarity similarity = Similarity::cosine;

  /// The pair of row i of Q and row j of P (j not i) is left out where query_ids or pos_ids of i
  /// and j are equal.
  List<std::int64_t> query_ids{};
  List<std::int64_t> pos_ids{};

  /// One weight a row: the mean over rows becomes sum(w L) / sum(w).
  List<double> weights{};
};

}  // namespace contrastive

#endif  // CONTRASTIVE_OPTIONS_HPP
