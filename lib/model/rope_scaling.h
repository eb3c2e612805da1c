#pragma once

#include <optional>

#include "kernels/rope_table.h"
#include "lib/model/config.h"
#include "lib/model/options.h"

namespace isotrain {

/// The stretching that is applied, or nothing. Throws UsageError if it is switched on and config.json has none.
std::optional<kernels::YarnConfig> active_yarn(ModelConfig const& config, Yarn yarn);

/// What q . k is multiplied by: query_dim^-1/2, and with YaRN on latent attention the factor of its mscale_all_dim.
double softmax_scale(ModelConfig const& config, Yarn yarn);

}  // namespace isotrain
