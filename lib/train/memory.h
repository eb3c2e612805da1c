#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/bfloat16.h"
#include "lib/comm/tree_sum.h"
#include "lib/device/buffers.h"
#include "lib/model/model.h"
#include "lib/optim/optimizer.h"
#include "lib/tensor/parameters.h"
#include "lib/train/train_plan.h"

namespace isotrain {

/// The names of all memory that a rank trains with. T is the model's precision, float or bfloat16.
template <class T>
struct TrainLayout {
  BufferId<T> matrices;        // what the model computes with: the matrices' segment ...
  BufferId<float> fp32;        // ... and the fp32 segment
  OptimizerBuffers optimizer;  // own range
  std::vector<BufferId<float>> lane_gradients;
  BufferId<float> gradient;  // own range, summed over all lanes
  BufferId<float> reduction;
  BufferLayout model;
  BufferId<std::int32_t> tokens;   // (own lanes, samples, T)
  BufferId<std::int32_t> targets;  // (own lanes, samples, T)

  static TrainLayout plan(TrainPlan const& plan, ParameterTable const& table, Communicator const& comm,
                          BufferPlan& buffers);
};

/// That memory, allocated.
template <class T>
class TrainMemory {
 public:
  /// Throws Error if it runs out.
  TrainMemory(TrainPlan const& plan, ParameterTable const& table, Communicator const& comm);

  BufferPlan const& plan() const { return plan_; }
  TrainLayout<T> const& layout() const { return layout_; }
  Buffers const& buffers() const { return buffers_; }
  template <class U>
  std::span<U> operator[](BufferId<U> id) const {
    return buffers_[id];
  }

  Weights<T> weights(ParameterTable const& table) const;
  OptimizerState optimizer_state() const { return layout_.optimizer.state(buffers_); }
  std::vector<std::span<float>> lane_gradients() const;

 private:
  BufferPlan plan_;
  TrainLayout<T> layout_;
  Buffers buffers_;
};

/// Who owns which part of the flat space: TreeReduction's offsets.
std::vector<std::int64_t> flat_offsets(ParameterTable const& table, int ranks);

}  // namespace isotrain
