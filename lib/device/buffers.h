#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace isotrain {

/// Names one planned buffer of `count` elements of T. Obtained from BufferPlan::add.
template <class T>
struct BufferId {
  std::size_t index = 0;
  std::int64_t count = 0;
};

/// The list of all memory that a run will hold, made before any is allocated. `train --dry-run` prints it.
class BufferPlan {
 public:
  /// Plans `count` elements. `purpose` groups rows of the table: "weights", "gradients", "optimizer", "activations",
  /// "workspace", "communication", "data".
  template <class T>
  BufferId<T> add(std::string purpose, std::string name, std::int64_t count) {
    return {add_bytes(std::move(purpose), std::move(name), static_cast<std::size_t>(count) * sizeof(T)), count};
  }

  /// Makes a buffer of at least `count` elements of one that is planned.
  template <class T>
  BufferId<T> at_least(BufferId<T> id, std::int64_t count) {
    auto& bytes = entries_[id.index].bytes;
    bytes = std::max(bytes, static_cast<std::size_t>(count) * sizeof(T));
    return {id.index, count};
  }

  struct Entry {
    std::string purpose;
    std::string name;
    std::size_t bytes;
  };
  std::vector<Entry> const& entries() const { return entries_; }
  /// What Buffers allocates: buffers of 2 MiB and more are whole huge pages.
  std::size_t total_bytes() const;
  std::size_t total_bytes(std::string const& purpose) const;
  /// One line a purpose, with its largest buffers, and the sum.
  std::string table() const;

 private:
  std::size_t add_bytes(std::string purpose, std::string name, std::size_t bytes);

  std::vector<Entry> entries_;
};

/// What fresh memory holds. Tests poison it with NaN, so that a read before a write shows.
enum class Fill { zero, nan };

/// Owns the memory of a plan, every buffer aligned to 64 bytes. Throws Error naming the buffer when memory runs out.
class Buffers {
 public:
  explicit Buffers(BufferPlan const& plan, Fill fill = Fill::zero);

  template <class T>
  std::span<T> operator[](BufferId<T> id) const {
    return {reinterpret_cast<T*>(pointers_[id.index]), static_cast<std::size_t>(id.count)};
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::vector<std::unique_ptr<std::byte, Free>> memory_;
  std::vector<std::byte*> pointers_;
};

}  // namespace isotrain
