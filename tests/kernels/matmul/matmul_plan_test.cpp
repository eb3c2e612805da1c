#include "kernels/cpu/matmul_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace isotrain::kernels::gemm::test {
namespace {

/// Walks K and checks what holds of every walk: each step once and in order, no run or cut inside a piece.
std::vector<KBlock> walk(KCuts const& cuts, std::int64_t pad, std::int64_t max_steps) {
  std::vector<KBlock> blocks;
  std::int64_t at = 0;
  for (KCursor cursor(cuts, pad, max_steps); !cursor.done();) {
    KBlock const block = cursor.next();
    std::int64_t steps = 0;
    for (int i = 0; i < block.num_pieces; ++i) {
      EXPECT_EQ(block.pieces[i].begin, at);
      EXPECT_GT(block.pieces[i].count, 0);
      at += block.pieces[i].count;
      steps += (block.pieces[i].count + pad - 1) / pad * pad;
    }
    EXPECT_EQ(block.steps, steps);
    EXPECT_GT(steps, 0);
    EXPECT_LE(steps, max_steps);
    EXPECT_EQ(cursor.position(), at);
    blocks.push_back(block);
  }
  EXPECT_EQ(at, cuts.length);
  return blocks;
}

TEST(KCursor, CutsALongSumIntoEvenBlocks) {
  auto const blocks = walk({.length = 672}, 1, 256);
  ASSERT_EQ(blocks.size(), 3U);
  EXPECT_EQ(blocks[0].steps, 224);
  EXPECT_EQ(blocks[2].steps, 224);
  EXPECT_TRUE(blocks[0].begins_run && !blocks[0].ends_run);
  EXPECT_TRUE(!blocks[2].begins_run && blocks[2].ends_run);
}

TEST(KCursor, SlicesAreRunsAndTheLastMayBeMissing) {
  KCuts const cuts{.length = 5, .slices = 4};
  EXPECT_EQ(cuts.num_runs(), 3);
  auto const blocks = walk(cuts, 32, 256);
  ASSERT_EQ(blocks.size(), 3U);
  for (int run = 0; run < 3; ++run) {
    EXPECT_EQ(blocks[static_cast<std::size_t>(run)].run, run);
    EXPECT_EQ(blocks[static_cast<std::size_t>(run)].pieces[0].count, run < 2 ? 2 : 1);
  }
}

TEST(KCursor, LeavesAndSegmentsArePiecesOfTheirOwn) {
  auto const leaves = walk({.length = 100, .leaf = 33}, 2, 256);
  ASSERT_EQ(leaves.size(), 1U);
  EXPECT_EQ(leaves[0].num_pieces, 4);
  EXPECT_EQ(leaves[0].steps, 34 * 3 + 2);
  std::vector<std::int64_t> const offsets{7, 7, 10, 10, 300, 301, 301};
  auto const segments = walk({.length = 294, .segments = offsets}, 32, 256);
  ASSERT_EQ(segments.size(), 2U);
  EXPECT_EQ(segments[0].pieces[0].count, 3);
  EXPECT_EQ(segments[0].pieces[1].count, 224);
  EXPECT_EQ(segments[1].pieces[0].count, 66);
  EXPECT_EQ(segments[1].pieces[1].count, 1);
}

TEST(KCursor, WalksEveryMixOfCuts) {
  for (std::int64_t length : {1, 2, 31, 32, 33, 511, 1000}) {
    for (int slices : {1, 2, 7, 8}) {
      for (std::int64_t leaf : {0, 1, 3, 32, 100}) {
        for (std::int64_t pad : {2, 32}) walk({.length = length, .slices = slices, .leaf = leaf}, pad, 256);
      }
    }
  }
}

TEST(Cut, CoversTheExtentAtWholeUnits) {
  for (std::int64_t extent : {0, 1, 13, 14, 15, 300}) {
    for (int parts : {1, 2, 3, 8}) {
      std::int64_t at = 0;
      for (int i = 0; i < parts; ++i) {
        Range const range = cut(extent, parts, i, 14);
        EXPECT_EQ(range.begin, at);
        EXPECT_TRUE(range.begin % 14 == 0 || range.size() == 0);
        at = range.end;
      }
      EXPECT_EQ(at, extent);
    }
  }
}

TEST(ChooseGrid, SplitsTheLongSideAndLeavesSmallProductsAlone) {
  TileShape const tile{14, 32};
  EXPECT_EQ(choose_grid(8, tile, 4, 4, 4).parts(), 1);
  Grid const skinny = choose_grid(2, tile, 64, 1024, 1024);
  EXPECT_EQ(skinny.rows, 1);
  EXPECT_EQ(skinny.cols, 2);
  Grid const tall = choose_grid(2, tile, 4096, 64, 1024);
  EXPECT_EQ(tall.rows, 2);
  EXPECT_EQ(tall.cols, 1);
  Grid const square = choose_grid(16, tile, 4096, 4096, 1024);
  EXPECT_EQ(square.parts(), 16);
  EXPECT_TRUE(square.rows > 1 && square.cols > 1);
  EXPECT_LE(choose_grid(7, tile, 512, 512, 512).parts(), 7);
}

}  // namespace
}  // namespace isotrain::kernels::gemm::test
