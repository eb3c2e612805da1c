#include "lib/model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lib/base/error.h"
#include "lib/base/portable_math.h"

namespace isotrain {

namespace {

double mscale(double factor, double coefficient) {
  return factor <= 1 ? 1 : 0.1 * coefficient * portable::log(factor) + 1;
}

}  // namespace

bool uses_yarn(ModelConfig const& config, Yarn yarn) {
  if (yarn == Yarn::on && !config.yarn) {
    throw UsageError("YaRN is switched on", "config.json has no rope_scaling of type yarn",
                     "add its factor and original_max_position_embeddings there");
  }
  return config.yarn && yarn != Yarn::off;
}

std::vector<double> rope_frequencies(ModelConfig const& config, bool yarn) {
  double const dim = config.rope_dim();
  std::vector<double> frequencies;
  for (int j = 0; j < config.rope_dim() / 2; ++j) {
    frequencies.push_back(1 / portable::pow(config.rope_theta, 2 * j / dim));
  }
  if (!yarn) return frequencies;

  YarnScaling const& scaling = config.yarn.value();
  // the pair that turns `rotations` times over the original context
  auto const pair_of = [&](double rotations) {
    return dim * portable::log(scaling.original_positions / (2 * std::numbers::pi * rotations)) /
           (2 * portable::log(config.rope_theta));
  };
  double const low = std::max(std::floor(pair_of(scaling.beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_of(scaling.beta_slow)), dim - 1);
  if (low == high) high += 0.001;
  for (std::size_t j = 0; j < frequencies.size(); ++j) {
    double const ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    frequencies[j] = frequencies[j] * (1 - ramp) + frequencies[j] / scaling.factor * ramp;
  }
  return frequencies;
}

double rope_multiplier(ModelConfig const& config, bool yarn) {
  if (!yarn) return 1;
  YarnScaling const& scaling = config.yarn.value();
  if (scaling.mscale != 0 && scaling.mscale_all_dim != 0) {
    return mscale(scaling.factor, scaling.mscale) / mscale(scaling.factor, scaling.mscale_all_dim);
  }
  return mscale(scaling.factor, 1);
}

double softmax_scale(ModelConfig const& config, bool yarn) {
  double const scale = 1 / std::sqrt(static_cast<double>(config.query_dim()));
  if (!yarn || !config.latent_attention() || config.yarn->mscale_all_dim == 0) return scale;
  double const factor = mscale(config.yarn->factor, config.yarn->mscale_all_dim);
  return scale * factor * factor;
}

void fill_rope_table(std::span<float> table, ModelConfig const& config, bool yarn, std::int64_t positions) {
  auto const frequencies = rope_frequencies(config, yarn);
  expects(table.size() == static_cast<std::size_t>(positions) * frequencies.size() * 2, "a table for all positions");
  double const multiplier = rope_multiplier(config, yarn);
  std::size_t next = 0;
  for (std::int64_t position = 0; position < positions; ++position) {
    for (double const frequency : frequencies) {
      double const angle = static_cast<double>(position) * frequency;
      table[next++] = static_cast<float>(portable::cos(angle) * multiplier);
      table[next++] = static_cast<float>(portable::sin(angle) * multiplier);
    }
  }
}

}  // namespace isotrain
