#pragma once

#include <cstdint>
#include <span>

#include "lib/base/matrix.h"
#include "lib/device/cpu.h"

/// Mixture-of-experts gates of DeepSeek-V2 (arXiv:2405.04434, 2.2) and DeepSeek-V3 (arXiv:2412.19437, 2.1.2).
/// Letters: N tokens, E routed experts, K experts per token. Everything in fp32; ties go to the lower expert id,
/// NaN loses against every number. Matrices have contiguous rows of E or K columns. Bits of a token depend on it alone.
namespace isotrain::kernels {

enum class Scoring { softmax, sigmoid };
enum class TopkMethod { greedy, group_limited_greedy, noaux_tc };

struct RouterShape {
  int experts = 0;     // E
  int top_k = 0;       // K
  int num_groups = 1;  // contiguous blocks of E/num_groups experts
  int top_groups = 1;  // blocks a token may use
  Scoring scoring = Scoring::sigmoid;
  TopkMethod method = TopkMethod::noaux_tc;
  bool normalize_top_k = true;  // w = s / (sum of the chosen s + 1e-20); V2 only if K > 1, and then without `scaling`
  float scaling = 1;            // routed_scaling_factor
};

/// Scores, choice and gate weights.
///   score (N,E) fp32 out   softmax (16 partial sums by id mod 16, fixed tree) or sigmoid of logits
///   expert (N,K) int32 out chosen, best first
///   weight (N,K) fp32 out  gate values, from unbiased scores
///   logits (N,E) fp32;  bias (E) fp32 or empty: e_score_correction_bias, moves the choice only (noaux_tc)
/// Group score: group_limited_greedy the maximum, noaux_tc the sum of the two best biased scores. Experts of groups
/// that were not chosen never take part, which is what masking noaux_tc's with -infinity means (0 would be wrong for
/// negative biases). Requires 1 <= K <= E, groups of equal size, K <= experts in top_groups groups.
void router_forward(Cpu const& at, Matrix<float> score, Matrix<std::int32_t> expert, Matrix<float> weight,
                    Matrix<float const> logits, std::span<float const> bias, RouterShape shape);

/// dlogits (N,E) fp32 from dweight (N,K) fp32; dscore_extra (N,E) fp32, empty or what balancing losses add to the score
/// gradient; score, expert, weight as router_forward gave them. The choice is not differentiated. dlogits may alias
/// dscore_extra.
void router_backward(Cpu const& at, Matrix<float> dlogits, Matrix<float const> dweight,
                     Matrix<float const> dscore_extra, Matrix<float const> score, Matrix<std::int32_t const> expert,
                     Matrix<float const> weight, RouterShape shape);

/// load[e] += number of tokens that chose e. load (E).
void router_count(std::span<std::int64_t> load, Matrix<std::int32_t const> expert);

}  // namespace isotrain::kernels
