#pragma once

#include <cstdint>
#include <functional>

namespace isotrain::reference {

/// Sum in fp32 over leaves [begin, begin + width) of those below num_leaves, width a power of two: two halves, the
/// lower the left operand; a half without leaves is skipped.
inline float tree_sum(std::function<float(std::int64_t leaf)> const& leaf, std::int64_t num_leaves, std::int64_t begin,
                      std::int64_t width) {
  if (width == 1) return leaf(begin);
  std::int64_t const half = width / 2;
  float const left = tree_sum(leaf, num_leaves, begin, half);
  if (begin + half >= num_leaves) return left;
  return left + tree_sum(leaf, num_leaves, begin + half, half);
}

/// Tree(num_leaves) of the numerics contract over leaf(0), leaf(1), ...
inline float tree_sum(std::function<float(std::int64_t leaf)> const& leaf, std::int64_t num_leaves) {
  std::int64_t width = 1;
  while (width < num_leaves) width *= 2;
  return tree_sum(leaf, num_leaves, 0, width);
}

}  // namespace isotrain::reference
