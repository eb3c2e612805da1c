#include "lib/model/options.h"

#include <string>

#include "lib/base/error.h"
#include "lib/model/rope_scaling.h"

namespace isotrain {

void check_options(ModelConfig const& config, ModelOptions const& options) {
  auto const at_least_one = [](std::int64_t value, char const* what) {
    if (value < 1) throw UsageError(std::string(what) + " is " + std::to_string(value), "must be at least 1");
  };
  at_least_one(options.sequence, "the sequence length");
  at_least_one(options.micro_batch, "the micro-batch");
  at_least_one(options.head_rows, "the number of rows of logits held at a time");
  if (options.head_rows % 32 != 0) {
    throw UsageError("the number of rows of logits held at a time is " + std::to_string(options.head_rows),
                     "must be a multiple of 32, or bits would depend on it");
  }
  if (options.sequence > config.max_positions) {
    throw UsageError("a sequence of " + std::to_string(options.sequence) + " tokens is too long",
                     "max_position_embeddings of the model is " + std::to_string(config.max_positions),
                     "use a shorter sequence, or raise the field in config.json");
  }
  check_slices(config, options.slices);
  active_yarn(config, options.yarn);
  auto const& balance = options.balance;
  if (config.num_experts > 0 && (balance.device_alpha != 0 || balance.comm_alpha != 0)) {
    at_least_one(balance.device_groups, "the number of device groups of the balancing losses");
    at_least_one(balance.max_devices, "the number of devices of a token in the balancing losses");
    if (config.num_experts % balance.device_groups != 0) {
      throw UsageError("balancing losses over " + std::to_string(balance.device_groups) + " device groups",
                       "does not divide the " + std::to_string(config.num_experts) + " routed experts");
    }
  }
}

kernels::BalanceLoss default_balance(ModelConfig const& config) {
  kernels::BalanceLoss balance;
  if (config.num_experts > 0) balance.expert_alpha = static_cast<float>(config.aux_loss_alpha);
  return balance;
}

}  // namespace isotrain
