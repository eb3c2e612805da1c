#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/model/model.h"
#include "lib/train/gradient_sum.h"
#include "lib/train/memory.h"
#include "lib/train/pipeline.h"
#include "lib/train/rank_plan.h"

namespace isotrain {

/// The model as this rank has it: the chunks of its stage, and the passes of micro-batches through the whole pipeline.
/// T is the model's precision. All passes are collective over all ranks.
template <class T>
class ModelPipeline {
 public:
  /// Both outlive it.
  ModelPipeline(RankPlan const& rank, TrainMemory<T> const& memory, Cpu at);

  /// What a step goes through: the samples of this rank's lanes, one lane after the other.
  struct Samples {
    std::span<std::int32_t const> tokens, targets;  // (own lanes, lane_samples, T)
    std::int64_t lane_samples = 0;
    std::span<double> loss;  // (own lanes, lane_samples) out, on the stage with the head: sums of token losses
    Matrix<double> balance;  // (MoE layers, own lanes * lane_samples) out, rows of the stage's layers
  };
  /// Forward and backward passes of all samples, and the sums of gradients over all lanes: this rank's part to
  /// TrainLayout::gradient and TrainLayout::tied. A chunk's sums start when its last backward pass has ended, and go on
  /// beside those of others.
  void train(Samples const& samples, LossScale scale);

  /// Losses of micro-batches of at most micro_batch samples, as many on every rank; the losses are there on the stage
  /// with the head.
  struct Evaluation {
    int passes = 0;
    std::function<Batch(int pass)> batch;
    std::function<std::span<double>(int pass)> loss;
  };
  void evaluate(Evaluation const& evaluation);

  /// The forward pass of every sample again, one at a time: what is not finite first, by sample.
  struct Found {
    std::int64_t sample;  // of this rank's
    int chunk;            // its number in the pipeline
    std::string what;
  };
  std::optional<Found> find_non_finite(Samples const& samples);

  std::size_t num_chunks() const { return models_.size(); }
  Model<Cpu, T>& model(std::size_t chunk) { return *models_[chunk]; }

  /// Called after a forward pass of a layer with what it wrote, and in the backward pass with the gradient of that;
  /// `first_sample`: of this rank's, the first of the micro-batch. For the ledger.
  using Observer = std::function<void(int layer, std::int64_t first_sample, Matrix<T const> rows)>;
  void observe(Observer forward, Observer backward);

 private:
  struct MicroBatch {
    std::int64_t turn = 0;
    std::int64_t first = 0;  // sample of this rank's
    Batch batch;             // without samples where this rank has no lane in the turn
  };
  MicroBatch micro_batch(Samples const& samples, int number) const;
  std::int64_t passes_of_turn(Samples const& samples) const;
  Batch batch_of(Samples const& samples, std::int64_t first, int count) const;
  void run_forward(int passes, std::function<int(int pass)> const& samples,
                   std::function<void(std::size_t chunk, int pass)> const& forward);
  PipelineChunk<T> chunk_buffers(std::size_t chunk, std::function<int(int)> samples) const;
  int slot(std::size_t chunk, int micro_batch) const;
  void forward(std::size_t chunk, Samples const& samples, int micro_batch);
  void backward_input(std::size_t chunk, Samples const& samples, int micro_batch, LossScale scale);
  void backward_weight(std::size_t chunk, Samples const& samples, int micro_batch);
  void start_sums(std::size_t chunk);
  void finish_sums();

  RankPlan const& rank_;
  TrainMemory<T> const& memory_;
  Cpu at_;
  std::vector<std::unique_ptr<Model<Cpu, T>>> models_;
  std::vector<GradientSum> gradients_;
  TreeReductionQueue sums_;
  std::vector<std::deque<int>> pending_;  // micro-batches whose weight gradients are due, of each chunk
  Observer forward_observer_;
  std::int64_t observed_sample_ = 0;
};

}  // namespace isotrain
