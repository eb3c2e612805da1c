#include "lib/base/error.h"
#include "lib/model/memory-inl.h"
#include "lib/model/model.h"

namespace isotrain {

void update_router_bias(std::span<float> biases, std::span<std::int64_t const> loads, int experts, float gamma) {
  expects(biases.size() == loads.size() && experts > 0 && biases.size() % static_cast<std::size_t>(experts) == 0,
          "a bias and a load for each expert of each layer");
  auto const count = static_cast<std::size_t>(experts);
  for (std::size_t first = 0; first < biases.size(); first += count) {
    std::int64_t total = 0;
    for (std::size_t e = 0; e < count; ++e) total += loads[first + e];
    for (std::size_t e = 0; e < count; ++e) {
      // the mean times the number of experts: exact
      std::int64_t const scaled = loads[first + e] * experts;
      if (scaled < total) biases[first + e] += gamma;
      if (scaled > total) biases[first + e] -= gamma;
    }
  }
}

std::vector<std::string> router_bias_names(ModelConfig const& config) {
  std::vector<std::string> names;
  if (config.router.method != kernels::TopkMethod::noaux_tc) return names;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    if (config.is_moe(layer)) names.push_back(layer_prefix(layer) + "mlp.gate.e_score_correction_bias");
  }
  return names;
}

}  // namespace isotrain
