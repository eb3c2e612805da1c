#include "lib/parallel/schedule.h"

#include <gtest/gtest.h>

#include <functional>

#include "lib/base/error.h"
#include "lib/parallel/schedule_slots.h"

namespace isotrain::test {
namespace {

/// Compute items as "F2.1": forward of micro-batch 1 in chunk 2; B backward, I its input half, W its weight half.
std::string compute_text(std::vector<ScheduleItem> const& items) {
  std::string text;
  for (ScheduleItem const& item : items) {
    char const* letter = item.action == Action::forward           ? "F"
                         : item.action == Action::backward        ? "B"
                         : item.action == Action::backward_input  ? "I"
                         : item.action == Action::backward_weight ? "W"
                                                                  : nullptr;
    if (!letter) continue;
    text += (text.empty() ? "" : " ") + std::string(letter) + std::to_string(item.chunk) + "." +
            std::to_string(item.micro_batch);
  }
  return text;
}

std::string message_of_error(std::function<void()> const& act) {
  try {
    act();
  } catch (UsageError const& error) {
    return error.what();
  }
  return "no UsageError";
}

TEST(ScheduleName, IsReadAsItIsWritten) {
  for (ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                            ScheduleKind::zero_bubble, ScheduleKind::dualpipe_v}) {
    EXPECT_EQ(parse_schedule(name_of(kind)), kind);
  }
  EXPECT_EQ(parse_schedule("zb-h1"), ScheduleKind::zero_bubble);
}

TEST(ScheduleName, AnUnknownOneIsAUsageErrorThatNamesTheNearest) {
  EXPECT_EQ(message_of_error([] { parse_schedule("dualpipe"); }),
            "no pipeline schedule is called 'dualpipe' (there are gpipe, 1f1b, interleaved, zb-h1, dualpipev); did you "
            "mean dualpipev?");
  EXPECT_EQ(message_of_error([] { parse_schedule("sideways"); }),
            "no pipeline schedule is called 'sideways' (there are gpipe, 1f1b, interleaved, zb-h1, dualpipev)");
}

TEST(CheckSchedule, WhatAKindCannotTakeIsAUsageErrorWithNumbersThatWouldDo) {
  auto const error_of = [](ScheduleSpec const& spec) { return message_of_error([&] { check_schedule(spec); }); };
  EXPECT_EQ(error_of({ScheduleKind::gpipe, 0, 1, 4}),
            "a pipeline of 0 stages is impossible (the layers must lie somewhere); use 1 or more");
  EXPECT_EQ(error_of({ScheduleKind::gpipe, 2, 1, 0}),
            "a pipeline cannot run 0 micro-batches (a step needs at least one); raise the global batch or lower the "
            "micro-batch");
  EXPECT_EQ(error_of({ScheduleKind::interleaved, 2, 0, 4}),
            "schedule interleaved cannot give a stage 0 chunks (each stage needs layers); use 1 or more; 2 halves the "
            "bubble of 1f1b");
  EXPECT_EQ(error_of({ScheduleKind::dualpipe_v, 2, 1, 4}),
            "schedule dualpipev cannot give a stage 1 chunks (each stage has one chunk of each arm of the V); use 2 "
            "with it, or schedule interleaved, which takes any number");
  for (ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::zero_bubble}) {
    EXPECT_EQ(error_of({kind, 2, 2, 4}),
              "schedule " + name_of(kind) +
                  " cannot give a stage 2 chunks (each stage has one run of layers); use 1 with it, or schedule "
                  "interleaved, which takes any number");
    EXPECT_NO_THROW(check_schedule({kind, 8, 1, 1}));
  }
  EXPECT_NO_THROW(check_schedule({ScheduleKind::interleaved, 8, 3, 1}));
  EXPECT_NO_THROW(check_schedule({ScheduleKind::dualpipe_v, 8, 2, 1}));
}

TEST(StageOfChunk, InterleavedGoesRoundAndTheVComesBack) {
  ScheduleSpec const round{ScheduleKind::interleaved, 3, 2, 4};
  EXPECT_EQ(chunks_of_stage(round, 0), (std::vector<int>{0, 3}));
  EXPECT_EQ(chunks_of_stage(round, 2), (std::vector<int>{2, 5}));
  ScheduleSpec const v{ScheduleKind::dualpipe_v, 3, 2, 4};
  EXPECT_EQ(chunks_of_stage(v, 0), (std::vector<int>{0, 5}));
  EXPECT_EQ(chunks_of_stage(v, 2), (std::vector<int>{2, 3}));
  EXPECT_EQ(chunks_of_stage({ScheduleKind::gpipe, 3, 1, 4}, 1), (std::vector<int>{1}));
  EXPECT_THROW(stage_of_chunk(v, 6), std::logic_error);
  EXPECT_THROW(chunks_of_stage(v, 3), std::logic_error);
  EXPECT_THROW(make_schedule(v, -1), std::logic_error);
}

