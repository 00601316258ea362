// Memory that a training loop hands from step to step, so that only its first step allocates.
#ifndef CONTRASTIVE_WORKSPACE_HPP
#define CONTRASTIVE_WORKSPACE_HPP

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

#include "detail/inline.hpp"

namespace contrastive {

namespace detail {
class Scratch;
}

/// Memory for intermediate results, kept between calls: one object serves any loss, shape and
/// scalar type, and grows to the largest call it has seen.
///
/// The byte budget given to the constructor is what the losses with two sweeps (CLIP, NT-Xent,
/// SupCon) may spend on keeping their strips of logits from one to the other, padding apart, which
/// saves CLIP one of four matrix products. Beyond the budget strips are computed anew. The result
/// is the same to the last bit.
///
/// One call at a time: two threads need two workspaces.
class Workspace {
 public:
  static constexpr std::size_t default_budget = std::size_t{256} << 20;

  Workspace() = default;
  explicit Workspace(std::size_t budget_in_bytes) : budget_(budget_in_bytes) {}
  Workspace(Workspace&&) noexcept = default;
  Workspace& operator=(Workspace&&) noexcept = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() = default;

  /// What those losses may keep, in bytes.
  [[nodiscard]] std::size_t budget() const { return budget_; }

  /// What is held at present, in bytes.
  [[nodiscard]] std::size_t size() const {
    std::size_t bytes = 0;
    for (const Block& block : blocks_) bytes += block.size();
    return bytes;
  }

  /// Gives all memory back.
  void release() { blocks_.clear(); }

 private:
  friend class detail::Scratch;

  class Block {
   public:
    static constexpr std::align_val_t alignment{64};

    Block() = default;
    Block(Block&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    Block& operator=(Block&& other) noexcept {
      std::swap(data_, other.data_);
      std::swap(size_, other.size_);
      return *this;
    }
    ~Block() { free(); }

    void* at_least(std::size_t bytes) {
      if (bytes > size_) {
        free();
        data_ = ::operator new(bytes, alignment);
        size_ = bytes;
      }
      return data_;
    }
    [[nodiscard]] std::size_t size() const { return size_; }

   private:
    void free() {
      if (data_ != nullptr) ::operator delete(data_, alignment);
      data_ = nullptr;
      size_ = 0;
    }

    void* data_ = nullptr;
    std::size_t size_ = 0;
  };

  std::vector<Block> blocks_{};
  std::size_t budget_ = default_budget;
};

/// The last argument of every loss: the caller's workspace, or if left out one for this call alone.
class OptionalWorkspace {
 public:
  OptionalWorkspace() = default;
  OptionalWorkspace(Workspace& workspace)  // NOLINT(google-explicit-constructor)
      : given_(&workspace) {}

  [[nodiscard]] Workspace& get() { return given_ != nullptr ? *given_ : own_; }

 private:
  Workspace own_{};
  Workspace* given_ = nullptr;
};

namespace detail {

/// One call's use of a workspace: its n-th request is served by the workspace's n-th block.
class Scratch {
 public:
  explicit Scratch(Workspace& workspace) : workspace_(&workspace) {}

  /// Uninitialised memory for `count` objects of a trivial type, aligned for any packet.
  template <class T, class Count>
  T* take(Count count) {
    return static_cast<T*>(next((static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64));
  }

  [[nodiscard]] std::size_t budget() const { return workspace_->budget(); }

 private:
  CONTRASTIVE_NOINLINE void* next(std::size_t bytes) {
    if (next_ == workspace_->blocks_.size()) workspace_->blocks_.emplace_back();
    return workspace_->blocks_[next_++].at_least(bytes);
  }

  Workspace* workspace_;
  std::size_t next_ = 0;
};

}  // namespace detail
}  // namespace contrastive

#endif  // CONTRASTIVE_WORKSPACE_HPP
