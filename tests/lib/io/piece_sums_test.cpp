#include "lib/io/piece_sums.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <stdexcept>
#include <vector>

namespace isotrain::io::test {
namespace {

std::vector<float> numbers(std::size_t n) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<float>(i % 65521) * 0.37f;
  return v;
}

TEST(PieceSums, AreSeededXxh3OfTheBlocks) {
  auto const v = numbers(2 * sum_block_elements + 100);
  std::uint64_t expected = XXH3_64bits_withSeed(v.data(), 4 * 4096, 0);
  expected += XXH3_64bits_withSeed(v.data() + 4096, 4 * 4096, 1);
  expected += XXH3_64bits_withSeed(v.data() + 8192, 4 * 100, 2);
  std::uint64_t sum = 0;
  add_to_sums({&sum, 1}, 0, v);
  EXPECT_EQ(sum, expected);
  EXPECT_EQ(sum_of_blocks(0, v), expected);
}

TEST(PieceSums, DoNotDependOnHowADatasetIsCut) {
  auto const total = 2 * sum_piece_elements + 3 * sum_block_elements + 17;
  auto const v = numbers(total);
  std::vector<std::uint64_t> whole(num_pieces(total)), cut(num_pieces(total));
  ASSERT_EQ(whole.size(), 3u);
  add_to_sums(whole, 0, v);
  std::vector<std::uint64_t> const cuts = {0, 1, 1, 7, 255, 257, 510, 515};
  for (std::size_t i = cuts.size(); i-- > 0;) {  // the last part first
    auto const begin = cuts[i] * sum_block_elements;
    auto const end = i + 1 < cuts.size() ? cuts[i + 1] * sum_block_elements : total;
    add_to_sums(cut, begin, std::span(v).subspan(begin, end - begin));
  }
  EXPECT_EQ(whole, cut);
}

TEST(PieceSums, ChangeWithOneBitAndWithOneBlockMoved) {
  auto v = numbers(4 * sum_block_elements);
  auto const good = sum_of_blocks(0, v);
  auto swapped = v;
  std::swap_ranges(swapped.begin(), swapped.begin() + 4096, swapped.begin() + 4096);
  EXPECT_NE(sum_of_blocks(0, swapped), good);
  reinterpret_cast<std::uint32_t*>(v.data())[9999] ^= 1u;
  EXPECT_NE(sum_of_blocks(0, v), good);
}

TEST(PieceSums, WantWholeBlocksFromTheStart) {
  auto const v = numbers(10);
  EXPECT_THROW(sum_of_blocks(1, v), std::logic_error);
}

}  // namespace
}  // namespace isotrain::io::test
