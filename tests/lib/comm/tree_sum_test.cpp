#include "lib/comm/tree_sum.h"

#include <gtest/gtest.h>

#include "tests/lib/comm/lanes_of_ranks.h"

namespace isotrain::test {
namespace {

class TreeSumTest : public LanesOfRanks {
 protected:
  /// The chunk of this rank, summed by the code under test.
  std::vector<float> reduce(std::int64_t num_lanes, std::vector<IndexRange> const& lanes,
                            std::vector<std::int64_t> const& offsets, std::int64_t piece) const {
    Local local(at_, lanes[static_cast<std::size_t>(rank_)], num_lanes, offsets.back());
    TreeReduction const reduction(comm_, num_lanes, lanes, offsets, piece);
    std::vector<float> workspace(static_cast<std::size_t>(reduction.workspace_size()), nan);
    IndexRange const mine = own(offsets);
    std::vector<float> chunk(static_cast<std::size_t>(mine.size()), nan);
    auto partials = local.sum.partials();
    reduction.reduce_scatter(at_, partials, chunk, workspace);
    return chunk;
  }
};

TEST_F(TreeSumTest, EqualsTheDefinitionForAnyNumberOfLanes) {
  auto const offsets = uneven_offsets(37);
  for (std::int64_t num_lanes = 1; num_lanes <= 16; ++num_lanes) {
    // Fewer lanes than ranks leave the last ranks without any.
    auto const sum = reduce(num_lanes, even_lanes(num_lanes), offsets, 16);
    EXPECT_TRUE(same_bits(sum, expected_sum(num_lanes, own(offsets)))) << num_lanes << " lanes";
  }
}

TEST_F(TreeSumTest, DoesNotDependOnWhoHasWhichLanes) {
  auto const offsets = uneven_offsets(23);
  for (std::int64_t num_lanes : {5, 8, 11}) {
    auto const expected = expected_sum(num_lanes, own(offsets));
    for (std::uint64_t key = 0; key < 12; ++key) {
      Random const random(key, "cuts");
      std::vector<std::int64_t> cuts{0, num_lanes};
      for (int r = 1; r < size_; ++r) {
        cuts.push_back(static_cast<std::int64_t>(random.bits(r) % static_cast<std::uint64_t>(num_lanes + 1)));
      }
      std::sort(cuts.begin(), cuts.end());
      std::vector<IndexRange> lanes;
      for (std::size_t r = 0; r + 1 < cuts.size(); ++r) lanes.push_back({cuts[r], cuts[r + 1]});
      EXPECT_TRUE(same_bits(reduce(num_lanes, lanes, offsets, 16), expected)) << num_lanes << " lanes, cut " << key;
    }
  }
}

TEST_F(TreeSumTest, DoesNotDependOnThePiece) {
  auto const offsets = uneven_offsets(50);
  auto const expected = expected_sum(8, own(offsets));
  for (std::int64_t piece : {std::int64_t{1}, std::int64_t{7}, std::int64_t{50}, TreeReduction::default_piece}) {
    EXPECT_TRUE(same_bits(reduce(8, even_lanes(8), offsets, piece), expected)) << "piece of " << piece;
  }
}

TEST_F(TreeSumTest, AnotherOrderGivesOtherBits) {
  // What would be summed if each rank added its lanes as a chain, and the sums were added in rank order.
  auto const by_rank = [](int num_ranks) {
    std::vector<float> sum;
    for (std::int64_t e = 0; e < 200; ++e) {
      float total = 0;
      for (int r = 0; r < num_ranks; ++r) {
        std::int64_t const first = 8 * r / num_ranks, end = 8 * (r + 1) / num_ranks;
        float mine = gradient(first, e);
        for (std::int64_t lane = first + 1; lane < end; ++lane) mine += gradient(lane, e);
        total = r == 0 ? mine : total + mine;
      }
      sum.push_back(total);
    }
    return sum;
  };
  auto const tree = expected_sum(8, {0, 200});
  for (int num_ranks : {1, 2, 3, 8}) EXPECT_FALSE(same_bits(tree, by_rank(num_ranks))) << num_ranks << " ranks";
  EXPECT_FALSE(same_bits(by_rank(1), by_rank(2)));
}

TEST_F(TreeSumTest, TheChunkMayLieInAPartial) {
  auto const offsets = uneven_offsets(29);
  std::vector<IndexRange> const lanes = even_lanes(16);
  IndexRange const mine = own(offsets);
  std::size_t const num_partials = subtrees(lanes[static_cast<std::size_t>(rank_)], 16).size();
  for (std::size_t in = 0; in < num_partials; ++in) {
    Local local(at_, lanes[static_cast<std::size_t>(rank_)], 16, offsets.back());
    TreeReduction const reduction(comm_, 16, lanes, offsets, 8);
    std::vector<float> workspace(static_cast<std::size_t>(reduction.workspace_size()), nan);
    auto partials = local.sum.partials();
    auto const chunk =
        partials[in].subspan(static_cast<std::size_t>(mine.begin), static_cast<std::size_t>(mine.size()));
    reduction.reduce_scatter(at_, partials, chunk, workspace);
    EXPECT_TRUE(same_bits(chunk, expected_sum(16, mine))) << "in partial " << in;
    // All ranks must take the same number of turns.
    if (comm_.min(static_cast<std::int64_t>(num_partials)) == static_cast<std::int64_t>(in) + 1) break;
  }
}

TEST_F(TreeSumTest, GathersChunksOfAnyType) {
  auto const offsets = uneven_offsets(31);
  TreeReduction const reduction(comm_, size_, even_lanes(size_), offsets);
  std::vector<std::uint16_t> whole(static_cast<std::size_t>(offsets.back()), 0xffff);
  for (std::int64_t e = own(offsets).begin; e < own(offsets).end; ++e) whole[e] = static_cast<std::uint16_t>(e * 3);
  reduction.all_gather(std::span(whole));
  for (std::size_t e = 0; e < whole.size(); ++e) ASSERT_EQ(whole[e], e * 3);
}

TEST_F(TreeSumTest, BrokenContractsAreSeen) {
  auto const offsets = uneven_offsets(8);
  std::vector<IndexRange> gap = even_lanes(8 * size_);
  gap.back().begin += 1;
  EXPECT_THROW(TreeReduction(comm_, 8 * size_, gap, offsets), std::logic_error);
  EXPECT_THROW(TreeReduction(comm_, 8 * size_ + 1, even_lanes(8 * size_), offsets), std::logic_error);
  EXPECT_THROW(TreeReduction(comm_, size_, even_lanes(size_), {0}), std::logic_error);
  TreeReduction const reduction(comm_, size_, even_lanes(size_), offsets);
  std::vector<float> chunk(static_cast<std::size_t>(own(offsets).size()));
  EXPECT_THROW(reduction.reduce_scatter(at_, {}, chunk, {}), std::logic_error);
}

}  // namespace
}  // namespace isotrain::test
