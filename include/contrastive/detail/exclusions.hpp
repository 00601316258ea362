// Which pairs ids rule out: candidates that are the same item, or belong to the same query.
#ifndef CONTRASTIVE_DETAIL_EXCLUSIONS_HPP
#define CONTRASTIVE_DETAIL_EXCLUSIONS_HPP

#include <algorithm>
#include <cstdint>

#include "../options.hpp"
#include "../workspace.hpp"

namespace contrastive::detail {

using Eigen::Index;

/// For each row the candidates that share its id, in ascending order.
///
/// The ids are sorted once, O(n log n), so that a row without duplicates costs one comparison
/// afterwards, whatever the number of candidates.
class IdGroups {
 public:
  IdGroups() = default;

  /// Row i is ruled out with every candidate j that has candidate_ids[j] == row_ids[i].
  IdGroups(const List<std::int64_t>& row_ids, const List<std::int64_t>& candidate_ids,
           Scratch& scratch) {
    const Index n = candidate_ids.size();
    Entry* entries = scratch.take<Entry>(n);
    for (Index j = 0; j < n; ++j) entries[j] = {candidate_ids[j], j};
    std::sort(entries, entries + n, [](const Entry& a, const Entry& b) {
      return a.id != b.id ? a.id < b.id : a.candidate < b.candidate;
    });
    groups_ = scratch.take<Group>(row_ids.size());
    for (Index i = 0; i < row_ids.size(); ++i) {
      const std::int64_t id = row_ids[i];
      const Entry* first = std::lower_bound(
          entries, entries + n, id, [](const Entry& a, std::int64_t b) { return a.id < b; });
      const Entry* last = std::upper_bound(first, static_cast<const Entry*>(entries + n), id,
                                           [](std::int64_t a, const Entry& b) { return a < b.id; });
      groups_[i] = {first, last};
    }
  }

  /// Calls f(j) for the candidates j of row i's group with begin <= j < end.
  template <class F>
  void for_each(Index i, Index begin, Index end, const F& f) const {
    if (groups_ == nullptr) return;
    const Group& group = groups_[i];
    if (group.last - group.first < 1) return;
    const Entry* entry = std::lower_bound(group.first, group.last, begin,
                                          [](const Entry& a, Index j) { return a.candidate < j; });
    for (; entry != group.last && entry->candidate < end; ++entry) f(entry->candidate);
  }

 private:
  struct Entry {
    std::int64_t id;
    Index candidate;
  };
  struct Group {
    const Entry* first;
    const Entry* last;
  };
  Group* groups_ = nullptr;
};

/// The candidates that are none for a row, among the columns [P; shared rows of N].
///
/// With two views of each item, row i and row i + B are each other's positives, both are of item i,
/// and rows are candidates of each other, themselves apart: ids rule out both views of an item.
class Exclusions {
 public:
  Exclusions() = default;

  Exclusions(const List<std::int64_t>& query_ids, const List<std::int64_t>& pos_ids,
             const List<std::int64_t>& neg_ids, Index batch, Scratch& scratch, Index views = 1)
      : batch_(batch), views_(views) {
    if (!query_ids.empty()) same_query_ = IdGroups(query_ids, query_ids, scratch);
    if (!pos_ids.empty()) same_item_ = IdGroups(pos_ids, pos_ids, scratch);
    if (!neg_ids.empty()) known_positive_ = IdGroups(pos_ids, neg_ids, scratch);
  }

  /// Calls f(j) for every excluded column begin <= j < end of row i, and for those of its own item:
  /// the positive is no negative. A column may come more than once.
  template <class F>
  void for_each(Index i, Index begin, Index end, const F& f) const {
    for (Index first = 0; first < views_ * batch_; first += batch_) {
      const Index item = i < batch_ ? i : i - batch_;
      const auto view = [&](Index j) { f(first + j); };
      const Index from = begin - first, to = (std::min)(end - first, batch_);
      if (from <= item && item < to) view(item);
      same_query_.for_each(item, from, to, view);
      same_item_.for_each(item, from, to, view);
    }
    known_positive_.for_each(i, begin - batch_, end - batch_, [&](Index m) { f(batch_ + m); });
  }

 private:
  IdGroups same_query_{};
  IdGroups same_item_{};
  IdGroups known_positive_{};
  Index batch_ = 0;
  Index views_ = 1;
};

}  // namespace contrastive::detail

#endif  // CONTRASTIVE_DETAIL_EXCLUSIONS_HPP
