#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>

namespace isotrain::kernels {

/// Working memory of one thread inside a kernel: grows to the largest request and is kept, so that a step in steady
/// state allocates nothing. Holds nothing from call to call.
class Scratch {
 public:
  /// Cuts the memory into one piece for each pointer, of the given number of floats, aligned to 64 bytes; contents are
  /// unspecified. Pieces end at the next call.
  struct Piece {
    float** pointer;
    std::int64_t count;
  };
  void cut(std::initializer_list<Piece> pieces) {
    std::int64_t total = 0;
    for (Piece const& piece : pieces) total += padded(piece.count);
    if (total > capacity_) {
      memory_.reset();
      memory_.reset(new (alignment) std::byte[static_cast<std::size_t>(total) * sizeof(float)]);
      capacity_ = total;
    }
    auto* next = reinterpret_cast<float*>(memory_.get());
    for (Piece const& piece : pieces) {
      *piece.pointer = next;
      next += padded(piece.count);
    }
  }

 private:
  static constexpr std::align_val_t alignment{64};
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, alignment); }
  };
  // One line beyond a multiple of the page: pieces of equal size do not fall on the same sets of a cache.
  static std::int64_t padded(std::int64_t count) { return (count + 15) / 16 * 16 + 16; }

  std::unique_ptr<std::byte[], Free> memory_;
  std::int64_t capacity_ = 0;
};

}  // namespace isotrain::kernels
