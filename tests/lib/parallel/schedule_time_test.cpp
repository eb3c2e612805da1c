#include "lib/parallel/schedule_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace isotrain::test {
namespace {

std::vector<ChunkCost> equal_costs(ScheduleSpec const& spec, ChunkCost const& cost) {
  return std::vector<ChunkCost>(spec.num_chunks(), cost);
}

/// Whole numbers, so that all sums are exact.
std::vector<ChunkCost> const whole_costs{{1, 1, 1}, {1, 2, 1}, {2, 3, 1}, {3, 2, 1}, {2, 2, 1}};

/// Time beyond what the work of a stage takes, if all stages have the same work.
double bubble(ScheduleSpec const& spec, ChunkCost const& cost) {
  double const work = cost.forward_s + cost.backward_input_s + cost.backward_weight_s;
  return simulate(spec, equal_costs(spec, cost)).makespan_s - work * spec.virtual_stages * spec.micro_batches;
}

template <class Check>
void for_sizes(ScheduleKind kind, int chunks, Check check) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 40; ++micro_batches) {
      SCOPED_TRACE(name_of(kind) + " P=" + std::to_string(stages) + " V=" + std::to_string(chunks) +
                   " M=" + std::to_string(micro_batches));
      check(ScheduleSpec{kind, stages, chunks, micro_batches});
    }
  }
}

TEST(Bubble, OfGpipeAnd1f1bIsOneMicroBatchForEveryOtherStage) {
  for (ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b}) {
    for_sizes(kind, 1, [](ScheduleSpec const& spec) {
      int const P = spec.stages;
      int const M = spec.micro_batches;
      for (ChunkCost const& cost : whole_costs) {
        EXPECT_EQ(bubble(spec, cost), (P - 1) * (cost.forward_s + cost.backward_input_s + cost.backward_weight_s));
        // Both are one rounded quotient, or 1 minus one.
        EXPECT_NEAR(simulate(spec, equal_costs(spec, cost)).bubble_fraction, (P - 1.0) / (M + P - 1),
                    2 * std::numeric_limits<double>::epsilon());
      }
    });
  }
}

TEST(Bubble, OfInterleavedIsThatOfOneChunkFromPMicroBatchesOn) {
  for (int chunks = 1; chunks <= 4; ++chunks) {
    for_sizes(ScheduleKind::interleaved, chunks, [](ScheduleSpec const& spec) {
      for (ChunkCost const& cost : whole_costs) {
        double const work = cost.forward_s + cost.backward_input_s + cost.backward_weight_s;
        if (spec.micro_batches >= spec.stages || spec.virtual_stages == 1) {
          EXPECT_EQ(bubble(spec, cost), (spec.stages - 1) * work);
        } else {
          // Micro-batches that are missing leave holes each time round.
          int const missing = spec.stages - spec.micro_batches;
          EXPECT_EQ(bubble(spec, cost), (spec.stages - 1 + (spec.virtual_stages - 1) * missing) * work);
        }
      }
    });
  }
}

TEST(Bubble, OfZeroBubbleIsShorterByTwoWeightGradientsAStage) {
  for_sizes(ScheduleKind::zero_bubble, 1, [](ScheduleSpec const& spec) {
    for (ChunkCost const& cost : whole_costs) {
      int const P = spec.stages;
      double const theory = (P - 1) * (cost.forward_s + cost.backward_input_s - cost.backward_weight_s);
      if (spec.micro_batches >= P) {
        EXPECT_EQ(bubble(spec, cost), theory);
      } else {
        EXPECT_GE(bubble(spec, cost), theory);
        EXPECT_LE(bubble(spec, cost), bubble({ScheduleKind::one_f_one_b, P, 1, spec.micro_batches}, cost));
      }
    }
  });
}

