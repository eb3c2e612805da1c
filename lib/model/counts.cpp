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
std::int64_t unused_router_rows(ModelConfig const& config) {
  return config.num_moe_layers() * (std::int64_t{config.num_experts} - config.router.top_k) * config.hidden_size;
}

}  // namespace

std::int64_t num_parameters(ModelConfig const& config) {
  std::int64_t sum = 0;
  for (auto const& parameter : model_parameters(config)) sum += parameter.size();
  return sum;
}

std::int64_t num_active_parameters(ModelConfig const& config) {
  return num_parameters(active_config(config)) + unused_router_rows(config);
}

double forward_flops_per_token(ModelConfig const& config, std::int64_t sequence) {
  std::int64_t weights = unused_router_rows(config);
  for (auto const& parameter : model_parameters(active_config(config))) {
    bool const product = parameter.shape.size() == 2;
    bool const looked_up = parameter.name == "model.embed_tokens.weight" && !config.tied_embeddings;
    if (product && !looked_up) weights += parameter.size();
  }
  double const keys = static_cast<double>(sequence + 1) / 2;
  double const attention =
      config.num_layers * 2.0 * config.num_heads * (config.query_dim() + config.value_dim()) * keys;
  return 2.0 * static_cast<double>(weights) + attention;
}

double train_flops_per_token(ModelConfig const& config, std::int64_t sequence) {
  return 3 * forward_flops_per_token(config, sequence);
}

}  // namespace isotrain
