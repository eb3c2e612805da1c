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
  float decay = 0;            // learning_rate * weight decay
  float correction1 = 1;      // 1 / (1 - beta1^step)
  float correction2 = 1;      // 1 / (1 - beta2^step)
  float gradient_scale = 1;   // clipping
};

/// g = gradient * gradient_scale; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
/// w = w - decay w - learning_rate (m correction1) / (sqrt(v correction2) + epsilon). Elementwise, explicit FMA, any cut gives
/// the same bits. `compute`, if not empty, receives the rounded weights. All spans of one length.
void adamw(Cpu const& at, std::span<float> weight, std::span<float> m, std::span<float> v,
           std::span<float const> gradient, std::span<bfloat16> compute, AdamwStep step);

}  // namespace isotrain::kernels
