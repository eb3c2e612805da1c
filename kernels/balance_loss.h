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

/// For each of the samples (sample_rows = T tokens each): loss[sample] = the sum of the losses (not scaled), dscore =
/// its gradient times `scale`, for router_backward's dscore_extra.
///   loss (B) fp64 out;  dscore (N,E) fp32 out;  score (N,E), expert (N,K) as router_forward gave them
///   L_exp = expert_alpha sum_e f_e P_e    f_e = E / (K T) * tokens that count for e;  P_e = mean over tokens of p_e
///   L_dev = device_alpha sum_g f'_g P'_g  f'_g = mean of f over the experts of device g;  P'_g = sum of P over them
///   L_com = comm_alpha sum_g f''_g P'_g   f''_g = D / (M T) * tokens with a choice on device g
///
/// V2 (softmax): p = score, and the tokens that chose e count; DeepSeek-V2 section 2.2.3. V3 (sigmoid): p = s / sum(s),
/// and those count whose K best of all unbiased scores, without group limit, hold e; arXiv:2412.19437 section 2.1.2. f
/// is constant for the gradient. Sums over tokens in fp32 per expert, ascending; over experts in fp64, by device,
/// ascending; over a token's experts in fp32, 16 partial sums by id mod 16, fixed tree.
void balance_loss(Cpu const& at, std::span<double> loss, Matrix<float> dscore, Matrix<float const> score,
                  Matrix<std::int32_t const> expert, RouterShape shape, BalanceLoss balance, std::int64_t sample_rows,
                  float scale);

}  // namespace isotrain::kernels
