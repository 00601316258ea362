// The rule of the supervised contrastive loss: a softmax over all other rows, with several
// positives.
//
//     L_i    = log sum_a e^(s_ia) - mean_p s_ip         a: all rows but i; p: those of i's class
//            = log(1 + N_i / P_i) + (log P_i - mean_p s_ip)
//     P_i    = sum_p e^(s_ip)                           N_i = sum over the rows of other classes
//     G_ia   = w_i A_ia  for a negative,  w_i (A_ip - 1 / m_i)  for one of the m_i positives
//     H      = G + G^T,  dZn = scale H Zn
//
// Both terms of L_i are not negative. With one positive the second is 0, and A_ip - 1 is minus the
// sum of the negatives' A, never a difference from one. A row of no positive is no anchor: w_i = 0.
#ifndef CONTRASTIVE_DETAIL_SUP_CON_RULE_HPP
#define CONTRASTIVE_DETAIL_SUP_CON_RULE_HPP

#include <algorithm>
#include <cmath>
#include <limits>

#include "../labels.hpp"
#include "logits.hpp"
#include "softmax.hpp"
#include "targets.hpp"
#include "threads.hpp"

namespace contrastive::detail {

/// What rows belong together, and how much each counts as an anchor.
template <class T>
class Classes {
 public:
  using W = Wide<T>;

  Classes() = default;

  Classes(const Labels& labels, const List<double>& weights, Scratch& scratch) {
    const Index n = labels.size(), padded = round_up(n, Kernel<T>::chunk);
    Index* order = scratch.take<Index>(n);
    for (Index i = 0; i < n; ++i) order[i] = i;
    std::sort(order, order + n, [&](Index i, Index j) { return labels[i] < labels[j]; });
    number_ = scratch.take<T>(padded);
    positives_ = scratch.take<Index>(n);
    weight_ = scratch.take<W>(n);
    Index classes = 0;
    for (Index begin = 0; begin < n; ++classes) {
      Index end = begin;
      while (end < n && labels[order[end]] == labels[order[begin]]) ++end;
      const Index others = end - begin - 1;
      for (; begin < end; ++begin) {
        number_[order[begin]] = T(classes);
        positives_[order[begin]] = others;
      }
    }
    for (Index i = n; i < padded; ++i) number_[i] = -1;
    W largest = 0, sum = 0;
    const auto given = [&](Index i) {
      if (positives_[i] == 0) return W(0);
      return weights.empty() ? W(1) : W(weights[i]);
    };
    for (Index i = 0; i < n; ++i) largest = (std::max)(largest, given(i));
    for (Index i = 0; i < n && largest > 0; ++i) sum += given(i) / largest;
    for (Index i = 0; i < n; ++i) weight_[i] = largest > 0 ? given(i) / largest / sum : W(0);
  }

  /// Share of row i in the mean: 0 for a row that is no anchor.
  [[nodiscard]] W weight(Index i) const { return weight_[i]; }
  /// How many other rows are of row i's class.
  [[nodiscard]] Index positives(Index i) const { return positives_[i]; }

  /// 1 where columns j and following are of row i's class (row i itself too), else 0.
  [[nodiscard]] CONTRASTIVE_INLINE Pack<T> same(Index i, Index j) const {
    return T(1) - smaller(absolute(Pack<T>::at(number_ + j) - number_[i]), T(1));
  }

 private:
  T* number_ = nullptr;  // of each row's class; -1 for padding
  Index* positives_ = nullptr;
  W* weight_ = nullptr;
};

/// Rows in strips, and by the symmetry of S columns too, as in SymmetricRule. One exponential
/// serves row and column where a reference serves the whole batch; else each takes its own,
/// relative to the largest positive and the largest negative of the line.
template <class T>
class SupConRule {
 public:
  using W = Wide<T>;

