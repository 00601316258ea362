// All scores of some queries against a corpus, made piece by piece and never held whole.
#ifndef CONTRASTIVE_DETAIL_SCORE_WALK_HPP
#define CONTRASTIVE_DETAIL_SCORE_WALK_HPP

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

#include "checks.hpp"
#include "logits.hpp"
#include "threads.hpp"

namespace contrastive::detail {

/// How the scores are cut, a function of the shape alone:
///
///     section   rows of the corpus that are packed at a time, so that a large corpus is not copied
///     block     queries whose scores are made at a time
///     part      a share of every section's chunks, where there are too few blocks for many threads
///
/// A block and a part make a piece, which one thread walks from the first section to the last.
template <class T>
struct ScorePlan {
  static constexpr Index chunk = Kernel<T>::chunk;
  static constexpr Index most_lanes = 32;  ///< pieces that may run at once

  Index rows = 0;
  Index cols = 0;
  Index section_cols = 0;
  Index block_rows = 0;
  Index parts = 1;

  ScorePlan() = default;
  /// Each part has at least `least_part` columns of all.
  ScorePlan(Index row_count, Index col_count, Index depth, Index least_part)
      : rows(row_count), cols(col_count) {
    constexpr Index height = Kernel<T>::height;
    // A section that stays in the cache is best, but the queries are packed anew for each.
    const Index cached = (Index{4} << 20) / (depth * Index(sizeof(T)));
    const Index most = 16 * cached;
    section_cols = (std::max)({cached, (std::min)(8 * rows, most), Index{1024}});
    section_cols = (std::min)(cols, round_up(section_cols, chunk));
    // Two blocks a lane, but high enough to use a panel several times, and low enough for the
    // cache.
    const Index even = round_up((rows + 2 * most_lanes - 1) / (2 * most_lanes), height);
    block_rows = (std::min)(
        {(std::max)(even, round_up(60, height)), round_up(rows, height), round_up(240, height)});
    // Enough pieces for several threads, but no more: each part looks for its own best.
    parts = (std::min)({16 / blocks(), (section_cols + chunk - 1) / chunk, cols / least_part});
    parts = (std::max)(parts, Index{1});
  }

  [[nodiscard]] Index sections() const { return (cols + section_cols - 1) / section_cols; }
  [[nodiscard]] Index blocks() const { return (rows + block_rows - 1) / block_rows; }
  [[nodiscard]] Index pieces() const { return blocks() * parts; }
  [[nodiscard]] Index lanes() const { return (std::min)(most_lanes, pieces()); }
};

/// A chunk of scores: of `rows` queries from `first_row` on and `cols` rows of the corpus from
/// `first_col` on. What lies beyond cols in a row is undefined.
template <class T>
struct ScoreChunk {
  T* data = nullptr;
  Index first_row = 0;
  Index rows = 0;
  Index first_col = 0;
  Index cols = 0;

  [[nodiscard]] T* row(Index r) const { return data + r * Kernel<T>::chunk; }
};

/// Makes the scores s_ij = qn_i . cn_j (cosine) or q_i . c_j. A score is a function of the two rows
/// alone, wherever they lie: equal rows of the corpus have equal scores.
template <class T>
class ScoreWalk {
 public:
  using W = Wide<T>;
  static constexpr Index chunk = Kernel<T>::chunk;

  /// Uses all of the workspace that `scratch` has not given away yet.
  ScoreWalk(const char* function, const ScorePlan<T>& plan, const View<const T>& queries,
            const View<const T>& corpus, Similarity similarity, const Scratch& scratch)
      : function_(function),
        plan_(plan),
        queries_(queries),
        corpus_(corpus),
        similarity_(similarity),
        scratch_(scratch),
        tiles_(scratch_.template take<T>(plan.lanes() * plan.block_rows * chunk)),
        wanted_(scratch_.template take<bool>(plan.lanes() * flags())),
        overflow_(scratch_.template take<Index>(plan.rows * plan.parts)) {
    std::fill_n(wanted_, plan.lanes() * flags(), false);
    std::fill_n(overflow_, plan.rows * plan.parts, plan.cols);
    if (similarity == Similarity::dot && plan.sections() > 1) longest_ = longest_row();
  }

