#pragma once

#include <cstdint>
#include <span>

#include "kernels/balance_loss.h"
#include "lib/model/config.h"

namespace isotrain {

/// What of the forward pass is computed again in the backward pass instead of being kept. Same bits in each.
///   none       everything is kept
///   selective  norms, SwiGLU, MLA up-projections, tokens gathered for experts and experts' outputs are computed again
///              (DeepSeek-V3, arXiv:2412.19437, section 3.2.3)
///   full       only the input of each layer is kept
enum class Recompute { none, selective, full };

/// Whether YaRN is applied: as config.json says, or switched for a phase of training.
enum class Yarn { automatic, on, off };

struct ModelOptions {
  std::int64_t sequence = 0;  // T: tokens of a sample
  int micro_batch = 1;        // most samples in one call
  int slices = 1;             // S of the envelope (docs/numerics.md)
  Recompute recompute = Recompute::none;
  Yarn yarn = Yarn::automatic;
  bool deferred_weights = false;  // gradients of weights may be computed later: what they need is kept
  kernels::BalanceLoss balance;   // coefficients of the auxiliary losses
  std::int64_t head_rows =
      512;  // most rows of logits held at a time; bits do not depend on it if it is a multiple of 32
};

/// Throws UsageError if the options do not fit the model: sizes below 1, slices that do not divide (see check_slices),
/// YaRN without parameters, a sequence beyond max_position_embeddings, device groups that do not divide the experts.
void check_options(ModelConfig const& config, ModelOptions const& options);

/// The coefficients that a model was published with: V2's expert-level loss, V3's sequence-wise one, as config.json
/// says.
kernels::BalanceLoss default_balance(ModelConfig const& config);

/// Samples of T tokens each, one after the other. targets[r] is what follows tokens[r], or kernels::ignored_target.
struct Batch {
  std::span<std::int32_t const> tokens;   // (samples * T)
  std::span<std::int32_t const> targets;  // (samples * T)
  int samples = 0;
};

/// What the losses of one micro-batch are multiplied by, both computed from the global batch, so that it does not
/// matter how that is cut.
struct LossScale {
  float token = 1;     // 1 / number of targets that are not ignored
  float sequence = 1;  // 1 / number of sequences; scales the balancing losses
};

}  // namespace isotrain
