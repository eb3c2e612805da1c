#include "kernels/cpu/matmul_plan.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace isotrain::kernels::gemm::test {
namespace {

using Lengths = std::vector<std::int64_t>;

/// Walks K and checks what holds of every walk: each step once and in order, each block in one run, no cut inside a
/// piece; and that what the runs merge is the tree over them, places of empty ones kept.
std::vector<KBlock> walk(KCuts const& cuts, std::int64_t pad, std::int64_t max_steps) {
  std::vector<KBlock> blocks;
  std::size_t product = 0;
  std::int64_t at = 0, position = 0;
  std::vector<std::pair<int, int>> waiting(40, {-1, -1});  // at each level: first and last place of a subtree
  for (KCursor cursor(cuts, pad, max_steps); !cursor.done();) {
    KBlock const block = cursor.next();
    std::int64_t steps = 0;
    for (int i = 0; i < block.num_pieces; ++i) {
      for (; at == cuts.lengths[product]; at = 0) ++product;
      EXPECT_EQ(block.pieces[i].product, product);
      EXPECT_EQ(block.pieces[i].begin, at);
      EXPECT_GT(block.pieces[i].count, 0);
      at += block.pieces[i].count;
      position += block.pieces[i].count;
      EXPECT_LE(at, cuts.lengths[product]);
      steps += (block.pieces[i].count + pad - 1) / pad * pad;
    }
    EXPECT_EQ(block.steps, steps);
    EXPECT_GT(steps, 0);
    EXPECT_LE(steps, max_steps);
    EXPECT_EQ(cursor.position(), position);
    int const run = static_cast<int>(block.pieces[0].product) / cuts.per_run;
    EXPECT_EQ(static_cast<int>(product) / cuts.per_run, run);
    EXPECT_EQ(block.merges >> block.level, 0U);
    if (block.ends_run) {
      std::pair<int, int> own{run, run};
      for (int level = 0; level < block.level; ++level) {
        if (!(block.merges >> level & 1U)) continue;
        // Siblings: the halves of one aligned block of places.
        auto const left = waiting[static_cast<std::size_t>(level)];
        EXPECT_GE(left.first, 0);
        EXPECT_EQ(left.first >> level, left.second >> level);
        EXPECT_EQ(own.first >> level, own.second >> level);
        EXPECT_EQ(left.first >> level | 1, own.first >> level);
        EXPECT_EQ(left.first >> (level + 1), own.first >> (level + 1));
        own.first = left.first;
        waiting[static_cast<std::size_t>(level)] = {-1, -1};
      }
      EXPECT_EQ(waiting[static_cast<std::size_t>(block.level)].first, -1);
      waiting[static_cast<std::size_t>(block.level)] = own;
    }
    blocks.push_back(block);
  }
  EXPECT_EQ(position, cuts.length());
  int left = 0;
  for (auto const& subtree : waiting) left += subtree.first >= 0;
  EXPECT_EQ(left, position > 0 ? 1 : 0) << "subtrees that wait for ever";
  return blocks;
}

TEST(KCursor, CutsALongSumIntoEvenBlocks) {
  Lengths const lengths{672};
  auto const blocks = walk({lengths}, 1, 256);
  ASSERT_EQ(blocks.size(), 3U);
  EXPECT_EQ(blocks[0].steps, 224);
  EXPECT_EQ(blocks[2].steps, 224);
  EXPECT_TRUE(blocks[0].begins_run && !blocks[0].ends_run);
  EXPECT_TRUE(!blocks[2].begins_run && blocks[2].ends_run);
}

TEST(KCursor, EmptyRunsAreSkippedAndKeepTheirPlaces) {
  Lengths const lengths{2, 0, 0, 0, 2, 1, 0};
  KCuts const cuts{lengths};
  EXPECT_EQ(cuts.num_runs(), 7);
  EXPECT_EQ(cuts.num_runs_with_steps(), 3);
  auto const blocks = walk(cuts, 32, 256);
  ASSERT_EQ(blocks.size(), 3U);
  EXPECT_EQ(blocks[0].level, 2);  // beside all of the other half
  EXPECT_EQ(blocks[1].level, 0);
  EXPECT_EQ(blocks[2].merges, 5U);  // first the neighbour, then the lower half
}

TEST(KCursor, ARunGoesThroughItsProducts) {
  Lengths const lengths{5, 0, 40, 3, 0, 0};
  auto const blocks = walk({lengths, 3}, 32, 256);
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_EQ(blocks[0].num_pieces, 2);
  EXPECT_EQ(blocks[0].steps, 96);
  EXPECT_EQ(blocks[1].pieces[0].product, 3U);
  Lengths const many(1000, 1);
  EXPECT_EQ(walk({many, 1000}, 1, 256).size(), 8U) << "a block holds so many pieces";
}

TEST(KCursor, LeavesAndSegmentsArePiecesOfTheirOwn) {
  Lengths const lengths{100};
  auto const leaves = walk({.lengths = lengths, .leaf = 33}, 2, 256);
  ASSERT_EQ(leaves.size(), 1U);
  EXPECT_EQ(leaves[0].num_pieces, 4);
  EXPECT_EQ(leaves[0].steps, 34 * 3 + 2);
  Lengths const group{294};
  std::vector<std::int64_t> const offsets{7, 7, 10, 10, 300, 301, 301};
  auto const segments = walk({.lengths = group, .segments = offsets}, 32, 256);
  ASSERT_EQ(segments.size(), 2U);
  EXPECT_EQ(segments[0].pieces[0].count, 3);
  EXPECT_EQ(segments[0].pieces[1].count, 224);
  EXPECT_EQ(segments[1].pieces[0].count, 66);
  EXPECT_EQ(segments[1].pieces[1].count, 1);
}

TEST(KCursor, WalksEveryMixOfCuts) {
  for (std::int64_t length : {1, 2, 31, 32, 33, 511, 1000}) {
    for (std::size_t runs : {1, 2, 7, 8}) {
      for (int per_run : {1, 3}) {
        for (unsigned empty = 0; empty < 1U << runs; ++empty) {
          Lengths lengths(runs * static_cast<std::size_t>(per_run), length);
          for (std::size_t i = 0; i < lengths.size(); ++i) {
            if (empty >> i / static_cast<std::size_t>(per_run) & 1U) lengths[i] = 0;
          }
          for (std::int64_t leaf : {0, 1, 3, 32, 100}) {
            if (empty != 0 && (leaf > 0 || length > 32)) continue;
            for (std::int64_t pad : {2, 32}) walk({.lengths = lengths, .per_run = per_run, .leaf = leaf}, pad, 256);
          }
        }
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
