#include "lib/io/piece_sums.h"

#include <xxhash.h>

#include <algorithm>

#include "lib/base/error.h"

// The library's default entry points use SSE2 on x86; these choose AVX2 or AVX-512 at run time, with the same values.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

namespace isotrain::io {

std::uint64_t sum_of_blocks(std::uint64_t begin, std::span<float const> data) {
  expects(begin % sum_block_elements == 0, "data that begin with a block");
  std::uint64_t sum = 0;
  std::uint64_t block = begin / sum_block_elements;
  for (std::uint64_t at = 0; at < data.size(); at += sum_block_elements, ++block) {
    auto const part = data.subspan(at, std::min<std::uint64_t>(sum_block_elements, data.size() - at));
    sum += XXH3_64bits_withSeed(part.data(), part.size_bytes(), block);
  }
  return sum;
}

void add_to_sums(std::span<std::uint64_t> sums, std::uint64_t begin, std::span<float const> data) {
  while (!data.empty()) {
    auto const piece = begin / sum_piece_elements;
    auto const count = std::min<std::uint64_t>((piece + 1) * sum_piece_elements - begin, data.size());
    sums[piece] += sum_of_blocks(begin, data.first(count));
    data = data.subspan(count);
    begin += count;
  }
}

}  // namespace isotrain::io
