#pragma once

#include <cstdint>
#include <vector>

#include "kernels/selfcheck.h"
#include "lib/comm/communicator.h"
#include "lib/model/config.h"
#include "lib/model/options.h"

namespace isotrain {

/// Every distinct product of a training step of the model.
std::vector<kernels::ProductShape> model_products(ModelConfig const& config, ModelOptions const& options,
                                                  kernels::ProductInput precision);

/// The start-up check of docs/numerics.md: the kernels against their definition on this rank, then all ranks against
/// each other. Returns the numerics fingerprint. Collective. Throws AgreedError naming what is wrong, or the ranks that
/// differ from most.
std::uint64_t check_numerics(Cpu const& at, Communicator const& comm, std::string const& host,
                             std::vector<kernels::ProductShape> const& products);

}  // namespace isotrain