  SupConRule(const EmbeddingLogits<T>& logits, const Classes<T>& classes, bool gradient,
             Scratch& scratch)
      : logits_(logits),
        classes_(classes),
        reference_(common_reference<T>(logits.bound())),
        common_(reference_ != std::numeric_limits<T>::infinity()),
        keep_(gradient && logits.plan().fits(scratch.budget())),
        plan_(keep_ ? logits.plan().whole() : logits.plan()),
        work_(plan_.part_work(logits.depth())),
        data_(scratch.take<T>(keep_ ? plan_.size_of_all() : plan_.part_size())),
        sums_(scratch.take<Sums<W>>(plan_.rows)),
        parts_(scratch.take<Sums<T>>(plan_.slots())) {
    const Index padded = plan_.chunks() * chunk;
    for (Factors& side : lines_) {
      side.reference = scratch.take<T>(padded);
      side.factor = scratch.take<T>(padded);
      std::fill(side.reference, side.reference + padded, T(0));
      std::fill(side.factor, side.factor + padded, T(0));
    }
    share_ = scratch.take<T>(padded);
    std::fill(share_, share_ + padded, T(0));
  }

  /// The loss, and each row's, unweighted, in `losses`.
  W loss(W* losses) {
    for (Index i = 0; i < plan_.rows; ++i) sums_[i] = {};
    plan_.for_parts(data_, keep_, [&](Index index, const Strip<T>& strip) {
      const Index beyond = plan_.first_beyond(index);
      strip.for_chunks(work_, [&](Index c) {
        fill(strip, c);
        if (common_)
          sum_block(strip, c, c >= beyond);
        else
          sum_rows_and_columns(strip, c, c >= beyond);
      });
      parallel_for(strip.rows, work_, [&](Index r) {
        for (Index c = strip.first_chunk(); c < strip.end_chunk(); ++c)
          sums_[strip.first + r].add(parts_[strip.slot(c, r)]);
      });
    });
    W loss = 0;
    for (Index i = 0; i < plan_.rows; ++i) {
      losses[i] = finish(i);
      loss += classes_.weight(i) * losses[i];
    }
    return loss;
  }

  /// Hands H to the logits; after loss().
  void gradient() {
    plan_.for_parts(data_, keep_, [&](Index index, const Strip<T>& strip) {
      const Index beyond = plan_.first_beyond(index);
      strip.for_chunks(work_, [&](Index c) {
        if (!keep_) {
          fill(strip, c);
          if (common_) take_exponentials(strip, c);
        }
        differentiate(strip, c);
        if (c >= beyond) logits_.add_right(strip, c);
      });
      for_row_blocks(strip, work_,
                     [&](Index begin, Index end) { logits_.set_left(strip, begin, end); });
    });
  }

 private:
  static constexpr Index chunk = Kernel<T>::chunk;

  /// Of a line, or of a chunk's part of one.
  template <class V>
  struct Sums {
    ExpSum<V> negatives{};
    ExpSum<V> positives{};
    V total = 0;  // sum_p s_ip

    template <class U>
    void add(const Sums<U>& part) {
      negatives.add(V(part.negatives.reference), V(part.negatives.sum));
      positives.add(V(part.positives.reference), V(part.positives.sum));
      total += V(part.total);
    }
  };

  /// G_ia = factor e^(s_ia - reference), less the share for a positive: for each line.
  struct Factors {
    T* reference;
    T* factor;
  };

  /// S of a block; -inf for row i and itself, and for the padding.
  void fill(const Strip<T>& strip, Index c) const {
    logits_.fill(strip, c);
    const Index begin = c * chunk, end = plan_.chunk_end(c);
    for (Index r = 0; r < strip.rows; ++r) {
      const Index i = strip.first + r;
      T* s = strip.at(r, begin);
      if (begin <= i && i < end) s[i - begin] = minus_infinity<T>;
      for (Index l = end - begin; l < chunk; ++l) s[l] = minus_infinity<T>;
    }
  }

  void take_exponentials(const Strip<T>& strip, Index c) const {
    for (Index r = 0; r < strip.rows; ++r) chunk_exponentials(strip.at(r, c * chunk), reference_);
  }

