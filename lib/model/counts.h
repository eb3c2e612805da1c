#pragma once

#include <cstdint>
#include <vector>

#include "lib/model/config.h"

/// How large a model is and what a token costs.
namespace isotrain {

/// All parameters; router biases are not among them.
std::int64_t num_parameters(ModelConfig const& config);

/// Parameters that one token uses: embedding and output matrix, and of the routed experts only the chosen ones.
std::int64_t num_active_parameters(ModelConfig const& config);

/// Floating-point operations of matrix products for one token of a forward pass (two per multiply-add): weights without
/// the embedding, and causal attention over a sequence of `sequence` tokens, (sequence + 1) / 2 keys on average.
double forward_flops_per_token(ModelConfig const& config, std::int64_t sequence);

/// Forward and backward: three times that. What is computed again does not count.
double train_flops_per_token(ModelConfig const& config, std::int64_t sequence);

/// Floating-point operations of one token's forward pass, by where they are.
struct LayerCosts {
  double embedding = 0;
  std::vector<double> layers;
  double head = 0;
};
LayerCosts layer_costs(ModelConfig const& config, std::int64_t sequence);

}  // namespace isotrain
