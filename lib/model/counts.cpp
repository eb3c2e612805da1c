#include "lib/model/counts.h"

#include "lib/model/parameter_list.h"

namespace isotrain {

namespace {

/// The model as one token sees it: with as many routed experts as it uses.
ModelConfig active_config(ModelConfig config) {
  config.num_experts = config.num_experts > 0 ? config.router.top_k : 0;
  return config;
}

/// Of the router, whose rows are the experts, all rows are used.
std::int64_t unused_router_rows_of_layer(ModelConfig const& config) {
  return (std::int64_t{config.num_experts} - config.router.top_k) * config.hidden_size;
}

}  // namespace

std::int64_t num_parameters(ModelConfig const& config) {
  std::int64_t sum = 0;
  for (auto const& parameter : model_parameters(config)) sum += parameter.size();
  return sum;
}

std::int64_t num_active_parameters(ModelConfig const& config) {
  return num_parameters(active_config(config)) + config.num_moe_layers() * unused_router_rows_of_layer(config);
}

LayerCosts layer_costs(ModelConfig const& config, std::int64_t sequence) {
  double const keys = static_cast<double>(sequence + 1) / 2;
  double const attention = 2.0 * config.num_heads * (config.query_dim() + config.value_dim()) * keys;
  LayerCosts costs;
  costs.layers.assign(static_cast<std::size_t>(config.num_layers), attention);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    if (config.is_moe(layer))
      costs.layers[static_cast<std::size_t>(layer)] += 2.0 * unused_router_rows_of_layer(config);
  }
  for (auto const& parameter : model_parameters(active_config(config))) {
    if (parameter.shape.size() != 2) continue;
    double const flops = 2.0 * static_cast<double>(parameter.size());
    bool const in_layer = parameter.layer >= 0 && parameter.layer < config.num_layers;
    if (in_layer) costs.layers[static_cast<std::size_t>(parameter.layer)] += flops;
    bool const output = parameter.layer == config.num_layers || (parameter.layer < 0 && config.tied_embeddings);
    if (output) costs.head += flops;
  }
  return costs;
}

double forward_flops_per_token(ModelConfig const& config, std::int64_t sequence) {
  LayerCosts const costs = layer_costs(config, sequence);
  double sum = costs.embedding;
  for (double const layer : costs.layers) sum += layer;
  return sum + costs.head;
}

double train_flops_per_token(ModelConfig const& config, std::int64_t sequence) {
  return 3 * forward_flops_per_token(config, sequence);
}

}  // namespace isotrain
