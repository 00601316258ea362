// The core of uniformity: one softmax-like normaliser over all pairs of a batch.
#ifndef CONTRASTIVE_DETAIL_UNIFORMITY_LOSS_HPP
#define CONTRASTIVE_DETAIL_UNIFORMITY_LOSS_HPP

#include <cmath>

#include "checks.hpp"
#include "option_checks.hpp"
#include "row_rule.hpp"
#include "rows.hpp"

namespace contrastive::detail {

/// With delta_i = zn_i - mean(zn), which has the same differences and keeps their digits:
///
///     e_ij  = -t |zn_i - zn_j|^2 = 2t delta_i . delta_j - t |delta_i|^2 - t |delta_j|^2
///     L     = log(Z / (n (n - 1)))             Z = sum over i, j not i of exp(e_ij)
///     dzn_i = 2t 2/Z (sum_j exp(e_ij) delta_j - delta_i sum_j exp(e_ij))      j not i
///
/// The exponentials are relative to one reference, by which Z and both sums are scaled alike: 0, as
/// no e_ij is larger, unless all pairs may be so far apart that the largest e_ij has to be found
/// first. Strips hold one half of the pairs.
///
/// Made, it has checked its arguments and computed the loss.
template <class T>
class UniformityLoss {
 public:
  using W = Wide<T>;

  UniformityLoss(const char* function, const char* argument, const View<const T>& z, double t,
                 Similarity similarity, bool gradient, Workspace& workspace)
      : scratch_(workspace), rows_(z, similarity) {
    check_not_empty(function, argument, z);
    if (z.rows < 2) refuse(function, "%s has 1 row, uniformity needs at least 2", argument);
    check_positive(function, "t", t);
    if (!(t <= static_cast<double>((std::numeric_limits<T>::max)() / 2)))
      refuse(function, "t is %.9g, 2t overflows the scalar type", t);
    check_embeddings(function, argument, z, similarity);

    rows_.measure(scratch_);
    t_ = W(t);
    centred_ = scratch_.template take<T>(z.rows * z.cols);
    offsets_ = scratch_.template take<T>(round_up(z.rows, Kernel<T>::chunk));
    std::fill(offsets_ + z.rows, offsets_ + round_up(z.rows, Kernel<T>::chunk), T(0));
    centre();
    const View<const T> centred{centred_, z.rows, z.cols, z.cols, 1};
    logits_ = EmbeddingLogits<T>::of_itself(centred, {}, Similarity::dot,
                                            2 * static_cast<long double>(t));
    logits_.pack(gradient, scratch_);
    strip_ = scratch_.template take<T>(logits_.plan().part_size());
    check_logits(function, logits_, largest_logit<T>(1), strip_);
    row_sums_ = scratch_.template take<W>(z.rows);
    parts_ = scratch_.template take<T>(logits_.plan().slots());
    // -e_ij <= t (|delta_i| + |delta_j|)^2 <= 4 t |delta|^2, which is twice the bound of logits.
    if (!(2 * logits_.bound() <= W(exponential_range<T>()))) reference_ = largest();
    sweep(gradient);
  }

  UniformityLoss(const UniformityLoss&) = delete;
  UniformityLoss& operator=(const UniformityLoss&) = delete;

  [[nodiscard]] T loss() const {
    const W n = W(rows_.count());
    return T(W(reference_) + std::log(sum_ / (n * (n - 1))));
  }

  /// Once: it reuses the memory of the centred rows.
  void write(const View<T>& dz) {
    const View<T> dunit{centred_, rows_.count(), rows_.dim(), rows_.dim(), 1};
    logits_.x().add_multiple_of_rows(row_sums_, -1);
    logits_.x().unpack(logits_.way_back() * 2 / sum_, dunit, {});
    rows_.backward(centred_, dz);
  }

 private:
  /// delta_i, and t |delta_i|^2.
  void centre() {
    const Index n = rows_.count(), d = rows_.dim(),
                blocks = (n + Rows<T>::block - 1) / Rows<T>::block;
    W* sums = scratch_.template take<W>(blocks * d);
    rows_.for_blocks([&](Index begin, Index end) {
      W* sum = sums + begin / Rows<T>::block * d;
      for (Index k = 0; k < d; ++k) sum[k] = 0;
      each_piece(begin, end, [&](Index /*i*/, Index k, Index count, const W* unit) {
        for (Index l = 0; l < count; ++l) sum[k + l] += unit[l];
      });
    });
    for (Index b = 1; b < blocks; ++b)
      for (Index k = 0; k < d; ++k) sums[k] += sums[b * d + k];
    for (Index k = 0; k < d; ++k) sums[k] /= W(n);
    rows_.for_blocks([&](Index begin, Index end) {
      W squares[std::size_t(Rows<T>::block)] = {};
      each_piece(begin, end, [&](Index i, Index k, Index count, const W* unit) {
        T* delta = centred_ + i * d + k;
        for (Index l = 0; l < count; ++l) {
          delta[l] = T(unit[l] - sums[k + l]);
          squares[i - begin] += W(delta[l]) * W(delta[l]);
        }
      });
      for (Index i = begin; i < end; ++i) offsets_[i] = T(t_ * squares[i - begin]);
    });
  }