  /// E in place of S, and its sums by rows, and with `by_columns` by columns.
  void sum_block(const Strip<T>& strip, Index c, bool by_columns) {
    alignas(64) T negatives[std::size_t(chunk)] = {}, positives[std::size_t(chunk)] = {};
    WideSums<T> totals;
    for (Index r = 0; r < strip.rows; ++r) {
      T* s = strip.at(r, c * chunk);
      Pack<T> sum(0), positive_sum(0), total_sum(0);
      for (Index l = 0; l < chunk; l += Pack<T>::size) {
        const Pack<T> row = Pack<T>::at(s + l);
        const Pack<T> same = classes_.same(strip.first + r, c * chunk + l);
        const Pack<T> total = candidates_only(row) * same;
        const Pack<T> e = exp_or_zero(row - reference_);
        const Pack<T> positive = e * same, negative = e - positive;
        e.store(s + l);
        negative.add_to(negatives + l);
        positive.add_to(positives + l);
        totals.add(l, total);
        sum += negative;
        positive_sum += positive;
        total_sum += total;
      }
      totals.end_row();
      parts_[strip.slot(c, r)] = {
          {reference_, sum.sum()}, {reference_, positive_sum.sum()}, total_sum.sum()};
    }
    for (Index l = 0; l < plan_.chunk_end(c) - c * chunk && by_columns; ++l)
      sums_[c * chunk + l].add(
          Sums<W>{{W(reference_), W(negatives[l])}, {W(reference_), W(positives[l])}, totals[l]});
  }

  /// One of two, for the negatives and for the positives.
  static CONTRASTIVE_INLINE Pack<T> choose(const Pack<T>& same, const Pack<T>& negative,
                                           const Pack<T>& positive) {
    return where_greater(same, T(0), positive, negative);
  }

  /// The same, relative to each line's largest; S stays.
  void sum_rows_and_columns(const Strip<T>& strip, Index c, bool by_columns) {
    constexpr T kLowest = std::numeric_limits<T>::lowest();
    // Of the columns: their negatives, and their positives.
    alignas(64) T largest[2][std::size_t(chunk)], sums[2][std::size_t(chunk)] = {};
    std::fill_n(largest[0], 2 * chunk, kLowest);
    const auto negatives = [&](const Pack<T>& row, const Pack<T>& same) {
      return choose(same, row, kLowest);
    };
    const auto positives = [&](const Pack<T>& row, const Pack<T>& same) {
      return choose(same, kLowest, row);
    };
    for (Index r = 0; r < strip.rows; ++r) {
      const T* s = strip.at(r, c * chunk);
      for (Index l = 0; l < chunk; l += Pack<T>::size) {
        const Pack<T> row = Pack<T>::at(s + l);
        const Pack<T> same = classes_.same(strip.first + r, c * chunk + l);
        larger(Pack<T>::at(largest[0] + l), negatives(row, same)).store(largest[0] + l);
        larger(Pack<T>::at(largest[1] + l), positives(row, same)).store(largest[1] + l);
      }
    }
    WideSums<T> totals;
    for (Index r = 0; r < strip.rows; ++r) {
      const Index i = strip.first + r;
      const T* s = strip.at(r, c * chunk);
      Pack<T> largest_negative(kLowest), largest_positive(kLowest);
      for (Index l = 0; l < chunk; l += Pack<T>::size) {
        const Pack<T> row = Pack<T>::at(s + l), same = classes_.same(i, c * chunk + l);
        largest_negative = larger(largest_negative, negatives(row, same));
        largest_positive = larger(largest_positive, positives(row, same));
      }
      const T by_row[2] = {largest_negative.largest(), largest_positive.largest()};
      Pack<T> negative(0), positive(0), total(0);
      for (Index l = 0; l < chunk; l += Pack<T>::size) {
        const Pack<T> row = Pack<T>::at(s + l), same = classes_.same(i, c * chunk + l);
        const Pack<T> e = exp_or_zero(row - choose(same, by_row[0], by_row[1]));
        const Pack<T> down = exp_or_zero(
            row - choose(same, Pack<T>::at(largest[0] + l), Pack<T>::at(largest[1] + l)));
        const Pack<T> total_here = candidates_only(row) * same;
        choose(same, down, T(0)).add_to(sums[0] + l);
        choose(same, T(0), down).add_to(sums[1] + l);
        totals.add(l, total_here);
        negative += choose(same, e, T(0));
        positive += choose(same, T(0), e);
        total += total_here;
      }
      totals.end_row();
      parts_[strip.slot(c, r)] = {
          {by_row[0], negative.sum()}, {by_row[1], positive.sum()}, total.sum()};
    }
    for (Index l = 0; l < plan_.chunk_end(c) - c * chunk && by_columns; ++l)
      sums_[c * chunk + l].add(
          Sums<W>{{W(largest[0][l]), W(sums[0][l])}, {W(largest[1][l]), W(sums[1][l])}, totals[l]});
  }

