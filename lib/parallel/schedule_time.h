#pragma once

#include <span>
#include <vector>

#include "lib/parallel/schedule.h"

namespace isotrain {

/// Seconds, or any other unit, per micro-batch. A `backward` takes the sum of its two halves.
struct ChunkCost {
  double forward_s = 0;
  double backward_input_s = 0;
  double backward_weight_s = 0;
  double transfer_s = 0;  // from a send of this chunk until the receiver has the message; the sender is free meanwhile
};

struct TimedItem {
  int stage;
  ScheduleItem item;
  double start_s;  // of a receive: since when the stage waits
  double end_s;
};

struct ScheduleTime {
  double makespan_s = 0;
  std::vector<double> busy_s;    // (P) time of forwards and backwards
  double bubble_fraction = 0;    // share of all stages' time until the makespan that nobody computes in
  std::vector<int> most_alive;   // (P) most (chunk, micro-batch) pairs between their forward and their weight gradient
  std::vector<TimedItem> items;  // stage by stage, each in its order
};

/// When each item is executed if every chunk takes the given times: what the interpreter would do, without doing it.
///
///   schedules  (P) items of each stage, by default those of make_schedules
///   costs      (PV) by chunk
///
/// Throws std::logic_error, naming the item at which each stage waits, if no stage can go on.
ScheduleTime simulate(ScheduleSpec const& spec, std::span<ChunkCost const> costs,
                      std::vector<std::vector<ScheduleItem>> const& schedules);
ScheduleTime simulate(ScheduleSpec const& spec, std::span<ChunkCost const> costs);

}  // namespace isotrain