  /// f(i, k, count, entries k .. k + count - 1 of zn_i)
  template <class F>
  void each_piece(Index begin, Index end, const F& f) const {
    constexpr Index kPiece = 64;
    W unit[std::size_t(kPiece)];
    for (Index i = begin; i < end; ++i)
      for (Index k = 0; k < rows_.dim(); k += kPiece) {
        const Index count = (std::min)(kPiece, rows_.dim() - k);
        rows_.unit(i, k, count, unit);
        f(i, k, count, unit);
      }
  }

  /// Turns 2t delta_i . delta_j into e_ij, -inf for i = j and the padding.
  void fill(const Strip<T>& strip, Index c) const {
    const StripPlan<T>& plan = logits_.plan();
    logits_.fill(strip, c);
    const T* column_offsets = offsets_ + c * plan.chunk;
    for (Index r = 0; r < strip.rows; ++r) {
      T* s = strip.at(r, c * plan.chunk);
      const T offset = offsets_[strip.first + r];
      for (Index l = 0; l < plan.chunk; l += Pack<T>::size)
        (Pack<T>::at(s + l) - (Pack<T>::at(column_offsets + l) + offset)).store(s + l);
      hide_excluded(itself_, plan, strip.first + r, c, s);
    }
  }

  /// The largest e_ij.
  [[nodiscard]] T largest() const {
    const StripPlan<T>& plan = logits_.plan();
    T all = minus_infinity<T>;
    plan.for_parts(strip_, false, [&](Index /*index*/, const Strip<T>& strip) {
      strip.for_chunks(plan.part_work(logits_.depth()), [&](Index c) {
        fill(strip, c);
        for (Index r = 0; r < strip.rows; ++r)
          parts_[strip.slot(c, r)] = largest_of_chunk(strip.at(r, c * plan.chunk));
      });
      for (Index c = strip.first_chunk(); c < strip.end_chunk(); ++c)
        for (Index r = 0; r < strip.rows; ++r) all = (std::max)(all, parts_[strip.slot(c, r)]);
    });
    return all;
  }

  /// Sums by rows, and by the symmetry of e_ij by columns; with `gradient` the products.
  void sweep(bool gradient) {
    const StripPlan<T>& plan = logits_.plan();
    const double work = plan.part_work(logits_.depth());
    for (Index i = 0; i < plan.rows; ++i) row_sums_[i] = 0;
    plan.for_parts(strip_, false, [&](Index index, const Strip<T>& strip) {
      const Index beyond = plan.first_beyond(index);
      strip.for_chunks(work, [&](Index c) {
        fill(strip, c);
        alignas(64) T columns[std::size_t(Kernel<T>::chunk)] = {};
        for (Index r = 0; r < strip.rows; ++r) {
          T* s = strip.at(r, c * plan.chunk);
          Pack<T> sum(0);
          for (Index l = 0; l < plan.chunk; l += Pack<T>::size) {
            const Pack<T> e = exp_or_zero(Pack<T>::at(s + l) - reference_);
            e.store(s + l);
            e.add_to(columns + l);
            sum += e;
          }
          parts_[strip.slot(c, r)] = sum.sum();
        }
        if (c < beyond) return;
        for (Index j = c * plan.chunk; j < plan.chunk_end(c); ++j)
          row_sums_[j] += W(columns[j - c * plan.chunk]);
        if (gradient) logits_.add_right(strip, c);
      });
      for (Index r = 0; r < strip.rows; ++r)
        for (Index c = strip.first_chunk(); c < strip.end_chunk(); ++c)
          row_sums_[strip.first + r] += W(parts_[strip.slot(c, r)]);
      if (gradient)
        for_row_blocks(strip, work,
                       [&](Index begin, Index end) { logits_.set_left(strip, begin, end); });
    });
    for (Index i = 0; i < plan.rows; ++i) sum_ += row_sums_[i];
  }

  Scratch scratch_;
  Rows<T> rows_;
  T* centred_ = nullptr;
  W t_ = 2;
  EmbeddingLogits<T> logits_{};
  T* strip_ = nullptr;
  T* offsets_ = nullptr;  // t |delta_j|^2
  Exclusions itself_{{}, {}, {}, rows_.count(), scratch_};
  T reference_ = 0;
  T* parts_ = nullptr;     // of each chunk and row of a part
  W* row_sums_ = nullptr;  // sum_j exp(e_ij - reference)
  W sum_ = 0;              // Z e^-reference
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_UNIFORMITY_LOSS_HPP
