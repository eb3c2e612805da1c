#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/train/ledger.h"
#include "lib/train/model_pipeline.h"
#include "lib/train/rank_plan.h"

namespace isotrain {

/// Names of the ledger's layers and parameters.
LedgerHeader ledger_header(RankPlan const& rank);

/// Hashes of `own` (this rank's elements of the flat space) by parameter. Collective over all ranks.
std::vector<std::uint64_t> hash_by_parameter(RankPlan const& rank, Cpu const& at, std::span<float const> own);

/// Parameters whose gradient is zero in every element, but for routed experts, which may get no token. Collective.
std::vector<std::string> find_unused(RankPlan const& rank, std::span<float const> gradient);

/// Hashes of the activations that the layers hand on in a step, and of their gradients, keyed by (sample, position,
/// element), so that it does not matter who has which rows.
class StepHashes {
 public:
  explicit StepHashes(RankPlan const& rank, Cpu at);

  /// From now on the passes of `pipeline` are noted here. To be called once.
  template <class T>
  void watch(ModelPipeline<T>& pipeline);

  void begin(std::int64_t lane_samples);
  /// Collective. The step's record, without its weights' part.
  LedgerStep finish(std::span<double const> sample_loss);

 private:
  template <class T>
  std::uint64_t hash_rows(std::int64_t first_sample, Matrix<T const> rows) const;

  RankPlan const& rank_;
  Cpu at_;
  TokenSplit split_;
  std::int64_t first_sample_ = 0;  // of this rank, in the step
  std::vector<std::uint64_t> activation_, gradient_;
};

}  // namespace isotrain
