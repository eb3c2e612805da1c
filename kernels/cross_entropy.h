#pragma once

#include <cstdint>
#include <span>

#include "lib/base/matrix.h"
#include "lib/device/cpu.h"

namespace isotrain::kernels {

inline constexpr std::int32_t ignored_target = -100;

/// loss[n] = log(sum_v exp(logit[n,v] - max)) + (max - logit[n,target[n]]), 0 where the target is ignored_target.
///   logits (N,V) fp32, rows contiguous;  loss (N) fp32 out;  target (N) int32, in [0, V) or ignored_target
/// The vocabulary is cut into `slices` runs of ceil(V / slices): exact maximum over all, sum of exponentials per run
/// (16 partial sums by index in the run mod 16 from +0, fixed tree), Tree over the runs that are not empty. A NaN or
/// +infinity among the logits of a row gives a loss of NaN.
void cross_entropy_forward(Cpu const& at, std::span<float> loss, Matrix<float const> logits,
                           std::span<std::int32_t const> target, int slices);

/// The same, and dlogits (N,V) T = exp(logit - max) * (scale / sum), minus `scale` at the target; zero rows where
/// ignored; rounded once to T, float or bfloat16. dlogits may be logits when T is float.
template <class T>
void cross_entropy_forward_backward(Cpu const& at, std::span<float> loss, Matrix<T> dlogits, Matrix<float const> logits,
                                    std::span<std::int32_t const> target, int slices, float scale);

}  // namespace isotrain::kernels