  /// Calls visit(scores, part) for every chunk of scores. A row and a part see their columns in
  /// ascending order, on one thread at a time. Throws once all is visited if a score overflowed.
  template <class Visit>
  void all(const Visit& visit) {
    for_pieces([&](const Piece& piece) {
      const Strip<T> strip = one_tile(piece.tile, piece.first_row, piece.end_row);
      for (Index c = piece.begin; c < piece.end; ++c) {
        logits_.fill(strip, c);
        const Index begin = c * chunk, end = (std::min)(begin + chunk, cols_);
        const ScoreChunk<T> scores{strip.at(0, begin), strip.first, strip.rows, first_ + begin,
                                   end - begin};
        if (may_overflow_) find_overflow(scores, piece.part);
        visit(scores, piece.part);
      }
    });
    if (may_overflow_) refuse_overflows();
  }

  /// Calls visit(i, j, score, part) for the relevant pairs alone, at the cost of the blocks of the
  /// kernel's height and a chunk that they lie in.
  template <class Relevance, class Visit>
  void relevant(const Relevance& relevance, const Visit& visit) {
    constexpr Index height = Kernel<T>::height;
    for_pieces([&](const Piece& piece) {
      const Index first_col = first_ + piece.begin * chunk;
      const Index end_col = first_ + (std::min)(piece.end * chunk, cols_);
      const auto wanted = [&](Index i, Index c) -> bool& {
        return piece.wanted[(i - piece.first_row) / height * chunks(plan_.section_cols) + c];
      };
      for (Index i = piece.first_row; i < piece.end_row; ++i)
        relevance.for_each(i, first_col, end_col,
                           [&](Index j) { wanted(i, (j - first_) / chunk) = true; });
      for (Index c = piece.begin; c < piece.end; ++c)
        for (Index group = piece.first_row; group < piece.end_row; group += height) {
          if (!wanted(group, c)) continue;
          wanted(group, c) = false;
          const Strip<T> strip =
              one_tile(piece.tile, group, (std::min)(group + height, piece.end_row));
          logits_.fill(strip, c);
          const Index begin = first_ + c * chunk, end = (std::min)(begin + chunk, end_col);
          for (Index r = 0; r < strip.rows; ++r)
            relevance.for_each(group + r, begin, end, [&](Index j) {
              visit(group + r, j, *strip.at(r, j - first_), piece.part);
            });
        }
    });
  }

 private:
  /// Rows and chunks of a section, and memory that nobody else uses meanwhile.
  struct Piece {
    Index part;
    Index first_row;
    Index end_row;
    Index begin;
    Index end;
    T* tile;
    bool* wanted;
  };

  static constexpr Index chunks(Index columns) { return (columns + chunk - 1) / chunk; }

  /// Packs the queries and a section of the corpus, unless that is what lies there.
  void open(Index section) {
    if (section == opened_) return;
    opened_ = section;
    first_ = section * plan_.section_cols;
    cols_ = (std::min)(plan_.section_cols, plan_.cols - first_);
    const View<const T> rows{&corpus_(first_, 0), cols_, corpus_.cols, corpus_.row_stride,
                             corpus_.col_stride};
    Scratch scratch = scratch_;  // each section takes the place of the one before
    logits_ = EmbeddingLogits<T>(queries_, rows, longest_, similarity_, 1);
    logits_.pack(false, scratch);
    may_overflow_ = !(logits_.bound() <= W((std::numeric_limits<T>::max)() / 2));
  }

