// How the matrix of logits is walked: strip by strip of rows, each strip in chunks of columns.
#ifndef CONTRASTIVE_DETAIL_STRIPS_HPP
#define CONTRASTIVE_DETAIL_STRIPS_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>

#include "kernel.hpp"
#include "threads.hpp"

namespace contrastive::detail {

/// Rows first .. first + rows - 1 of the logits. Chunks of columns follow one another; within a
/// chunk rows are contiguous.
template <class T>
struct Strip {
  static constexpr Index chunk = Kernel<T>::chunk;

  T* data = nullptr;
  Index first = 0;
  Index rows = 0;
  Index capacity = 0;  ///< rows that there is room for, a multiple of the kernel's height
  Index origin = 0;    ///< first column that is held, the first of a chunk
  Index beyond = 0;    ///< one past the last

  /// From one chunk to the next.
  [[nodiscard]] Index chunk_size() const { return chunk * capacity; }
  [[nodiscard]] T* at(Index row, Index column) const {
    return data + (column - origin) / chunk * chunk_size() + row * chunk + column % chunk;
  }
};

/// The sum of a chunk's part of a row, and the largest of it.
template <class T>
T sum_of_chunk(const T* x) {
  Pack<T> sum(0);
  for (Index l = 0; l < Kernel<T>::chunk; l += Pack<T>::size) sum += Pack<T>::at(x + l);
  return sum.sum();
}

template <class T>
T largest_of_chunk(const T* x) {
  Pack<T> largest = Pack<T>::at(x);
  for (Index l = Pack<T>::size; l < Kernel<T>::chunk; l += Pack<T>::size)
    largest = larger(largest, Pack<T>::at(x + l));
  return largest.largest();
}

/// Which strips and chunks a matrix of rows x cols logits is cut into.
///
/// Of a symmetric matrix each strip has only the chunks from its own rows on: the first of them, as
/// wide as the strip, hold both an entry and its mirror, the ones beyond stand for their mirrors
/// too. There a strip is a number of whole chunks high, or a fraction of one.
template <class T>
struct StripPlan {
  static constexpr Index chunk = Kernel<T>::chunk;
  static constexpr Index strip_limit = Index{32} << 20;  // bytes
  static constexpr Index group_limit = Index{8} << 20;   // bytes
  static constexpr Index high = 240;                     // rows, enough to reuse operands
  static constexpr Index low = 32;                       // rows, too few by far

  Index rows = 0;
  Index cols = 0;
  Index strip_rows = 0;  ///< what is high enough to reuse operands, but at most 32 MiB if it can be
  bool symmetric = false;
  Index group = 0;  ///< chunks of a strip that are held at a time, 0 for all

  StripPlan() = default;
  StripPlan(Index row_count, Index col_count) : rows(row_count), cols(col_count) {
    constexpr Index height = Kernel<T>::height;
    const Index most = (std::min)((std::max)(fitting_rows() / height * height, height), high);
    const Index count = (rows + most - 1) / most;
    strip_rows = round_up((rows + count - 1) / count, height);
  }

  /// For a rule that can compute a strip twice: low strips move gradients and operands through
  /// memory more often than they use them.
  [[nodiscard]] StripPlan without_low_strips() const {
    const Index fitting = fitting_rows();
    return fitting < low && fitting < rows ? in_groups() : *this;
  }
  /// The same in strips that are high, of which a few chunks are held at a time: no more than what
  /// stays in a cache, and than a strip of this plan.
  [[nodiscard]] StripPlan in_groups() const {
    StripPlan plan = *this;
    plan.strip_rows = (std::min)(high / Kernel<T>::height, (rows - 1) / Kernel<T>::height + 1)
                      * Kernel<T>::height;
    const Index size = (std::min)(strip_size(), group_limit / Index(sizeof(T)));
    plan.group = (std::max)(size / (plan.strip_rows * chunk), Index{1});
    return plan;
  }
  /// Groups of chunks, each of at most group_chunks() chunks.
  [[nodiscard]] Index groups() const { return (chunks() - 1) / group_chunks() + 1; }
  [[nodiscard]] Index group_chunks() const { return group > 0 ? group : chunks(); }

