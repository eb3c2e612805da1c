#include "lib/model/part.h"

#include <algorithm>

#include "lib/base/token_split.h"
#include "lib/parallel/lanes.h"

namespace isotrain {

// An owner of experts gets this much more than an even share of the rows before its memory has to grow.
constexpr double foreseen_imbalance = 1.5;

Shard shard_of(ParameterTable const& table, ModelConfig const& config, ModelPart const& part) {
  auto const experts = even_part(std::max(1, config.num_experts), part.expert_ranks(), part.expert_rank());
  int const slices = table.slices() / part.tensor_ranks();
  int const first_slice = slices * part.tensor_rank();
  bool const last = part.has_head(config);
  return Shard(table, [&](Parameter const& parameter, Piece const& piece) {
    bool const tied = config.tied_embeddings && parameter.layer == -1 && last;
    bool const here = tied || (parameter.layer == -1 ? part.has_embedding()
                               : parameter.layer == config.num_layers
                                   ? last
                                   : parameter.layer >= part.first_layer() && parameter.layer < part.end_layer(config));
    if (!here) return false;
    if (parameter.expert >= 0) return parameter.expert >= experts.begin && parameter.expert < experts.end;
    return parameter.cut == Cut::none || (piece.slice >= first_slice && piece.slice < first_slice + slices);
  });
}

PartSizes::PartSizes(ModelConfig const& config, ModelOptions const& options, ModelPart const& part)
    : tensor_ranks(part.tensor_ranks()), sources(part.sources()), grouped(part.expert_ranks() > 1) {
  TokenSplit const split(options.sequence, options.slices, part.tensor_ranks(), part.tensor_rank());
  rows = options.micro_batch * split.rows();
  all_rows = options.micro_batch * options.sequence;
  if (config.num_experts == 0) return;
  routed_rows = rows * config.router.top_k;
  experts = even_part(config.num_experts, part.expert_ranks(), part.expert_rank()).size();
  received_rows = routed_rows;
  if (grouped) {
    double const share = static_cast<double>(experts) / static_cast<double>(config.num_experts);
    double const all = static_cast<double>(all_rows * config.router.top_k * sources);
    received_rows = static_cast<std::int64_t>(all * std::min(1.0, share * foreseen_imbalance)) + 1;
  }
}

}  // namespace isotrain
