#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/data/batch_reader.h"
#include "lib/data/window_reader.h"
#include "lib/io/checkpoint.h"
#include "lib/optim/optimizer.h"
#include "lib/train/memory.h"
#include "lib/train/model_pipeline.h"
#include "lib/train/rank_plan.h"
#include "lib/train/replicas.h"
#include "lib/train/step_hashes.h"

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
  std::vector<double> max_violation;  // of expert loads, of each MoE layer (arXiv:2408.15664, section 4.1)
  std::uint64_t fingerprint = 0;      // of the weights after the step
  std::optional<LedgerStep> ledger;   // with repro.ledger
  std::vector<std::string> unused;    // in the first step of the trainer: parameters without any gradient
};

/// The training of a model by all ranks of a mesh: the state of a run, and its step. Each rank computes its part of the
/// gradients of its lanes and updates its part of the weights (ZeRO-1, arXiv:1910.02054). T is the model's precision,
/// float or bfloat16. All functions are collective.
template <class T>
class Trainer {
 public:
  /// Weights are those of a new run. `rank` outlives the trainer. Throws AgreedError if memory runs out or the data do
  /// not fit the lanes.
  Trainer(RankPlan const& rank, Cpu at);

  /// Goes on where a checkpoint was written. Throws AgreedError if it cannot be read or is damaged.
  void restore(io::CheckpointReader const& checkpoint);

  /// Throws AgreedError naming step, layer and tensor when a NaN or infinity appears; the state is then that before the
  /// step.
  StepOutcome step();

  /// See lib/train/replicas.h.
  void check_replicas(std::string const& host) const { isotrain::check_replicas(rank_, memory_, at_, host); }

  /// Mean loss per token over the validation split, or its first eval.windows windows.
  double validate();

  /// Writes a checkpoint of the state after the last step; `header` brings what the trainer does not know.
  std::filesystem::path save(std::filesystem::path const& folder, io::CheckpointHeader header);

  std::int64_t steps_done() const { return step_; }
  std::int64_t tokens_done() const { return tokens_; }
  std::uint64_t fingerprint() const { return fingerprint_; }
  /// Memory that was planned and allocated on this rank.
  std::size_t planned_bytes() const { return memory_.plan().total_bytes(); }

 private:
  struct Losses {
    double token = 0;
    double balance = 0;
  };

  bool reads() const;
  void read_batch(std::int64_t samples);
  std::optional<LedgerStep> record(std::int64_t samples);
  typename ModelPipeline<T>::Samples samples_of_step(std::int64_t samples);
  void meet_tied_gradients();
  std::vector<double> balance_experts();
  Losses gather_losses(std::int64_t samples);
  [[noreturn]] void report_non_finite(std::string const& what, std::int64_t samples);
  void start_reading();
  void set_router_biases(std::span<float const> biases);

  RankPlan const& rank_;
  TrainPlan const& plan_;
  Cpu at_;
  Communicator const& world_;
  TrainMemory<T> memory_;
  ModelPipeline<T> pipeline_;
  AdamW optimizer_;
  std::optional<data::BatchReader> reader_;
  std::optional<data::WindowTable> validation_;
  std::vector<double> sample_loss_;     // (own lanes, samples)
  std::vector<double> sample_balance_;  // (MoE layers, own lanes, samples)
  std::vector<float> router_biases_;    // (MoE layers, E)
  std::optional<StepHashes> hashes_;    // with repro.ledger
  bool first_step_ = true;

  std::int64_t step_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t lane_position_ = 0;  // samples that each lane has consumed
  std::uint64_t fingerprint_ = 0;
};

}  // namespace isotrain
