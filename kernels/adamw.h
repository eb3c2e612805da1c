#pragma once

#include <cstdint>
#include <span>

#include "lib/base/bfloat16.h"
#include "lib/device/cpu.h"

namespace isotrain::kernels {

/// Scalars of one AdamW step (Loshchilov and Hutter, arXiv:1711.05101), computed once in fp64 from the integer step.
struct AdamwStep {
  float learning_rate = 0;
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float epsilon = 1e-8F;
  float decay = 0;           // learning_rate * weight decay
  float correction1 = 1;     // 1 / (1 - beta1^step)
  float correction2 = 1;     // 1 / (1 - beta2^step)
  float gradient_scale = 1;  // clipping
};

/// What stays the same from step to step.
struct AdamwSettings {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
};

/// The scalars of step `step` (the first is 1), in fp64 with portable maths, each rounded once to fp32; bias
/// corrections are those of the rounded betas. Requires step >= 1 and betas in [0, 1).
AdamwStep adamw_step(std::int64_t step, AdamwSettings settings, double learning_rate, double gradient_scale = 1);

/// One step, elementwise in fp32, so that any cut gives the same bits; each * and + below is one rounding, fma(a, b, c)
/// too:
///   g = gradient * gradient_scale
///   m = fma(beta1, m, (1 - beta1) * g)
///   v = fma(beta2, v, (1 - beta2) * (g * g))
///   w = fma(-learning_rate, (m * correction1) / (sqrt(v * correction2) + epsilon), fma(-decay, w, w))
/// `compute`, if not empty, receives the weights rounded to bf16. All spans of one length.
void adamw(Cpu const& at, std::span<float> weight, std::span<float> m, std::span<float> v,
           std::span<float const> gradient, std::span<bfloat16> compute, AdamwStep step);

}  // namespace isotrain::kernels
