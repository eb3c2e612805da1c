#pragma once

#include <algorithm>
#include <cstdint>

namespace isotrain::kernels {

/// Elements that are worth a thread of their own in elementwise kernels; a multiple of the vector block.
inline constexpr std::int64_t elements_per_piece = 16384;

/// The same for rows of `cols` elements.
inline std::int64_t rows_per_piece(std::int64_t cols) {
  return std::max<std::int64_t>(1, elements_per_piece / std::max<std::int64_t>(1, cols));
}

}  // namespace isotrain::kernels
