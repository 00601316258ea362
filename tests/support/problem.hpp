// One question to a loss and its answer, independent of the scalar type and of the library.
#ifndef CONTRASTIVE_TESTS_SUPPORT_PROBLEM_HPP
#define CONTRASTIVE_TESTS_SUPPORT_PROBLEM_HPP

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace contrastive_tests {

using Real = long double;
using Index = Eigen::Index;
using Matrix = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic>;
using Ids = std::vector<std::int64_t>;

enum class Loss {
  info_nce,
  hard_negative,
  clip,
  siglip,
  nt_xent,
  sup_con,
  info_nce_logits,
  clip_logits,
  siglip_logits,
  mutual_information,
  triplet,
  alignment,
  uniformity
};

constexpr Loss all_losses[] = {Loss::info_nce,
                               Loss::hard_negative,
                               Loss::clip,
                               Loss::siglip,
                               Loss::nt_xent,
                               Loss::sup_con,
                               Loss::info_nce_logits,
                               Loss::clip_logits,
                               Loss::siglip_logits,
                               Loss::mutual_information,
                               Loss::triplet,
                               Loss::alignment,
                               Loss::uniformity};

/// What a list of labels is made of, or how it lies in memory.
enum class LabelType { int64, int32, int16, uint8, uint32, eigen, strided };

constexpr LabelType all_label_types[] = {LabelType::int64,  LabelType::int32,  LabelType::int16,
                                         LabelType::uint8,  LabelType::uint32, LabelType::eigen,
                                         LabelType::strided};

struct Problem {
  Loss loss = Loss::info_nce;
  std::vector<Matrix> inputs = {};  // in the order of the function's arguments
  bool learned = false;             // log_scale and max_scale, else temperature
  double temperature = 1;
  double log_scale = 0;
  double max_scale = 100;
  double bias = 0;
  double margin = 1;
  double alpha = 2;
  double t = 2;
  bool cosine = true;
  bool own_scope = false;
  Ids query_ids = {};
  Ids pos_ids = {};
  Ids neg_ids = {};
  Ids offsets = {};
  Ids labels = {};
  LabelType label_type = LabelType::int64;
  std::vector<double> weights = {};
  double label_smoothing = 0;
  double positive_margin = 0;
  bool decoupled = false;
  std::vector<double> log_prior = {};
  std::optional<double> false_negative_margin = {};

  [[nodiscard]] Index batch() const { return inputs.front().rows(); }
};

/// Gradients in the order of the inputs.
struct Answer {
  Real value = 0;
  std::vector<Matrix> gradients = {};
  std::optional<Real> d_log_scale = {};
  std::optional<Real> d_bias = {};
  /// Each row's loss, unweighted, in one column. From the oracle of a loss with rows.
  Matrix rows = {};
  /// The sizes of the terms of the value, d_log_scale and d_bias where they may cancel. From the
  /// oracle; 0 elsewhere.
  Real value_size = 0;
  Real d_log_scale_size = 0;
  Real d_bias_size = 0;
};

/// The function's name without _loss, its value and its arguments.
struct Description {
  std::string function = {};
  std::vector<std::string> inputs = {};
};

inline Description describe(Loss loss) {
  switch (loss) {
    case Loss::info_nce:
      return {"info_nce_loss", {"Q", "P"}};
    case Loss::hard_negative:
      return {"hard_negative_loss", {"Q", "P", "N"}};
    case Loss::clip:
      return {"clip_loss", {"Q", "P"}};
    case Loss::siglip:
      return {"siglip_loss", {"Q", "P"}};
    case Loss::nt_xent:
      return {"nt_xent_loss", {"Za", "Zb"}};
    case Loss::sup_con:
      return {"sup_con_loss", {"Z"}};
    case Loss::info_nce_logits:
      return {"info_nce_logits_loss", {"S"}};
    case Loss::clip_logits:
      return {"clip_logits_loss", {"S"}};
    case Loss::siglip_logits:
      return {"siglip_logits_loss", {"S"}};
    case Loss::mutual_information:
      return {"mutual_information_bound", {"S"}};
    case Loss::triplet:
      return {"triplet_loss", {"A", "P", "N"}};
    case Loss::alignment:
      return {"alignment_loss", {"Za", "Zb"}};
    case Loss::uniformity:
      return {"uniformity_loss", {"Z"}};
  }
  throw std::logic_error("no such loss");
}

/// The losses over embeddings with a scale, where cosine or dot is a choice.
inline bool has_scale(Loss loss) {
  return loss == Loss::info_nce || loss == Loss::hard_negative || loss == Loss::clip
         || loss == Loss::siglip || loss == Loss::nt_xent || loss == Loss::sup_con;
}

/// The losses that are a softmax over candidates and take SoftmaxOptions.
inline bool is_softmax(Loss loss) {
  return loss == Loss::info_nce || loss == Loss::hard_negative || loss == Loss::clip
         || loss == Loss::nt_xent || loss == Loss::info_nce_logits || loss == Loss::clip_logits;
}

/// Those with rows and columns.
inline bool is_clip(Loss loss) {
  return loss == Loss::clip || loss == Loss::clip_logits;
}

/// Those whose rows are each other's candidates.
inline bool is_symmetric(Loss loss) {
  return loss == Loss::nt_xent || loss == Loss::sup_con;
}

inline bool has_prior(Loss loss) {
  return is_softmax(loss) && !is_symmetric(loss);
}

inline bool has_bias(Loss loss) {
  return loss == Loss::siglip || loss == Loss::siglip_logits;
}

inline bool takes_logits(Loss loss) {
  return loss == Loss::info_nce_logits || loss == Loss::clip_logits || loss == Loss::siglip_logits
         || loss == Loss::mutual_information;
}

inline bool has_weights(Loss loss) {
  return has_scale(loss) || (takes_logits(loss) && loss != Loss::mutual_information);
}

/// The losses of pairs of items.
inline bool has_ids(Loss loss) {
  return has_weights(loss) && loss != Loss::sup_con;
}

/// The losses with a function that gives each row's.
inline bool has_rows(Loss loss) {
  return has_scale(loss);
}

inline bool has_similarity(Loss loss) {
  return has_scale(loss) || loss == Loss::alignment || loss == Loss::uniformity;
}

inline constexpr double unlimited = std::numeric_limits<double>::infinity();

}  // namespace contrastive_tests

#endif