/// The table of DeepSeek-V3's report, with P for its PP / 2, F&B one after the other, B both halves: (P - 1) (F&B + B -
/// 3 W). Messages that leave at once, not with the pair they are computed in, make it shorter: by (P - 1) F where a
/// forward takes as long as an input gradient.
TEST(Bubble, OfDualPipeVIsAtMostThatOfTheTable) {
  for_sizes(ScheduleKind::dualpipe_v, 2, [](ScheduleSpec const& spec) {
    int const P = spec.stages;
    for (ChunkCost const& cost : whole_costs) {
      double const backward = cost.backward_input_s + cost.backward_weight_s;
      double const table = (P - 1) * (cost.forward_s + backward + backward - 3 * cost.backward_weight_s);
      if (spec.micro_batches < 2 * P) continue;
      EXPECT_LE(bubble(spec, cost), table);
      if (cost.forward_s == cost.backward_input_s) {
        EXPECT_EQ(bubble(spec, cost), table - (P - 1) * cost.forward_s);
      }
    }
    // With fewer micro-batches it is still shorter than that of 1F1B, whose stages are as long as two chunks.
    ScheduleSpec const plain{ScheduleKind::one_f_one_b, P, 1, spec.micro_batches};
    for (ChunkCost const& cost : whole_costs) {
      ChunkCost const twice{2 * cost.forward_s, 2 * cost.backward_input_s, 2 * cost.backward_weight_s};
      EXPECT_LE(bubble(spec, cost), bubble(plain, twice));
    }
  });
}

/// The most micro-batches that each stage holds.
std::vector<int> memory(ScheduleSpec const& spec) {
  return simulate(spec, equal_costs(spec, {1, 1, 1})).most_alive;
}

TEST(Memory, IsWhatTheTheorySays) {
  for_sizes(ScheduleKind::gpipe, 1, [](ScheduleSpec const& spec) {
    EXPECT_EQ(memory(spec), std::vector<int>(spec.stages, spec.micro_batches));
  });
  for_sizes(ScheduleKind::one_f_one_b, 1, [](ScheduleSpec const& spec) {
    std::vector<int> expected;
    for (int s = 0; s < spec.stages; ++s) expected.push_back(std::min(spec.micro_batches, spec.stages - s));
    EXPECT_EQ(memory(spec), expected);
  });
  for_sizes(ScheduleKind::zero_bubble, 1, [](ScheduleSpec const& spec) {
    EXPECT_EQ(memory(spec), std::vector<int>(spec.stages, std::min(spec.micro_batches, spec.stages)));
  });
  for (int chunks = 2; chunks <= 4; ++chunks) {
    for_sizes(ScheduleKind::interleaved, chunks, [](ScheduleSpec const& spec) {
      int const P = spec.stages;
      int const V = spec.virtual_stages;
      int const M = spec.micro_batches;
      if (M < P) return;
      int const longest = (M + M / P - 1) / (M / P);  // P if P divides M
      std::vector<int> expected;
      for (int s = 0; s < P; ++s) expected.push_back(std::min(V * M, 2 * (P - 1 - s) + (V - 1) * longest + 1));
      EXPECT_EQ(memory(spec), expected);
    });
  }
  for_sizes(ScheduleKind::dualpipe_v, 2, [](ScheduleSpec const& spec) {
    if (spec.micro_batches > 2 * spec.stages || (spec.stages > 1 && spec.micro_batches == 2 * spec.stages)) {
      EXPECT_EQ(memory(spec), std::vector<int>(spec.stages, 2 * spec.stages + 1));
    }
    for (int held : memory(spec)) EXPECT_LE(held, std::min(2 * spec.stages + 1, 2 * spec.micro_batches));
  });
}

TEST(Simulate, GivesTheTimesOfAnExampleDoneByHand) {
  ScheduleSpec const spec{ScheduleKind::one_f_one_b, 2, 1, 2};
  std::vector<ChunkCost> const costs{{2, 2, 1, 0.5}, {3, 3, 1, 0.25}};
  auto const time = simulate(spec, costs);
  struct Row {
    int stage;
    Action action;
    int micro_batch;
    double start, end;
  };
  std::vector<Row> const expected{
      {0, Action::forward, 0, 0, 2},
      {0, Action::send_activation, 0, 2, 2},
      {0, Action::forward, 1, 2, 4},
      {0, Action::send_activation, 1, 4, 4},
      {0, Action::receive_gradient, 0, 4, 9.75},
      {0, Action::backward, 0, 9.75, 12.75},
      {0, Action::receive_gradient, 1, 12.75, 16.75},
      {0, Action::backward, 1, 16.75, 19.75},
      {1, Action::receive_activation, 0, 0, 2.5},
      {1, Action::forward, 0, 2.5, 5.5},
      {1, Action::backward, 0, 5.5, 9.5},
      {1, Action::send_gradient, 0, 9.5, 9.5},
      {1, Action::receive_activation, 1, 9.5, 9.5},
      {1, Action::forward, 1, 9.5, 12.5},
      {1, Action::backward, 1, 12.5, 16.5},
      {1, Action::send_gradient, 1, 16.5, 16.5},
  };
  ASSERT_EQ(time.items.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(time.items[i].stage, expected[i].stage) << i;
    EXPECT_EQ(time.items[i].item, (ScheduleItem{expected[i].action, expected[i].stage, expected[i].micro_batch})) << i;
    EXPECT_EQ(time.items[i].start_s, expected[i].start) << i;
    EXPECT_EQ(time.items[i].end_s, expected[i].end) << i;
  }
  EXPECT_EQ(time.makespan_s, 19.75);
  EXPECT_EQ(time.busy_s, (std::vector<double>{10, 14}));
  EXPECT_DOUBLE_EQ(time.bubble_fraction, 1 - 24 / 39.5);
  EXPECT_EQ(time.most_alive, (std::vector<int>{2, 1}));
}