TEST(MakeSchedule, LooksAsInThePapers) {
  auto const text = [](ScheduleKind kind, int stages, int chunks, int micro_batches, int stage) {
    return compute_text(make_schedule({kind, stages, chunks, micro_batches}, stage));
  };
  EXPECT_EQ(text(ScheduleKind::gpipe, 2, 1, 3, 0), "F0.0 F0.1 F0.2 B0.0 B0.1 B0.2");
  EXPECT_EQ(text(ScheduleKind::one_f_one_b, 3, 1, 4, 0), "F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3");
  EXPECT_EQ(text(ScheduleKind::one_f_one_b, 3, 1, 4, 2), "F2.0 B2.0 F2.1 B2.1 F2.2 B2.2 F2.3 B2.3");
  EXPECT_EQ(text(ScheduleKind::interleaved, 2, 2, 2, 0), "F0.0 F0.1 F2.0 F2.1 B2.0 B2.1 B0.0 B0.1");
  EXPECT_EQ(text(ScheduleKind::interleaved, 2, 2, 2, 1), "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 B1.0 B1.1");
  EXPECT_EQ(text(ScheduleKind::interleaved, 2, 2, 3, 1), "F1.0 F1.1 F1.2 F3.0 B3.0 F3.1 B3.1 F3.2 B3.2 B1.0 B1.1 B1.2");
  EXPECT_EQ(text(ScheduleKind::zero_bubble, 2, 1, 3, 0), "F0.0 F0.1 I0.0 W0.0 F0.2 I0.1 W0.1 I0.2 W0.2");
  EXPECT_EQ(text(ScheduleKind::zero_bubble, 2, 1, 3, 1), "F1.0 I1.0 F1.1 I1.1 W1.0 F1.2 I1.2 W1.1 W1.2");
  EXPECT_EQ(text(ScheduleKind::dualpipe_v, 2, 2, 4, 0),
            "F0.0 F0.1 F0.2 F3.0 I3.0 W3.0 F3.1 F0.3 B3.1 F3.2 B0.0 B3.2 F3.3 B0.1 B3.3 I0.2 W0.2 I0.3 W0.3");
}

TEST(MakeSchedule, MessagesStandBesideTheWork) {
  EXPECT_EQ(make_schedule({ScheduleKind::one_f_one_b, 3, 1, 1}, 1),
            (std::vector<ScheduleItem>{{Action::receive_activation, 1, 0},
                                       {Action::forward, 1, 0},
                                       {Action::send_activation, 1, 0},
                                       {Action::receive_gradient, 1, 0},
                                       {Action::backward, 1, 0},
                                       {Action::send_gradient, 1, 0}}));
}

TEST(MakeSchedule, NeighboursOnOneStageNeedNoMessages) {
  for (ScheduleSpec const& spec :
       {ScheduleSpec{ScheduleKind::interleaved, 1, 3, 2}, ScheduleSpec{ScheduleKind::dualpipe_v, 1, 2, 2}}) {
    for (ScheduleItem const& item : make_schedule(spec, 0)) {
      EXPECT_FALSE(is_send(item.action) || is_receive(item.action)) << to_string(item);
    }
  }
  // The turn of the V, from chunk 1 to chunk 2, lies on the last stage.
  for (ScheduleItem const& item : make_schedule({ScheduleKind::dualpipe_v, 2, 2, 4}, 1)) {
    EXPECT_FALSE(item.chunk == 1 &&
                 (item.action == Action::send_activation || item.action == Action::receive_gradient));
    EXPECT_FALSE(item.chunk == 2 &&
                 (item.action == Action::receive_activation || item.action == Action::send_gradient));
  }
}

TEST(Message, IsTheSameFromBothSides) {
  ScheduleSpec const spec{ScheduleKind::interleaved, 3, 2, 4};
  ScheduleItem const up{Action::send_activation, 2, 1};
  EXPECT_EQ(message_of(up), (Message{false, 3, 1}));
  EXPECT_EQ(message_of({Action::receive_activation, 3, 1}), message_of(up));
  EXPECT_EQ(peer_of(spec, up), 0);
  EXPECT_EQ(peer_of(spec, {Action::receive_activation, 3, 1}), 2);
  ScheduleItem const down{Action::send_gradient, 3, 1};
  EXPECT_EQ(message_of(down), (Message{true, 2, 1}));
  EXPECT_EQ(message_of({Action::receive_gradient, 2, 1}), message_of(down));
  EXPECT_EQ(peer_of(spec, down), 2);
  EXPECT_EQ(peer_of(spec, {Action::receive_gradient, 2, 1}), 0);
  EXPECT_THROW(message_of({Action::forward, 0, 0}), std::logic_error);
}

TEST(NumSlots, CountsFromTheInputUntilTheWeightGradient) {
  auto const items = make_schedule({ScheduleKind::one_f_one_b, 4, 1, 9}, 1);
  EXPECT_EQ(num_slots(items, 1), 3);
  EXPECT_EQ(num_gradient_slots(items, 1), 1);
  // On the last of four stages the weight gradients of zb-h1 come three micro-batches later.
  auto const late = make_schedule({ScheduleKind::zero_bubble, 4, 1, 9}, 3);
  EXPECT_EQ(num_slots(late, 3), 4);
  EXPECT_EQ(num_gradient_slots(late, 3), 4);
  // Where the V turns, the input of chunk 1 is there as soon as chunk 0 has run.
  std::vector<ScheduleItem> const turn{{Action::forward, 0, 0},
                                       {Action::forward, 0, 1},
                                       {Action::forward, 1, 0},
                                       {Action::backward, 1, 0},
                                       {Action::forward, 1, 1}};
  EXPECT_EQ(num_slots(turn, 1), 2);
  EXPECT_EQ(num_gradient_slots(turn, 0), 1);
  EXPECT_THROW(num_slots(turn, 2), std::logic_error);
  EXPECT_THROW(num_gradient_slots(turn, 2), std::logic_error);
}

}  // namespace
}  // namespace isotrain::test
