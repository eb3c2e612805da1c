// Walking over contiguous elements in blocks of sixteen, and sums in the contract's order. Included once per Highway
// target.
#if defined(ISOTRAIN_KERNELS_ROWS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOTRAIN_KERNELS_ROWS_INL
#undef ISOTRAIN_KERNELS_ROWS_INL
#else
#define ISOTRAIN_KERNELS_ROWS_INL
#endif

#include <array>
#include <cstdint>

#include "kernels/cpu/simd-inl.h"

// A lambda that must become part of its caller, so that accumulators stay in registers and a block's length 16 is a
// constant.
#define ISOTRAIN_INLINE_LAMBDA __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// body(first, count) for blocks of 16 elements of [begin, end); the last one may have fewer. load_first(p, count) and
/// store_first(v, p, count) are the body's ways to memory, so that full and last block are the same code.
template <class Body>
HWY_INLINE void for_blocks(std::int64_t begin, std::int64_t end, Body const& body) {
  std::int64_t i = begin;
  for (; i + block_lanes <= end; i += block_lanes) body(i, block_lanes);
  if (i < end) body(i, end - i);
}
template <class Body>
HWY_INLINE void for_blocks(std::int64_t count, Body const& body) {
  for_blocks(0, count, body);
}

/// Tree: the perfect binary tree over leaves that come in ascending order, left operand the lower index, missing leaves
/// skipped. A binary counter of finished subtrees. V is anything with +.
template <class V>
class Tree {
 public:
  HWY_INLINE void add(V leaf) {
    for (std::uint32_t bit = 1; leaves_ & bit; bit <<= 1) leaf = subtrees_[--height_] + leaf;
    subtrees_[height_++] = leaf;
    ++leaves_;
  }
  /// Requires at least one leaf.
  HWY_INLINE V total() const {
    V sum = subtrees_[height_ - 1];
    for (int i = height_ - 2; i >= 0; --i) sum = subtrees_[i] + sum;
    return sum;
  }

 private:
  std::array<V, 32> subtrees_;
  std::uint32_t leaves_ = 0;
  int height_ = 0;
};

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
