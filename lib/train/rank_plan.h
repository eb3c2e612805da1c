#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lib/comm/mesh.h"
#include "lib/model/options.h"
#include "lib/model/part.h"
#include "lib/parallel/schedule.h"
#include "lib/tensor/shard.h"
#include "lib/train/chunk_reductions.h"
#include "lib/train/domain.h"
#include "lib/train/train_plan.h"

namespace isotrain {

/// Consecutive layers of the model on this rank.
struct ChunkPlan {
  int number = 0;  // in the pipeline
  ModelPart part;
  ModelOptions options;
  Shard shard;
  std::vector<Domain> domains;
};

/// What of a run this rank does: its chunks, its lanes, and which blocks of the flat space it updates.
class RankPlan {
 public:
  /// `plan` and `mesh` outlive it.
  RankPlan(TrainPlan const& plan, Mesh const& mesh);
  RankPlan(RankPlan const&) = delete;
  RankPlan& operator=(RankPlan const&) = delete;

  TrainPlan const& train() const { return plan_; }
  Mesh const& mesh() const { return mesh_; }
  ParameterTable const& table() const { return table_; }
  LanePlan const& lanes() const { return lanes_; }
  std::vector<ChunkPlan> const& chunks() const { return chunks_; }
  /// The number of this rank's chunk with that number in the pipeline; -1 if another rank has it.
  int local_chunk(int number) const;
  int num_chunks() const { return static_cast<int>(plan_.chunks.size()); }

  /// The pipeline's schedule for a step with `lane_samples` samples of each lane.
  ScheduleSpec schedule(std::int64_t lane_samples) const;

  /// What this rank updates: runs of the flat space, ascending. Optimizer state and gradient are their elements, one
  /// run after the other.
  std::vector<FlatRange> const& own() const { return own_; }
  std::int64_t own_size() const { return own_size_; }
  /// This rank's share of a tied embedding, counted from where that begins, if the chunk has it.
  std::optional<FlatRange> tied_share(ChunkPlan const& chunk) const;
  /// Of `own` (own_size() elements), those of a domain of a chunk.
  template <class U>
  std::span<U> part_of(std::span<U> own, std::size_t chunk, std::size_t domain) const {
    return own.subspan(static_cast<std::size_t>(state_begin_[chunk][domain]),
                       static_cast<std::size_t>(chunks_[chunk].domains[domain].own.size()));
  }

 private:
  TrainPlan const& plan_;
  Mesh const& mesh_;
  ParameterTable table_;
  LanePlan lanes_;
  std::vector<ChunkPlan> chunks_;
  std::vector<FlatRange> own_;
  std::int64_t own_size_ = 0;
  std::vector<std::vector<std::int64_t>> state_begin_;
};

}  // namespace isotrain
