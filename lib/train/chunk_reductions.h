#pragma once

#include <array>
#include <optional>
#include <vector>

#include "lib/comm/mesh.h"
#include "lib/comm/tree_sum.h"
#include "lib/train/domain.h"

namespace isotrain {

/// Which lanes' gradients a rank forms: its own, and those of the data ranks whose tokens come to its experts.
struct LanePlan {
  std::int64_t num_lanes = 1;
  std::vector<IndexRange> of_ranks;  // lanes of each data rank
  int data_rank = 0;
  int first_source = 0;  // data rank of the first source
  int sources = 1;

  IndexRange own() const { return of_ranks[static_cast<std::size_t>(data_rank)]; }
  IndexRange of_source(int source) const { return of_ranks[static_cast<std::size_t>(first_source + source)]; }
  /// Lanes that the longest source takes one after the other; one with fewer takes part without samples.
  std::int64_t turns() const;
};

LanePlan make_lane_plan(std::int64_t num_lanes, Mesh const& mesh);

/// The regions `replicated` and `fp32`, which follow each other, counted from where the first begins.
std::array<FlatRange, 2> replicated_regions(Shard const& shard);

/// The reductions across ranks of a chunk's gradients. All are collective over their groups.
struct ChunkReductions {
  std::vector<TreeReduction> over_data;      // over lanes; of each domain
  std::array<TreeReduction, 2> over_tensor;  // over token slices; of regions `replicated` and `fp32`
  std::optional<TreeReduction> tied;         // over lanes; of a tied embedding's input side

  ChunkReductions(Shard const& shard, ModelConfig const& config, ModelPart const& part,
                  std::vector<Domain> const& domains, LanePlan const& lanes, Mesh const& mesh);

  /// Elements of the workspace that the largest over tensor ranks, and over data ranks, needs.
  std::int64_t tensor_workspace_size() const;
  std::int64_t data_workspace_size() const;
};

}  // namespace isotrain
