#pragma once

#include <cstdint>

#include "lib/base/tree.h"
#include "lib/comm/communicator.h"
#include "lib/model/config.h"
#include "lib/model/options.h"
#include "lib/tensor/shard.h"

namespace isotrain {

/// Which part of a model a rank computes, and with whom. As it stands: all of it, alone.
struct ModelPart {
  Communicator const* tensor = nullptr;   // ranks that share out slices and tokens; null: alone
  Communicator const* experts = nullptr;  // ranks that share out the routed experts, rank = source * tensor ranks +
                                          // rank in `tensor`; null: alone
  IndexRange layers = {0, -1};            // end -1: to the last
  int slots = 1;                          // micro-batches that are between forward and backward at once

  int tensor_ranks() const { return tensor == nullptr ? 1 : tensor->size(); }
  int tensor_rank() const { return tensor == nullptr ? 0 : tensor->rank(); }
  int expert_ranks() const { return experts == nullptr ? 1 : experts->size(); }
  int expert_rank() const { return experts == nullptr ? 0 : experts->rank(); }
  /// Data-parallel ranks whose tokens meet at this rank's experts.
  int sources() const { return experts == nullptr ? 1 : experts->size() / tensor_ranks(); }
  int first_layer() const { return static_cast<int>(layers.begin); }
  int end_layer(ModelConfig const& config) const {
    return layers.end < 0 ? config.num_layers : static_cast<int>(layers.end);
  }
  bool has_embedding() const { return layers.begin == 0; }
  bool has_head(ModelConfig const& config) const { return end_layer(config) == config.num_layers; }
};

/// The pieces of the parameters that the part computes with. Tied embeddings are on the first and the last part.
Shard shard_of(ParameterTable const& table, ModelConfig const& config, ModelPart const& part);

/// Sizes of what a part holds of one micro-batch of the largest size.
struct PartSizes {
  std::int64_t rows = 0;           // n: tokens of this tensor rank
  std::int64_t all_rows = 0;       // N: tokens of the micro-batch
  std::int64_t routed_rows = 0;    // R: n times experts per token
  std::int64_t received_rows = 0;  // R': foreseen for this rank's experts; the same as R if there is no group
  std::int64_t experts = 0;        // of this rank
  int tensor_ranks = 1;
  int sources = 1;
  bool grouped = false;  // experts are shared out

  PartSizes(ModelConfig const& config, ModelOptions const& options, ModelPart const& part);
  bool split() const { return tensor_ranks > 1; }
};

}  // namespace isotrain