  static StripPlan of_symmetric(Index n) {
    StripPlan plan;
    plan.rows = plan.cols = n;
    plan.symmetric = true;
    const Index fitting = plan.fitting_rows();
    plan.strip_rows = (std::min)((std::max)(fitting, Index{1}), high) / chunk * chunk;
    if (plan.strip_rows == 0)
      for (plan.strip_rows = Kernel<T>::height;
           plan.strip_rows * 2 <= fitting && chunk % (plan.strip_rows * 2) == 0;)
        plan.strip_rows *= 2;
    plan.strip_rows = (std::min)(plan.strip_rows, round_up(n, chunk));
    return plan;
  }

  [[nodiscard]] Index strips() const { return (rows + strip_rows - 1) / strip_rows; }
  [[nodiscard]] Index chunks() const { return (cols + chunk - 1) / chunk; }
  /// The first chunk of a strip, and the first that lies beyond the strip's own rows.
  [[nodiscard]] Index first_chunk(Index strip) const {
    return symmetric ? strip * strip_rows / chunk : 0;
  }
  [[nodiscard]] Index first_beyond(Index strip) const {
    return symmetric ? (std::min)(((strip + 1) * strip_rows + chunk - 1) / chunk, chunks()) : 0;
  }
  /// Entries of a strip in memory; no other is larger than the first.
  [[nodiscard]] Index strip_size(Index strip = 0) const {
    return strip_rows * chunk * (group > 0 ? group : chunks() - first_chunk(strip));
  }

  /// Entries of all strips together.
  [[nodiscard]] Index size_of_all() const {
    Index size = 0;
    for (Index index = 0; index < strips(); ++index) size += strip_size(index);
    return size;
  }
  /// Whether the logits of all strips fit so many bytes, not counting what pads strips and chunks.
  [[nodiscard]] bool fits(std::size_t budget) const {
    const double held = symmetric ? double(cols + strip_rows) / 2 : double(cols);
    return double(rows) * held * double(sizeof(T)) <= double(budget);
  }

  /// A strip, or a group of its chunks.
  [[nodiscard]] Strip<T> strip(Index index, T* data, Index group_index = 0) const {
    const Index first = index * strip_rows;
    const Index first_held = group > 0 ? group_index * group : first_chunk(index);
    const Index beyond = (std::min)((first_held + group_chunks()) * chunk, cols);
    return {data,  first, (std::min)(strip_rows, rows - first), strip_rows, first_held * chunk,
            beyond};
  }
  /// f(index, strip) for all strips, one after another in memory if they are `kept`, else each in
  /// the place of the one before.
  template <class F>
  void for_strips(T* data, bool kept, const F& f) const {
    for (Index index = 0; index < strips(); ++index) {
      f(index, strip(index, data));
      if (kept) data += strip_size(index);
    }
  }
  /// One past the last column of a chunk.
  [[nodiscard]] Index chunk_end(Index c) const { return (std::min)((c + 1) * chunk, cols); }

  /// Multiplications of a product over one strip, to decide about threads.
  [[nodiscard]] double strip_work(Index depth) const {
    return double(strip_rows) * double(cols) * double(depth);
  }

 private:
  [[nodiscard]] Index fitting_rows() const {
    return strip_limit / (round_up(cols, chunk) * Index(sizeof(T)));
  }
};

/// f(begin, end) for the rows of a strip in as many blocks as there are threads, each a multiple of
/// the kernel's height.
template <class T, class F>
void for_row_blocks(const Strip<T>& strip, double work, const F& f) {
  const Index threads = thread_count(work);
  const Index block = round_up((strip.rows + threads - 1) / threads, Kernel<T>::height);
  parallel_for((strip.rows + block - 1) / block, work,
               [&](Index b) { f(b * block, (std::min)((b + 1) * block, strip.rows)); });
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_STRIPS_HPP
