// Labels of any integer type.
#ifndef CONTRASTIVE_LABELS_HPP
#define CONTRASTIVE_LABELS_HPP

#include <Eigen/Core>
#include <cstdint>
#include <type_traits>

namespace contrastive {

/// A view of a list of class labels, made from a std::vector, an Eigen vector (also a strided one)
/// or anything else with data() and size(), of any integer type. It keeps no copy: the list must
/// outlive the call.
class Labels {
 public:
  Labels() = default;

  template <class Container, class = std::enable_if_t<!std::is_same_v<Container, Labels>>>
  Labels(const Container& list)  // NOLINT(google-explicit-constructor): a view, like std::span
      : data_(list.data()), size_(static_cast<Eigen::Index>(list.size())) {
    using Element = std::remove_cv_t<std::remove_pointer_t<decltype(list.data())>>;
    static_assert(std::is_integral_v<Element>, "contrastive: labels are of an integer type");
    element_ = [](const void* data, Eigen::Index i) {
      return static_cast<std::int64_t>(static_cast<const Element*>(data)[i]);
    };
    if constexpr (std::is_base_of_v<Eigen::EigenBase<Container>, Container>) {
      static_assert(Container::IsVectorAtCompileTime,
                    "contrastive: labels made from an Eigen object take a vector, not a matrix");
      stride_ = list.innerStride();
    }
  }

  [[nodiscard]] Eigen::Index size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::int64_t operator[](Eigen::Index i) const {
    return element_(data_, i * stride_);
  }

 private:
  const void* data_ = nullptr;
  Eigen::Index size_ = 0;
  Eigen::Index stride_ = 1;
  std::int64_t (*element_)(const void*, Eigen::Index) = nullptr;
};

}  // namespace contrastive

#endif  // CONTRASTIVE_LABELS_HPP
