#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/bfloat16.h"
#include "lib/device/buffers.h"
#include "lib/model/model.h"
#include "lib/optim/optimizer.h"
#include "lib/train/gradient_sum.h"
#include "lib/train/rank_plan.h"

namespace isotrain {

/// The names of all memory that a rank trains with. T is the model's precision, float or bfloat16.
template <class T>
struct TrainLayout {
  struct Chunk {
    BufferId<T> matrices;  // what the model computes with: the matrices' part of the shard ...
    BufferId<float> fp32;  // ... and the fp32 part
    GradientBuffers gradients;
    BufferLayout model;
  };
  std::vector<Chunk> chunks;
  OptimizerBuffers optimizer;      // own runs
  BufferId<float> gradient;        // own runs, summed over all lanes
  BufferId<float> tied;            // of a tied embedding's input side
  BufferId<float> tensor_pieces;   // on their way to be added up: over token slices, at the end of a lane ...
  BufferId<float> lane_pieces;     // ... and over lanes, beside the backward pass
  BufferId<std::int32_t> tokens;   // (own lanes, samples, T), where the first or the last layer is
  BufferId<std::int32_t> targets;  // (own lanes, samples, T)

  static TrainLayout plan(RankPlan const& rank, BufferPlan& buffers);
};

/// That memory, allocated.
template <class T>
class TrainMemory {
 public:
  /// Collective. Throws AgreedError if it runs out.
  explicit TrainMemory(RankPlan const& rank);

  BufferPlan const& plan() const { return plan_; }
  TrainLayout<T> const& layout() const { return layout_; }
  Buffers const& buffers() const { return buffers_; }
  template <class U>
  std::span<U> operator[](BufferId<U> id) const {
    return buffers_[id];
  }
  Weights<T> weights(std::size_t chunk) const;
  OptimizerState optimizer_state() const { return layout_.optimizer.state(buffers_); }

 private:
  BufferPlan plan_;
  TrainLayout<T> layout_;
  Buffers buffers_;
};

}  // namespace isotrain
