#include "lib/parallel/lanes.h"

#include <gtest/gtest.h>

#include "lib/base/error.h"

namespace isotrain::test {
namespace {

TEST(Lanes, LargerPartsComeFirst) {
  EXPECT_EQ(lanes_of_ranks(8, 3), (std::vector<IndexRange>{{0, 3}, {3, 6}, {6, 8}}));
  EXPECT_EQ(lanes_of_ranks(8, 4), (std::vector<IndexRange>{{0, 2}, {2, 4}, {4, 6}, {6, 8}}));
  EXPECT_EQ(lanes_of_ranks(1, 1), (std::vector<IndexRange>{{0, 1}}));
}

TEST(Lanes, RangesCoverAllLanesWithoutGaps) {
  for (std::int64_t lanes = 1; lanes <= 40; ++lanes) {
    for (std::int64_t ranks = 1; ranks <= lanes; ++ranks) {
      std::int64_t next = 0;
      for (IndexRange range : lanes_of_ranks(lanes, ranks)) {
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), lanes / ranks);
        EXPECT_LE(range.size(), (lanes + ranks - 1) / ranks);
        next = range.end;
      }
      EXPECT_EQ(next, lanes);
    }
  }
}

TEST(Lanes, MoreRanksThanLanesIsAUsageError) {
  try {
    lanes_of_ranks(8, 9);
    FAIL();
  } catch (UsageError const& error) {
    EXPECT_STREQ(
        error.what(),
        "9 data-parallel ranks are too many for 8 lanes (each rank needs a lane); use at most 8 ranks or raise "
        "--repro.lanes, which changes the results");
  }
}

TEST(EvenPart, MayBeEmpty) {
  EXPECT_EQ(even_part(2, 3, 2), (IndexRange{2, 2}));
  EXPECT_EQ(even_part(0, 2, 1), (IndexRange{0, 0}));
  EXPECT_THROW(even_part(2, 3, 3), std::logic_error);
}

}  // namespace
}  // namespace isotrain::test
