#pragma once

#include <cstdint>
#include <optional>
#include <vector>

/// Angles of the rotary embedding (Su et al., arXiv:2104.09864), with YaRN's stretching of long contexts (Peng et al.,
/// arXiv:2309.00071) as the DeepSeek models use it. Computed in fp64 with portable maths: the same bits everywhere.
namespace isotrain::kernels {

/// `rope_scaling` of type "yarn" in a config.json. 0 in `mscale` or `mscale_all_dim` means that the file has none.
struct YarnConfig {
  double factor = 1;                       // context length over the original one
  std::int64_t original_positions = 4096;  // original_max_position_embeddings, never the stretched length
  double beta_fast = 32;                   // turns within original_positions above which a frequency is kept
  double beta_slow = 1;                    // turns below which it is divided by `factor`
  double mscale = 0;
  double mscale_all_dim = 0;
};

/// The dim/2 frequencies, radians per position: theta^(-2j/dim), blended with the stretched ones if `yarn` is given.
/// Requires dim even and positive, theta > 1, factor > 0, original_positions > 0, beta_fast >= beta_slow > 0.
std::vector<double> rope_frequencies(double theta, std::int64_t dim, std::optional<YarnConfig> const& yarn = {});

/// What cosines and sines are multiplied by: 1 without YaRN or where mscale = mscale_all_dim.
double rope_table_multiplier(std::optional<YarnConfig> const& yarn);

/// What the softmax scale 1/sqrt(head width) is multiplied by: (0.1 mscale_all_dim ln(factor) + 1)^2, or 1.
double yarn_softmax_factor(std::optional<YarnConfig> const& yarn);

/// (positions, dim/2, 2) fp32: cosine and sine of position * frequency, times rope_table_multiplier. The table of
/// kernels/rope.h. Requires positions <= 2^20 besides what rope_frequencies requires.
std::vector<float> rope_table(double theta, std::int64_t dim, std::int64_t positions,
                              std::optional<YarnConfig> const& yarn = {});

}  // namespace isotrain::kernels
