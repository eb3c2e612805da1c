#include "lib/model/rope_scaling.h"

#include <cmath>

#include "lib/base/error.h"

namespace isotrain {

std::optional<kernels::YarnConfig> active_yarn(ModelConfig const& config, Yarn yarn) {
  if (yarn == Yarn::on && !config.yarn) {
    throw UsageError("YaRN is switched on", "config.json has no rope_scaling of type yarn",
                     "add its factor and original_max_position_embeddings there");
  }
  return yarn == Yarn::off ? std::nullopt : config.yarn;
}

double softmax_scale(ModelConfig const& config, Yarn yarn) {
  double const scale = 1 / std::sqrt(static_cast<double>(config.query_dim()));
  return config.latent_attention() ? scale * kernels::yarn_softmax_factor(active_yarn(config, yarn)) : scale;
}

}  // namespace isotrain
