#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/rope.h"
#include "lib/model/config.h"
#include "lib/model/options.h"

/// Rotary frequencies, with YaRN (Peng et al., arXiv:2309.00071) as DeepSeek-V2 and V3 use it.
namespace isotrain {

/// Whether YaRN is applied. Throws UsageError if it is switched on and config.json has no parameters for it.
bool uses_yarn(ModelConfig const& config, Yarn yarn);

/// Angle per position of each pair, (rope_dim / 2).
std::vector<double> rope_frequencies(ModelConfig const& config, bool yarn);

/// What cosines and sines are multiplied by: 1 without YaRN.
double rope_multiplier(ModelConfig const& config, bool yarn);

/// What q . k is multiplied by: query_dim^-1/2, and with YaRN on latent attention mscale(factor, mscale_all_dim)^2.
double softmax_scale(ModelConfig const& config, bool yarn);

/// Which elements of a head are a pair.
inline kernels::RopePairs rope_pairs(ModelConfig const& config) {
  return config.latent_attention() ? kernels::RopePairs::interleaved : kernels::RopePairs::half_split;
}

/// table (positions, rope_dim / 2, 2): cosine and sine of position * frequency, times the multiplier, computed in fp64
/// by functions with the same bits on every machine.
void fill_rope_table(std::span<float> table, ModelConfig const& config, bool yarn, std::int64_t positions);

}  // namespace isotrain
