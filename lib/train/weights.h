#pragma once

#include <cstdint>
#include <span>

#include "lib/train/memory.h"
#include "lib/train/rank_plan.h"

/// The weights of all chunks of a run, whoever holds them. Everything is collective over all ranks.
namespace isotrain {

/// Where a tied embedding's two sides are: on one chunk, or on the first and the last of the pipeline.
struct TiedChunks {
  int input_stage = 0, output_stage = 0;
  int input = -1, output = -1;  // numbers of the chunks among this rank's; -1: on another rank

  explicit TiedChunks(RankPlan const& rank);
};

/// Rounds the master weights that each rank updates to what the model computes with, and brings all ranks those that
/// they need.
template <class T>
void publish_weights(RankPlan const& rank, TrainMemory<T> const& memory, Cpu const& at);

/// Adds the reduced gradient of a tied embedding's input side, `input_side` on ranks with the first chunk (share of the
/// rank), to that of its output side, `output_side` on ranks with the last chunk. `input_side` is overwritten.
void meet_tied_gradients(RankPlan const& rank, Cpu const& at, std::span<float> input_side,
                         std::span<float> output_side);

/// The fingerprint: a hash of all master weights (kernels/reduce.h), which does not depend on who has them.
std::uint64_t hash_weights(RankPlan const& rank, Cpu const& at, std::span<float const> own);

}  // namespace isotrain
