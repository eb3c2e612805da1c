#include "lib/io/runs.h"

#include <gtest/gtest.h>

#include <utility>

namespace isotrain::io::test {
namespace {

std::vector<std::pair<std::int64_t, std::int64_t>> pairs(std::vector<FlatRange> const& runs) {
  std::vector<std::pair<std::int64_t, std::int64_t>> result;
  for (auto const& run : runs) result.emplace_back(run.begin, run.end);
  return result;
}

TEST(Runs, ThatAdjoinAreJoined) {
  std::vector<FlatRange> const runs = {{0, 0}, {3, 5}, {5, 8}, {8, 8}, {9, 9}, {9, 10}, {12, 20}, {20, 21}};
  EXPECT_EQ(pairs(merged(runs)), pairs({{3, 8}, {9, 10}, {12, 21}}));
  EXPECT_EQ(elements(runs), 15u);
  EXPECT_EQ(elements(merged(runs)), 15u);
  EXPECT_TRUE(merged({}).empty());
  EXPECT_TRUE(merged({{4, 4}}).empty());
}

TEST(Runs, AreAscendingIfNoneOverlapsTheOneBeforeIt) {
  EXPECT_TRUE(ascending({}));
  EXPECT_TRUE(ascending({{0, 2}, {2, 2}, {2, 3}, {7, 9}}));
  EXPECT_FALSE(ascending({{0, 2}, {1, 3}}));
  EXPECT_FALSE(ascending({{2, 3}, {0, 1}}));
  EXPECT_FALSE(ascending({{3, 2}}));
  EXPECT_FALSE(ascending({{-1, 2}}));
}

}  // namespace
}  // namespace isotrain::io::test
