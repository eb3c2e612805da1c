#include <gtest/gtest.h>

#include "lib/base/error.h"
#include "lib/parallel/schedule.h"
#include "tests/lib/parallel/schedule_faults.h"

namespace isotrain::test {
namespace {

/// Every kind with everything it takes: stages 1 to 9 and 16, up to 4 chunks a stage, micro-batches 1 to 40 and 128.
std::vector<ScheduleSpec> all_specs() {
  std::vector<ScheduleSpec> specs;
  for (ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                            ScheduleKind::zero_bubble, ScheduleKind::dualpipe_v}) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      for (int stages : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16}) {
        for (int micro_batches = 1; micro_batches <= 41; ++micro_batches) {
          ScheduleSpec const spec{kind, stages, chunks, micro_batches == 41 ? 128 : micro_batches};
          try {
            check_schedule(spec);
          } catch (UsageError const&) {
            continue;
          }
          specs.push_back(spec);
        }
      }
    }
  }
  return specs;
}

std::string to_string(ScheduleSpec const& spec) {
  return name_of(spec.kind) + " P=" + std::to_string(spec.stages) + " V=" + std::to_string(spec.virtual_stages) +
         " M=" + std::to_string(spec.micro_batches);
}

TEST(EverySchedule, HasNoFault) {
  auto const specs = all_specs();
  EXPECT_EQ(specs.size(), 8 * 10 * 41u);
  for (ScheduleSpec const& spec : specs) {
    EXPECT_EQ(fault_of(spec, make_schedules(spec)), "") << to_string(spec);
  }
}

/// num_messages_under_way is not too careful. (With a single round, one message less does for some numbers.)
TEST(EverySchedule, NeedsRoomForItsMessages) {
  for (ScheduleSpec const& spec : all_specs()) {
    if (spec.stages == 1 || spec.micro_batches < 2 * spec.stages) continue;
    EXPECT_NE(deadlock_fault(spec, make_schedules(spec), num_messages_under_way(spec) - 1), "") << to_string(spec);
  }
  EXPECT_EQ(num_messages_under_way({ScheduleKind::one_f_one_b, 4, 1, 11}), 1);
  EXPECT_EQ(num_messages_under_way({ScheduleKind::interleaved, 4, 2, 12}), 1);
  EXPECT_EQ(num_messages_under_way({ScheduleKind::interleaved, 4, 2, 11}), 3);  // rounds of 6 and 5
  EXPECT_EQ(num_messages_under_way({ScheduleKind::interleaved, 4, 2, 3}), 1);
}

TEST(Interleaved, OneStageHoldsOneMicroBatch) {
  for (int chunks = 1; chunks <= 4; ++chunks) {
    auto const items = make_schedule({ScheduleKind::interleaved, 1, chunks, 5}, 0);
    for (int chunk = 0; chunk < chunks; ++chunk) EXPECT_EQ(num_slots(items, chunk), 1) << chunk << " of " << chunks;
  }
  EXPECT_GT(num_slots(make_schedule({ScheduleKind::interleaved, 2, 2, 4}, 0), 0), 1);
}

/// A set of activations less, and something is overwritten: num_slots is not too careful.
TEST(EverySchedule, NeedsAllItsSlots) {
  for (ScheduleSpec const& spec : all_specs()) {
    for (int stage = 0; stage < spec.stages; ++stage) {
      auto const items = make_schedule(spec, stage);
      for (int chunk : chunks_of_stage(spec, stage)) {
        int const slots = num_slots(items, chunk);
        int const gradient_slots = num_gradient_slots(items, chunk);
        if (slots > 1) {
          EXPECT_NE(slot_fault(items, chunk, slots - 1, gradient_slots), "") << to_string(spec);
        }
        if (gradient_slots > 1) {
          EXPECT_NE(slot_fault(items, chunk, slots, gradient_slots - 1), "") << to_string(spec);
        }
      }
    }
  }
}

