#include "lib/comm/tree_sum_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "tests/lib/comm/lanes_of_ranks.h"

namespace isotrain::test {
namespace {

/// A reduction of its own size, number of lanes and piece by number, with all that it works on.
struct Case {
  Case(Communicator const& comm, Cpu const& at, std::int64_t num_lanes, std::vector<IndexRange> const& lanes,
       std::vector<std::int64_t> const& offsets, std::int64_t piece)
      : local(at, lanes[static_cast<std::size_t>(comm.rank())], num_lanes, offsets.back()),
        reduction(comm, num_lanes, lanes, offsets, piece),
        own{offsets[static_cast<std::size_t>(comm.rank())], offsets[static_cast<std::size_t>(comm.rank()) + 1]},
        workspace(static_cast<std::size_t>(reduction.workspace_size()), nan),
        chunk(static_cast<std::size_t>(own.size()), nan),
        expected(expected_sum(num_lanes, own)) {}

  Local local;
  TreeReduction reduction;
  IndexRange own;
  std::vector<float> workspace, chunk, expected;
};

class TreeSumRunTest : public LanesOfRanks {
 protected:
  std::vector<std::unique_ptr<Case>> make_cases(int count) const {
    std::vector<std::unique_ptr<Case>> cases;
    for (int i = 0; i < count; ++i) {
      std::int64_t const num_lanes = size_ + 3 * i;
      cases.push_back(
          std::make_unique<Case>(comm_, at_, num_lanes, even_lanes(num_lanes), uneven_offsets(20 + 7 * i), 4 + 5 * i));
    }
    return cases;
  }
  void nap(Random const& random, std::uint64_t index) const {
    std::this_thread::sleep_for(std::chrono::microseconds(random.bits(index) % 300));
  }
};

TEST_F(TreeSumRunTest, RunsUnderWayTogetherDoNotMixUp) {
  // Every rank goes on with its runs in an order of its own.
  for (std::uint64_t key = 0; key < 20; ++key) {
    auto const cases = make_cases(5);
    Random const random(key, static_cast<std::uint64_t>(rank_));
    std::uint64_t draw = 0;
    std::vector<std::unique_ptr<TreeReductionRun>> runs;
    for (auto const& c : cases) {
      runs.push_back(
          std::make_unique<TreeReductionRun>(c->reduction, at_, c->local.sum.partials(), c->chunk, c->workspace));
      for (auto n = random.bits(draw++) % 3; n > 0; --n) runs[random.bits(draw++) % runs.size()]->progress();
    }
    for (int n = 0; n < 30; ++n) runs[random.bits(draw++) % runs.size()]->progress();
    if (rank_ == static_cast<int>(key) % size_) nap(random, draw++);
    // No order of finishing is promised to work but that of starting.
    for (std::size_t i = 0; i < runs.size(); ++i) {
      runs[i]->finish();
      EXPECT_TRUE(same_bits(cases[i]->chunk, cases[i]->expected)) << "run " << i << ", key " << key;
    }
  }
}

TEST_F(TreeSumRunTest, ProgressAloneCompletesTheChunk) {
  auto const cases = make_cases(2);
  for (auto const& c : cases) {
    TreeReductionRun run(c->reduction, at_, c->local.sum.partials(), c->chunk, c->workspace);
    while (!run.progress()) std::this_thread::yield();
    EXPECT_TRUE(same_bits(c->chunk, c->expected));
    EXPECT_TRUE(run.progress());
    run.finish();
    EXPECT_TRUE(same_bits(c->chunk, c->expected));
  }
}

TEST_F(TreeSumRunTest, ProgressDoesNotWaitForALateRank) {
  if (size_ < 2) GTEST_SKIP() << "a late rank is another one";
  auto const cases = make_cases(1);
  auto& c = *cases[0];
  // Runs and other collectives of one group come in one order on all ranks, so the late rank waits elsewhere.
  Communicator const elsewhere = Communicator::duplicate(MPI_COMM_WORLD);
  if (rank_ > 0) {
    TreeReductionRun run(c.reduction, at_, c.local.sum.partials(), c.chunk, c.workspace);
    for (int n = 0; n < 100; ++n) EXPECT_EQ(run.progress(), c.own.size() == 0);
    elsewhere.barrier();
    run.finish();
  } else {
    elsewhere.barrier();
    TreeReductionRun(c.reduction, at_, c.local.sum.partials(), c.chunk, c.workspace).finish();
  }
  EXPECT_TRUE(same_bits(c.chunk, c.expected));
}

TEST_F(TreeSumRunTest, TouchesChunkAndWorkspaceOnlyWhenGoneOnWith) {
  auto const cases = make_cases(1);
  auto& c = *cases[0];
  TreeReductionRun run(c.reduction, at_, c.local.sum.partials(), c.chunk, c.workspace);
  comm_.barrier();
  std::vector<float> const untouched(std::max(c.chunk.size(), c.workspace.size()), nan);
  EXPECT_TRUE(same_bits(c.chunk, std::span(untouched).first(c.chunk.size())));
  EXPECT_TRUE(same_bits(c.workspace, std::span(untouched).first(c.workspace.size())));
  run.finish();
  EXPECT_TRUE(same_bits(c.chunk, c.expected));
}

TEST_F(TreeSumRunTest, AQueueSharesOneWorkspace) {
  for (std::uint64_t key = 0; key < 20; ++key) {
    auto const cases = make_cases(5);
    std::size_t most = 0;
    for (auto const& c : cases) most = std::max(most, c->workspace.size());
    std::vector<float> workspace(most, nan);
    TreeReductionQueue queue(workspace);
    EXPECT_TRUE(queue.progress());
    Random const random(key, static_cast<std::uint64_t>(rank_));
    std::uint64_t draw = 0;
    for (int step = 0; step < 2; ++step) {
      for (auto const& c : cases) {
        queue.start(c->reduction, at_, c->local.sum.partials(), c->chunk);
        for (auto n = random.bits(draw++) % 4; n > 0; --n) queue.progress();
        if (random.bits(draw++) % 4 == 0) nap(random, draw++);
      }
      queue.finish();
      for (auto const& c : cases) EXPECT_TRUE(same_bits(c->chunk, c->expected)) << "key " << key;
      // What was reduced is garbage in this rank's part of the partials: the second step has new ones.
      auto const fresh = make_cases(5);
      for (std::size_t i = 0; i < cases.size(); ++i) {
        std::ranges::copy(fresh[i]->local.memory, cases[i]->local.memory.begin());
      }
    }
  }
}

TEST_F(TreeSumRunTest, BrokenContractsAreSeen) {
  auto const cases = make_cases(1);
  auto& c = *cases[0];
  std::span<float> const chunk = c.chunk;
  EXPECT_THROW(TreeReductionRun(c.reduction, at_, {}, chunk, c.workspace), std::logic_error);
  std::vector<float> longer(c.chunk.size() + 1);
  EXPECT_THROW(TreeReductionRun(c.reduction, at_, c.local.sum.partials(), longer, c.workspace), std::logic_error);
  if (c.workspace.empty()) return;
  auto const shorter = std::span(c.workspace).first(c.workspace.size() - 1);
  EXPECT_THROW(TreeReductionRun(c.reduction, at_, c.local.sum.partials(), chunk, shorter), std::logic_error);
}

}  // namespace
}  // namespace isotrain::test