/// Chunks of any cost: nobody computes two things at once or before its input is there.
TEST(Simulate, KeepsTheOrderOfThingsForAnyCosts) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> some(0.1, 3);
  for (ScheduleSpec const& spec :
       {ScheduleSpec{ScheduleKind::gpipe, 3, 1, 5}, ScheduleSpec{ScheduleKind::one_f_one_b, 4, 1, 9},
        ScheduleSpec{ScheduleKind::interleaved, 3, 3, 7}, ScheduleSpec{ScheduleKind::zero_bubble, 4, 1, 6},
        ScheduleSpec{ScheduleKind::dualpipe_v, 3, 2, 8}}) {
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<ChunkCost> costs;
      for (int c = 0; c < spec.num_chunks(); ++c)
        costs.push_back({some(random), some(random), some(random), some(random)});
      auto const time = simulate(spec, costs);
      int stage = -1;
      double clock = 0;
      std::vector<double> forward_end(spec.num_chunks() * spec.micro_batches);
      for (auto const& [on, item, start, end] : time.items) {
        if (on != stage) clock = 0;
        stage = on;
        EXPECT_GE(start, clock);
        EXPECT_GE(end, start);
        clock = end;
        if (item.action == Action::forward) forward_end[item.chunk * spec.micro_batches + item.micro_batch] = end;
      }
      for (auto const& [on, item, start, end] : time.items) {
        if (item.action != Action::forward || item.chunk == 0) continue;
        EXPECT_GE(start, forward_end[(item.chunk - 1) * spec.micro_batches + item.micro_batch]);
      }
      EXPECT_GE(time.makespan_s, *std::max_element(time.busy_s.begin(), time.busy_s.end()));
      EXPECT_GT(time.bubble_fraction, 0);
      EXPECT_LT(time.bubble_fraction, 1);
    }
  }
}

TEST(Simulate, NamesTheItemsThatWait) {
  ScheduleSpec const spec{ScheduleKind::one_f_one_b, 2, 1, 1};
  auto schedules = make_schedules(spec);
  std::swap(schedules[1][1], schedules[1][2]);
  try {
    simulate(spec, equal_costs(spec, {1, 1, 1}), schedules);
    FAIL();
  } catch (std::logic_error const& error) {
    EXPECT_STREQ(error.what(),
                 "the 1f1b schedule cannot go on: stage 0 at receive_gradient of micro-batch 0 in chunk 0; stage 1 at "
                 "backward of micro-batch 0 in chunk 1");
  }
}

TEST(Simulate, WantsACostForEachChunkAndAScheduleForEachStage) {
  ScheduleSpec const spec{ScheduleKind::one_f_one_b, 2, 1, 1};
  EXPECT_THROW(simulate(spec, std::vector<ChunkCost>(1)), std::logic_error);
  EXPECT_THROW(simulate(spec, std::vector<ChunkCost>(2), {}), std::logic_error);
}

TEST(Simulate, OfNoWorkHasNoBubble) {
  ScheduleSpec const spec{ScheduleKind::one_f_one_b, 2, 1, 1};
  EXPECT_EQ(simulate(spec, std::vector<ChunkCost>(2)).bubble_fraction, 0);
}

}  // namespace
}  // namespace isotrain::test
