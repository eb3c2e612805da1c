#include "kernels/rope_table.h"

#include <algorithm>
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/portable_math.h"

namespace isotrain::kernels {
namespace {

double mscale_of(double factor, double mscale) {
  return factor <= 1 ? 1 : std::fma(0.1 * mscale, portable::log(factor), 1.0);
}

/// For each frequency, how far it is from kept (0) to stretched (1): a ramp over the pair index j.
std::vector<double> yarn_ramp(double theta, std::int64_t dim, YarnConfig const& yarn) {
  constexpr double two_pi = 0x1.921fb54442d18p2;
  auto const pair_that_turns = [&](double turns) {
    return static_cast<double>(dim) * portable::log(static_cast<double>(yarn.original_positions) / (turns * two_pi)) /
           (2 * portable::log(theta));
  };
  double const low = std::max(std::floor(pair_that_turns(yarn.beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_that_turns(yarn.beta_slow)), static_cast<double>(dim - 1));
  if (low == high) high += 0.001;  // as in the published code: a step instead of a division by zero
  std::vector<double> ramp(static_cast<std::size_t>(dim / 2));
  for (std::size_t j = 0; j < ramp.size(); ++j) {
    ramp[j] = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
  }
  return ramp;
}

}  // namespace

std::vector<double> rope_frequencies(double theta, std::int64_t dim, std::optional<YarnConfig> const& yarn) {
  expects(dim > 0 && dim % 2 == 0, "an even rotary width");
  expects(theta > 1, "a rotary base above 1");
  if (yarn) {
    expects(yarn->factor > 0 && yarn->original_positions > 0, "a positive YaRN factor and original length");
    expects(yarn->beta_slow > 0 && yarn->beta_fast >= yarn->beta_slow, "beta_fast >= beta_slow > 0");
  }
  auto const ramp = yarn ? yarn_ramp(theta, dim, *yarn) : std::vector<double>(static_cast<std::size_t>(dim / 2));
  double const factor = yarn ? yarn->factor : 1;
  std::vector<double> frequencies(ramp.size());
  for (std::size_t j = 0; j < ramp.size(); ++j) {
    double const kept = portable::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(dim));
    frequencies[j] = std::fma(kept, 1 - ramp[j], kept / factor * ramp[j]);
  }
  return frequencies;
}

double rope_table_multiplier(std::optional<YarnConfig> const& yarn) {
  if (!yarn) return 1;
  if (yarn->mscale == 0 || yarn->mscale_all_dim == 0) return mscale_of(yarn->factor, 1);
  return mscale_of(yarn->factor, yarn->mscale) / mscale_of(yarn->factor, yarn->mscale_all_dim);
}

double yarn_softmax_factor(std::optional<YarnConfig> const& yarn) {
  if (!yarn || yarn->mscale_all_dim == 0) return 1;
  double const mscale = mscale_of(yarn->factor, yarn->mscale_all_dim);
  return mscale * mscale;
}

std::vector<float> rope_table(double theta, std::int64_t dim, std::int64_t positions,
                              std::optional<YarnConfig> const& yarn) {
  expects(positions >= 0 && positions <= std::int64_t{1} << 20, "at most 2^20 positions");
  auto const frequencies = rope_frequencies(theta, dim, yarn);
  double const multiplier = rope_table_multiplier(yarn);
  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(positions * dim));
  for (std::int64_t position = 0; position < positions; ++position) {
    for (double const frequency : frequencies) {
      double const angle = static_cast<double>(position) * frequency;
      table.push_back(static_cast<float>(multiplier * portable::cos(angle)));
      table.push_back(static_cast<float>(multiplier * portable::sin(angle)));
    }
  }
  return table;
}

}  // namespace isotrain::kernels
