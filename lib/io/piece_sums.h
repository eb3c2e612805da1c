#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace isotrain::io {

/// Checksums of a flat fp32 dataset, one for each piece of 4 MiB, by global position and so the same for every layout.
///
/// A piece is made of blocks of 16 KiB. Its checksum is the sum modulo 2^64 over its blocks of the XXH3-64 of the
/// block's bytes, seeded with the block's index in the dataset. So the parts that several ranks hold of one piece add
/// up, exactly and in any order, and a block that moved is found as well as one that changed.
inline constexpr std::uint64_t sum_block_elements = 4096;
inline constexpr std::uint64_t sum_piece_elements = 256 * sum_block_elements;

/// Of a dataset of `total` elements, the last piece shorter than the others.
inline std::uint64_t num_pieces(std::uint64_t total) {
  return (total + sum_piece_elements - 1) / sum_piece_elements;
}

/// Sum over the blocks of elements [begin, begin + data.size()) of a dataset: the checksum if they are just one piece.
std::uint64_t sum_of_blocks(std::uint64_t begin, std::span<float const> data);

/// Adds elements [begin, begin + data.size()) of a dataset into the sums of its pieces. `begin` is a multiple of
/// sum_block_elements; so is the size unless the data end where the dataset does. Here and above.
void add_to_sums(std::span<std::uint64_t> sums, std::uint64_t begin, std::span<float const> data);

}  // namespace isotrain::io
