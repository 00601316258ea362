// The mean over the rows of a batch, weighted or not.
#ifndef CONTRASTIVE_DETAIL_WEIGHTS_HPP
#define CONTRASTIVE_DETAIL_WEIGHTS_HPP

#include <algorithm>

#include "../options.hpp"

namespace contrastive::detail {

using Eigen::Index;

/// Share of row i in a mean: 1 / B, or w_i / sum(w) where there are weights.
template <class W>
class MeanWeights {
 public:
  MeanWeights() = default;
  MeanWeights(const List<double>& weights, Index rows) : weights_(weights) {
    if (weights.empty()) {
      share_ = W(1) / W(rows);
      return;
    }
    // Relative to the largest weight, so that no sum overflows.
    for (Index i = 0; i < rows; ++i) largest_ = (std::max)(largest_, W(weights[i]));
    W sum = 0;
    for (Index i = 0; i < rows; ++i) sum += W(weights[i]) / largest_;
    share_ = 1 / sum;
  }

  [[nodiscard]] W operator[](Index i) const {
    return weights_.empty() ? share_ : W(weights_[i]) / largest_ * share_;
  }

 private:
  List<double> weights_{};
  W largest_ = 0;
  W share_ = 0;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_WEIGHTS_HPP
