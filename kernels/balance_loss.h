#pragma once

#include <span>

#include "kernels/router.h"

/// Auxiliary balancing losses, each per sequence of T tokens and its mean over sequences taken by the caller's `scale`.
namespace isotrain::kernels {

struct BalanceLoss {
  float expert_alpha = 0;  // V2 L_exp (alpha1), or V3's sequence-wise loss when shape.scoring is sigmoid
  float device_alpha = 0;  // V2 L_dev (alpha2)
  float comm_alpha = 0;    // V2 L_com (alpha3)
  int device_groups = 1;   // D: contiguous blocks of E/D experts
  int max_devices = 1;     // M: devices that a token may be sent to
};

/// For each of the samples (sample_rows tokens each): returns in loss[sample] the sum of the losses, and adds its gradient times
/// `scale` to dscore.
///   loss (B) fp64 out;  dscore (N,E) fp32, written;  score (N,E), expert (N,K) as router_forward gave them
/// Sums over tokens in fp32 per expert, ascending; over experts ascending, in fp64.
/// V2 (softmax): f from the chosen experts, DeepSeek-V2 section 2.2.3. V3 (sigmoid): P from s / sum(s), f from the unbiased top K of all
/// experts without group limit, arXiv:2412.19437 section 2.1.2; f is constant for the gradient.
void balance_loss(Cpu const& at, std::span<double> loss, Matrix<float> dscore, Matrix<float const> score,
                  Matrix<std::int32_t const> expert, RouterShape shape, BalanceLoss balance, std::int64_t sample_rows,
                  float scale);

}  // namespace isotrain::kernels
