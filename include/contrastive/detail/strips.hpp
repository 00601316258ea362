// How the matrix of logits is walked: strip by strip of rows, each strip in chunks of columns.
#ifndef CONTRASTIVE_DETAIL_STRIPS_HPP
#define CONTRASTIVE_DETAIL_STRIPS_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>

#include "kernel.hpp"
#include "threads.hpp"

// How much of a strip is held at a time. A test makes it small.
#ifndef CONTRASTIVE_PART_BYTES
#define CONTRASTIVE_PART_BYTES (4 << 20)
#endif

namespace contrastive::detail {

/// Rows first .. first + rows - 1 of the logits, all of their columns or some. Chunks of columns
/// follow one another; within a chunk rows are contiguous.
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
  [[nodiscard]] Index first_chunk() const { return origin / chunk; }
  [[nodiscard]] Index end_chunk() const { return (beyond + chunk - 1) / chunk; }
  /// Where a chunk's part of a row is in a list of such parts.
  [[nodiscard]] Index slot(Index c, Index row) const {
    return (c - first_chunk()) * capacity + row;
  }

  /// f(c) for the chunks that are held, which are independent; see parallel_for().
  template <class F>
  void for_chunks(double work, const F& f) const {
    parallel_for(end_chunk() - first_chunk(), work, [&](Index c) { f(first_chunk() + c); });
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
/// A strip is high enough to reuse operands. Where it takes more than 4 MiB, which stay in a cache,
/// it is held in parts: some of its chunks at a time, each part in the place of the one before.
/// Where a part ends does not change a bit of a result.
///
/// Of a symmetric matrix each strip has only the chunks from its own rows on: the first of them, as
/// wide as the strip, hold both an entry and its mirror, the ones beyond stand for their mirrors
/// too. There a strip is a number of whole chunks high.
template <class T>
struct StripPlan {
  static constexpr Index chunk = Kernel<T>::chunk;
  static constexpr Index part_limit = CONTRASTIVE_PART_BYTES / Index(sizeof(T));  // entries
  static constexpr Index high = 240;  // rows, enough to reuse operands
  static constexpr Index low = 64;    // rows, too few

  /// Columns of G that are multiplied at a time, whole chunks.
  static constexpr Index block_cols = round_up(Kernel<T>::depth, chunk);

  Index rows = 0;
  Index cols = 0;
  Index strip_rows = 0;
  bool symmetric = false;
  Index part_chunks = 1;  ///< chunks of a strip that are held at a time

  StripPlan() = default;
  StripPlan(Index row_count, Index col_count) : rows(row_count), cols(col_count) {
    set_strip_rows(high);
    set_part_chunks();
  }

  static StripPlan of_symmetric(Index n) {
    StripPlan plan;
    plan.rows = plan.cols = n;
    plan.symmetric = true;
    plan.strip_rows = (std::min)(high / chunk * chunk, round_up(n, chunk));
    plan.set_part_chunks();
    return plan;
  }

  /// The same strips, each held whole.
  [[nodiscard]] StripPlan whole() const {
    StripPlan plan = *this;
    plan.part_chunks = chunks();
    return plan;
  }
  /// For a rule that computes a strip of several parts twice: whole strips, as high as twelve times
  /// the memory of a part allows. Where it holds few rows, computing twice costs less than strips
  /// so low, which move gradients and operands through memory more often than they use them.
  [[nodiscard]] StripPlan for_two_uses() const {
    const Index fitting = 12 * part_limit / round_up(cols, chunk);
    if (parts(0) == 1 || fitting < (std::min)(low, strip_rows)) return *this;
    StripPlan plan = whole();
    plan.set_strip_rows((std::min)(fitting, high));
    return plan;
  }

  [[nodiscard]] Index strips() const { return (rows + strip_rows - 1) / strip_rows; }
  [[nodiscard]] Index chunks() const { return (cols + chunk - 1) / chunk; }
  /// The first chunk of a strip, and the first that lies beyond the strip's own rows.
  [[nodiscard]] Index first_chunk(Index strip) const {
    return symmetric ? strip * strip_rows / chunk : 0;
  }
  [[nodiscard]] Index first_beyond(Index strip) const {
    return symmetric ? (std::min)((strip + 1) * strip_rows / chunk, chunks()) : 0;
  }
  [[nodiscard]] Index parts(Index strip) const {
    return (chunks() - first_chunk(strip) - 1) / part_chunks + 1;
  }

  /// Entries of a part in memory; no other is larger than the first strip's first.
  [[nodiscard]] Index part_size(Index strip = 0) const { return chunk * slots(strip); }
  /// Rows of chunks in a part.
  [[nodiscard]] Index slots(Index strip = 0) const {
    return strip_rows * (std::min)(part_chunks, chunks() - first_chunk(strip));
  }
  /// Entries of all strips together, if they are whole.
  [[nodiscard]] Index size_of_all() const {
    Index size = 0;
    for (Index index = 0; index < strips(); ++index) size += part_size(index);
    return size;
  }
  /// Whether the logits of all strips fit so many bytes, not counting what pads strips and chunks.
  [[nodiscard]] bool fits(std::size_t budget) const {
    const double held = symmetric ? double(cols + strip_rows) / 2 : double(cols);
    return double(rows) * held * double(sizeof(T)) <= double(budget);
  }

  [[nodiscard]] Strip<T> part(Index index, Index part, T* data) const {
    const Index first = index * strip_rows, first_held = first_chunk(index) + part * part_chunks;
    return {data,
            first,
            (std::min)(strip_rows, rows - first),
            strip_rows,
            first_held * chunk,
            (std::min)((first_held + part_chunks) * chunk, cols)};
  }
  /// f(part) for the parts of strip `index`, each in the place of the one before.
  template <class F>
  void for_parts_of(Index index, T* data, const F& f) const {
    for (Index k = 0; k < parts(index); ++k) f(part(index, k, data));
  }
  /// f(index, part) for all parts of all strips, and those that are `kept`, which are whole strips,
  /// one after another in memory.
  template <class F>
  void for_parts(T* data, bool kept, const F& f) const {
    for (Index index = 0; index < strips(); ++index) {
      for_parts_of(index, data, [&](const Strip<T>& strip) { f(index, strip); });
      if (kept) data += part_size(index);
    }
  }
  /// One past the last column of a chunk.
  [[nodiscard]] Index chunk_end(Index c) const { return (std::min)((c + 1) * chunk, cols); }

  /// Multiplications of a product over one part, to decide about threads.
  [[nodiscard]] double part_work(Index depth) const { return double(part_size()) * double(depth); }

 private:
  /// As many strips as there must be for none to be higher than `most`, and all alike.
  void set_strip_rows(Index most) {
    constexpr Index height = Kernel<T>::height;
    most = (std::max)(most / height * height, height);
    const Index count = (rows + most - 1) / most;
    strip_rows = round_up((rows + count - 1) / count, height);
  }
  /// Whole blocks of columns, so that each entry of a gradient has the same sums for any parts.
  void set_part_chunks() {
    constexpr Index block = block_cols / chunk;
    part_chunks = (std::max)(part_limit / (strip_rows * block_cols), Index{1}) * block;
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
