#pragma once

#include <cstdint>
#include <string>

#include "lib/optim/batch_ramp.h"

namespace isotrain {

/// What a schedule needs to know of the whole run.
struct RunPlan {
  std::int64_t steps = 0;
  std::int64_t tokens = 0;         // of all steps
  std::int64_t warmup_steps = 0;   // may be more than `steps`: then the peak is never reached
  std::int64_t warmup_tokens = 0;  // of the warm-up steps
};

/// The plan of a run of `steps` steps. `warmup` below 1 is a fraction of `steps` (rounded to the nearest whole step),
/// from 1 on it is a number of steps. Throws UsageError if it is negative, not finite, or above 1 and not whole.
RunPlan plan_run(std::int64_t steps, BatchRamp const& batches, double warmup);

/// The learning rate as a pure function of where in the run a step is. All in fp64 without libm: the same bits
/// everywhere.
///
/// With s the step (the first one is 1), n the tokens before it, W and N_w the warm-up's steps and tokens, N the run's
/// tokens:
///   s <= W    peak s / W, for every schedule: linear from 0, which would be step 0
///   s > W     peak times
///     constant  1
///     cosine    f + (1 - f)(1 + cos(pi p)) / 2  with p = (n - N_w) / (N - N_w) and f = `floor`
///               (Loshchilov and Hutter, arXiv:1608.03983)
///     step      1, then `step_factor` from n >= `step_first` N, then its square from n >= `step_second` N
///               (DeepSeek-V2, arXiv:2405.04434, section 3.1.2: 0.316 at 60 % and 90 %; V2-Lite and LLM: 80 % and 90 %)
///     v3        with x = 14.8 n / N: 1 up to x = 10, cosine from 1 to 0.1 up to x = 14.3, 0.1 up to x = 14.633, then
///               7.3 / 220 (DeepSeek-V3, arXiv:2412.19437, section 4.2, the phases scaled to the run's length)
///     wsd       1 up to n = (1 - d) N with d = `decay_fraction`, then f + (1 - f)(1 - q) with q = p (linear) or
///               sqrt(p) (sqrt) and p = (n - (1 - d) N) / (d N) (warm-up, stable, decay: Hu et al., arXiv:2404.06395;
///               20 % and 1 - sqrt: Hagele et al., arXiv:2405.18392)
/// p reaches 1 at the end of the last step, so that this step still does something where the floor is 0.
class LearningRate {
 public:
  struct Settings {
    std::string schedule = "cosine";     // constant, cosine, step, v3, wsd
    double peak = 3e-4;                  // learning rate after the warm-up
    double floor = 0.01;                 // cosine, wsd: share of the peak at the end
    double step_first = 0.6;             // step: fraction of the run's tokens
    double step_second = 0.9;            // step: fraction of the run's tokens
    double step_factor = 0.316;          // step: at each of the two
    double decay_fraction = 0.2;         // wsd: fraction of the run's tokens
    std::string decay_shape = "linear";  // wsd: linear, sqrt
  };

  /// Throws UsageError naming the setting: an unknown schedule or shape (with the choices), a value outside its range.
  LearningRate(Settings const& settings, RunPlan const& plan);

  /// Of step `step` (1-based), which `tokens_before` tokens precede.
  double at(std::int64_t step, std::int64_t tokens_before) const;

 private:
  enum class Schedule { constant, cosine, step, v3, wsd };
  enum class Shape { linear, sqrt };

  double share(std::int64_t tokens_before) const;

  Settings settings_;
  RunPlan plan_;
  Schedule schedule_;
  Shape shape_;
};

}  // namespace isotrain
