#include "lib/comm/lane_sum.h"

#include <gtest/gtest.h>

#include <bit>

#include "lib/base/error.h"
#include "lib/base/random.h"
#include "tests/reference/tree_sum.h"

namespace isotrain::test {
namespace {

float value(std::int64_t lane) {
  return static_cast<float>(Random(5, "values").normal(static_cast<std::uint64_t>(lane)));
}

float expected(TreeNode node, std::int64_t num_lanes) {
  return reference::tree_sum(value, num_lanes, node.index << node.level, std::int64_t{1} << node.level);
}

struct Buffers {
  explicit Buffers(std::int64_t count) : memory(static_cast<std::size_t>(count), std::vector<float>(3, -1)) {}
  std::vector<std::span<float>> spans() { return {memory.begin(), memory.end()}; }
  std::vector<std::vector<float>> memory;
};

TEST(LaneSum, LeavesTheSubtreesOfItsRange) {
  Cpu const at{1};
  for (std::int64_t num_lanes = 1; num_lanes <= 16; ++num_lanes) {
    for (std::int64_t begin = 0; begin < num_lanes; ++begin) {
      for (std::int64_t end = begin + 1; end <= num_lanes; ++end) {
        IndexRange const lanes{begin, end};
        Buffers buffers(LaneSum::num_buffers(lanes, num_lanes));
        LaneSum sum(lanes, num_lanes, buffers.spans());
        for (int step = 0; step < 2; ++step) {
          for (std::int64_t lane = begin; lane < end; ++lane) {
            std::fill(sum.next().begin(), sum.next().end(), value(lane));
            sum.push(at);
          }
          auto const nodes = subtrees(lanes, num_lanes);
          auto const partials = sum.partials();
          ASSERT_EQ(partials.size(), nodes.size());
          for (std::size_t i = 0; i < nodes.size(); ++i) {
            for (float x : partials[i])
              ASSERT_EQ(x, expected(nodes[i], num_lanes)) << num_lanes << " " << begin << " " << end;
          }
          sum.reset();
        }
      }
    }
  }
}

TEST(LaneSum, NeedsFewBuffers) {
  EXPECT_EQ(LaneSum::num_buffers({0, 1}, 8), 1);
  EXPECT_EQ(LaneSum::num_buffers({0, 8}, 8), 4);
  EXPECT_EQ(LaneSum::num_buffers({4, 8}, 8), 3);
  EXPECT_EQ(LaneSum::num_buffers({3, 6}, 8), 3);
  for (int level = 0; level <= 10; ++level) {
    EXPECT_EQ(LaneSum::num_buffers({0, std::int64_t{1} << level}, std::int64_t{1} << level), level + 1);
  }
}

TEST(LaneSum, TakesTheCallersBuffers) {
  Cpu const at{1};
  Buffers lanes(6);
  LaneSum sum({0, 6}, 6, {});
  for (std::int64_t lane = 0; lane < 6; ++lane) {
    auto& buffer = lanes.memory[static_cast<std::size_t>(lane)];
    std::fill(buffer.begin(), buffer.end(), value(lane));
    sum.push(at, buffer);
  }
  ASSERT_EQ(sum.partials().size(), 1u);
  EXPECT_EQ(sum.partials()[0].data(), lanes.memory[0].data());
  EXPECT_EQ(sum.partials()[0][2], expected({3, 0}, 6));
}

TEST(LaneSum, BrokenContractsAreSeen) {
  Cpu const at{1};
  Buffers buffers(1);
  LaneSum sum({0, 3}, 4, buffers.spans());
  EXPECT_THROW(sum.partials(), std::logic_error);
  sum.push(at);
  EXPECT_THROW(sum.next(), std::logic_error);
  LaneSum full({2, 3}, 4, {});
  full.push(at, buffers.memory[0]);
  EXPECT_THROW(full.push(at, buffers.memory[0]), std::logic_error);
  EXPECT_THROW(LaneSum({0, 5}, 4, {}), std::logic_error);
}

}  // namespace
}  // namespace isotrain::test
