#include "kernels/adamw.h"
#include "lib/base/error.h"
#include "lib/base/portable_math.h"

namespace isotrain::kernels {
namespace {

/// 1 / (1 - beta^step) for the beta that the kernel uses, so that the moments' weights sum to exactly what is divided
/// out.
float correction(float beta, std::int64_t step) {
  return static_cast<float>(1 / (1 - portable::pow(beta, static_cast<double>(step))));
}

}  // namespace

AdamwStep adamw_step(std::int64_t step, AdamwSettings settings, double learning_rate, double gradient_scale) {
  expects(step >= 1, "steps counted from 1");
  expects(settings.beta1 >= 0 && settings.beta1 < 1 && settings.beta2 >= 0 && settings.beta2 < 1, "betas in [0, 1)");
  AdamwStep scalars;
  scalars.learning_rate = static_cast<float>(learning_rate);
  scalars.beta1 = static_cast<float>(settings.beta1);
  scalars.beta2 = static_cast<float>(settings.beta2);
  scalars.epsilon = static_cast<float>(settings.epsilon);
  scalars.decay = static_cast<float>(learning_rate * settings.weight_decay);
  scalars.correction1 = correction(scalars.beta1, step);
  scalars.correction2 = correction(scalars.beta2, step);
  scalars.gradient_scale = static_cast<float>(gradient_scale);
  return scalars;
}

}  // namespace isotrain::kernels
