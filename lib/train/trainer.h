#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/comm/communicator.h"
#include "lib/comm/lane_sum.h"
#include "lib/comm/tree_sum.h"
#include "lib/data/batch_reader.h"
#include "lib/io/checkpoint.h"
#include "lib/model/model.h"
#include "lib/optim/optimizer.h"
#include "lib/train/memory.h"
#include "lib/train/train_plan.h"

namespace isotrain {

/// What one training step did. The same on all ranks.
struct StepOutcome {
  std::int64_t step = 0;         // the first is 1
  std::int64_t tokens = 0;       // consumed so far, this step included
  std::int64_t step_tokens = 0;  // of this step
  double loss = 0;               // mean per target token, nats
  double balance_loss = 0;       // mean per sequence, summed over layers
  double gradient_norm = 0;
  double learning_rate = 0;
  double max_violation = 0;       // of expert loads, mean over MoE layers; 0 for dense models
  std::uint64_t fingerprint = 0;  // of the weights after the step
};

/// The training of a model by the ranks of one data-parallel group: the state of a run, and its step. Each rank
/// computes the gradients of its lanes and updates its part of the weights (ZeRO-1, arXiv:1910.02054). T is the model's
/// precision, float or bfloat16. All functions are collective.
template <class T>
class Trainer {
 public:
  /// Weights are those of a new run. `plan` and `comm` outlive the trainer. Throws AgreedError if memory runs out or
  /// the data do not fit the lanes.
  Trainer(TrainPlan const& plan, Cpu at, Communicator const& comm);

  /// Goes on where a checkpoint was written. Throws AgreedError if it cannot be read or is damaged.
  void restore(io::CheckpointReader const& checkpoint);

  /// Throws AgreedError naming step, layer and tensor when a NaN or infinity appears; the state is then that before the
  /// step.
  StepOutcome step();

  /// Mean loss per token over the validation split, or its first eval.windows windows.
  double validate();

  /// Writes a checkpoint of the state after the last step; `header` brings what the trainer does not know.
  std::filesystem::path save(std::filesystem::path const& folder, io::CheckpointHeader header);

  std::int64_t steps_done() const { return step_; }
  std::int64_t tokens_done() const { return tokens_; }
  std::uint64_t fingerprint() const { return fingerprint_; }
  ParameterTable const& table() const { return table_; }
  /// Memory that was planned and allocated on this rank.
  std::size_t planned_bytes() const { return memory_.plan().total_bytes(); }

 private:
  struct Losses {
    double token = 0;
    double balance = 0;
  };

  void read_batch(std::int64_t samples);
  void accumulate_lane(std::int64_t lane, std::int64_t samples, LossScale scale);
  void sum_over_lanes();
  void publish_weights();
  double balance_experts();
  Losses gather_losses(std::int64_t samples) const;
  std::uint64_t hash_weights() const;
  Batch batch(std::int64_t first, std::int64_t count) const;
  [[noreturn]] void report_non_finite(std::string const& what, std::int64_t samples);
  void start_reading();

  TrainPlan const& plan_;
  Cpu at_;
  Communicator const& comm_;
  ParameterTable table_;
  std::vector<IndexRange> lanes_of_ranks_;
  IndexRange lanes_;  // own
  FlatRange range_;   // own
  TrainMemory<T> memory_;
  Model<Cpu, T> model_;
  LaneSum lane_sum_;
  TreeReduction reduction_;
  AdamW optimizer_;
  std::optional<data::BatchReader> reader_;
  std::optional<data::WindowTable> validation_;
  std::vector<double> sample_loss_;     // (own lanes, samples)
  std::vector<double> sample_balance_;  // (own lanes, samples)

  std::int64_t step_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t lane_position_ = 0;  // samples that each lane has consumed
  std::uint64_t fingerprint_ = 0;
};

}  // namespace isotrain