/// What is broken on purpose is found.
class BrokenSchedule : public testing::TestWithParam<ScheduleKind> {
 protected:
  BrokenSchedule() {
    spec_ = {GetParam(), 4, 1, 12};
    if (GetParam() == ScheduleKind::interleaved || GetParam() == ScheduleKind::dualpipe_v) spec_.virtual_stages = 2;
    schedules_ = make_schedules(spec_);
  }

  ScheduleSpec spec_;
  Schedules schedules_;
};

TEST_P(BrokenSchedule, ADroppedItemIsFound) {
  for (int stage = 0; stage < spec_.stages; ++stage) {
    for (std::size_t i = 0; i < schedules_[stage].size(); ++i) {
      Schedules broken = schedules_;
      broken[stage].erase(broken[stage].begin() + i);
      EXPECT_NE(fault_of(spec_, broken), "") << "without " << at(stage, schedules_[stage][i]);
    }
  }
}

TEST_P(BrokenSchedule, ARepeatedItemIsFound) {
  for (int stage = 0; stage < spec_.stages; ++stage) {
    for (std::size_t i = 0; i < schedules_[stage].size(); ++i) {
      Schedules broken = schedules_;
      broken[stage].push_back(schedules_[stage][i]);
      EXPECT_NE(fault_of(spec_, broken), "") << "twice " << at(stage, schedules_[stage][i]);
    }
  }
}

TEST_P(BrokenSchedule, MicroBatchesInAnotherOrderAreFound) {
  for (int stage = 0; stage < spec_.stages; ++stage) {
    auto const& items = schedules_[stage];
    for (std::size_t i = 0; i < items.size(); ++i) {
      for (std::size_t k = i + 1; k < items.size(); ++k) {
        if (items[i].action != items[k].action || items[i].chunk != items[k].chunk) continue;
        Schedules broken = schedules_;
        std::swap(broken[stage][i], broken[stage][k]);
        EXPECT_NE(fault_of(spec_, broken), "") << at(stage, items[i]) << " changed with " << at(stage, items[k]);
        break;
      }
    }
  }
}

TEST_P(BrokenSchedule, ABackwardBeforeItsForwardIsFound) {
  for (int stage = 0; stage < spec_.stages; ++stage) {
    Schedules broken = schedules_;
    auto& items = broken[stage];
    auto const backward =
        std::find_if(items.begin(), items.end(), [](auto const& item) { return makes_input_gradient(item.action); });
    std::rotate(items.begin(), backward, backward + 1);
    EXPECT_NE(fault_of(spec_, broken), "") << "stage " << stage;
  }
}

TEST_P(BrokenSchedule, StagesThatWaitForEachOtherAreFound) {
  // Stage 0 waits for its first gradient before it has begun anything.
  auto& items = schedules_[0];
  auto const receive = std::find_if(items.begin(), items.end(),
                                    [](auto const& item) { return item.action == Action::receive_gradient; });
  std::string const waiting = at(0, *receive);
  std::rotate(items.begin(), receive, receive + 1);
  EXPECT_EQ(work_fault(spec_, schedules_), "");
  EXPECT_EQ(deadlock_fault(spec_, schedules_, 1), "waits for ever: " + waiting);
}

TEST_P(BrokenSchedule, AMessageOvertakingAnotherIsFound) {
  auto& items = schedules_[1];
  std::vector<std::size_t> sends;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].action == Action::send_gradient) sends.push_back(i);
  }
  std::swap(items[sends.at(0)], items[sends.at(1)]);
  EXPECT_EQ(message_fault(spec_, schedules_), "sends and receives differ");
}

INSTANTIATE_TEST_SUITE_P(Kinds, BrokenSchedule,
                         testing::Values(ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                                         ScheduleKind::zero_bubble, ScheduleKind::dualpipe_v),
                         [](auto const& info) {
                           std::string name = name_of(info.param);
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace isotrain::test