  /// The row that each section ends with, so that all are packed by the same powers of two.
  [[nodiscard]] View<const T> longest_row() const {
    Index longest = 0;
    W length = -1;
    for (Index j = 0; j < corpus_.rows; ++j) {
      const W norm = row_norm(&corpus_(j, 0), corpus_.col_stride, corpus_.cols).value();
      if (norm > length) {
        length = norm;
        longest = j;
      }
    }
    return {&corpus_(longest, 0), 1, corpus_.cols, corpus_.row_stride, corpus_.col_stride};
  }

  /// f(piece) for all pieces of all sections.
  template <class F>
  void for_pieces(const F& f) {
    const Index lanes = plan_.lanes(), pieces = plan_.pieces();
    for (Index section = 0; section < plan_.sections(); ++section) {
      open(section);
      const double work = double(plan_.rows) * double(cols_) * double(queries_.cols);
      parallel_for(lanes, work, [&](Index lane) {
        T* const tile_data = tiles_ + lane * plan_.block_rows * chunk;
        bool* const wanted = wanted_ + lane * flags();
        for (Index i = lane * pieces / lanes; i < (lane + 1) * pieces / lanes; ++i) {
          const Index part = i / plan_.blocks(), count = chunks(cols_);
          const Index first_row = i % plan_.blocks() * plan_.block_rows;
          f(Piece{part, first_row, (std::min)(first_row + plan_.block_rows, plan_.rows),
                  part * count / plan_.parts, (part + 1) * count / plan_.parts, tile_data, wanted});
        }
      });
    }
  }

  /// A strip with room for no more than one tile: each lies where the one before lay.
  static Strip<T> one_tile(T* data, Index first, Index end) {
    return {data, first, end - first, 0};
  }

  /// Blocks of the kernel's height and a chunk in a piece and all chunks.
  [[nodiscard]] Index flags() const {
    return plan_.block_rows / Kernel<T>::height * chunks(plan_.section_cols);
  }

  void find_overflow(const ScoreChunk<T>& scores, Index part) const {
    for (Index r = 0; r < scores.rows; ++r) {
      Index& found = overflow_[(scores.first_row + r) * plan_.parts + part];
      for (Index l = 0; l < scores.cols && found == plan_.cols; ++l)
        if (!std::isfinite(scores.row(r)[l])) found = scores.first_col + l;
    }
  }

  void refuse_overflows() const {
    for (Index i = 0; i < plan_.rows; ++i) {
      const Index* found = overflow_ + i * plan_.parts;
      const Index j = *std::min_element(found, found + plan_.parts);
      if (j < plan_.cols)
        refuse_overflow(
            function_,
            "the dot product of queries row %lld and corpus row %lld overflows the scalar type",
            number(i), number(j));
    }
  }

  const char* function_;
  ScorePlan<T> plan_;
  View<const T> queries_;
  View<const T> corpus_;
  Similarity similarity_;
  Scratch scratch_;
  T* tiles_;
  bool* wanted_;     // of each lane: the blocks with a relevant pair
  Index* overflow_;  // of each row and part: the first column that overflowed, or cols
  View<const T> longest_{};
  EmbeddingLogits<T> logits_{};
  Index opened_ = -1;
  Index first_ = 0;  // of the section
  Index cols_ = 0;
  bool may_overflow_ = false;
};

/// Arguments of everything here, without their contents.
template <class T>
void check_retrieval(const char* function, const View<const T>& queries,
                     const View<const T>& corpus) {
  check_not_empty(function, "queries", queries);
  check_not_empty(function, "corpus", corpus);
  if (queries.cols != corpus.cols)
    refuse(function,
           "queries is %lld x %lld but corpus is %lld x %lld, they must have the same number of "
           "columns",
           number(queries.rows), number(queries.cols), number(corpus.rows), number(corpus.cols));
}

template <class T>
void check_contents(const char* function, const View<const T>& queries, const View<const T>& corpus,
                    Similarity similarity) {
  check_embeddings(function, "queries", queries, similarity);
  check_embeddings(function, "corpus", corpus, similarity);
}

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_SCORE_WALK_HPP