  /// Line i's loss, and what its gradient is made of, when its sums are complete.
  W finish(Index i) {
    const Sums<W>& sums = sums_[i];
    const Index m = classes_.positives(i);
    const T beyond = (std::numeric_limits<T>::max)();  // e^(s - beyond) is 0
    const auto set = [&](int side, const ExpSum<W>& sum, W factor) {
      lines_[side].reference[i] = sum.sum == 0 ? beyond : T(sum.reference);
      lines_[side].factor[i] = T(classes_.weight(i) * factor);
    };
    if (m == 0) {
      set(0, {}, 0);
      set(1, {}, 0);
      return 0;
    }
    const W mean = sums.total / W(m);
    const W log_positives = m == 1 ? mean : sums.positives.reference + std::log(sums.positives.sum);
    const LineSoftmax<W> line = coupled_softmax(log_positives, sums.negatives);
    set(0, sums.negatives, line.factor);
    set(1, sums.positives, m == 1 ? W(0) : (1 - line.miss) / sums.positives.sum);
    share_[i] = T(classes_.weight(i) * (m == 1 ? line.miss : 1 / W(m)));
    return line.loss + (log_positives - mean);
  }

  /// H of a block in place of E, or of S where there is no common reference.
  void differentiate(const Strip<T>& strip, Index c) const {
    const Index begin = c * chunk, end = plan_.chunk_end(c);
    const auto column = [&](const T* list, Index l) { return Pack<T>::at(list + begin + l); };
    const Factors &negatives = lines_[0], &positives = lines_[1];
    for (Index r = 0; r < strip.rows; ++r) {
      const Index i = strip.first + r;
      T* s = strip.at(r, begin);
      for (Index l = 0; l < chunk; l += Pack<T>::size) {
        const Pack<T> row = Pack<T>::at(s + l), same = classes_.same(i, begin + l);
        const Pack<T> by_row = choose(same, negatives.factor[i], positives.factor[i]);
        const Pack<T> by_column =
            choose(same, column(negatives.factor, l), column(positives.factor, l));
        Pack<T> g(0);
        if (common_) {
          g = row * (by_row + by_column);
        } else {
          const Pack<T> reference =
              choose(same, column(negatives.reference, l), column(positives.reference, l));
          g = by_column * exp_or_zero(row - reference)
              + by_row
                    * exp_or_zero(row
                                  - choose(same, negatives.reference[i], positives.reference[i]));
        }
        (g - same * (column(share_, l) + share_[i])).store(s + l);
      }
      if (begin <= i && i < end) s[i - begin] = 0;
    }
  }

  const EmbeddingLogits<T>& logits_;
  const Classes<T>& classes_;
  T reference_;
  bool common_;
  bool keep_;
  StripPlan<T> plan_;
  double work_;
  T* data_;
  Sums<W>* sums_;     // of each line
  Sums<T>* parts_;    // of each chunk and row of a part
  Factors lines_[2];  // of negatives and of positives
  T* share_;          // what is taken off a positive's G
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_SUP_CON_RULE_HPP
