#include <gtest/gtest.h>

#include "tests/lib/model/tiny.h"
#include "tests/reference/model.h"

namespace isotrain::test {
namespace {

constexpr int samples = 2;
constexpr std::int64_t sequence = 9;
constexpr double epsilon = 0x1p-23;

class Gradient : public testing::TestWithParam<Variant> {
 protected:
  Gradient()
      : config(tiny_config(GetParam().json)),
        options(tiny_options(config, sequence, samples)),
        tiny(config, options),
        data(config, samples, sequence) {
    for (auto const& p : tiny.table.all()) {
      auto const tensor = tensor_of<float>(tiny.table, p, tiny.flat);
      reference_weights.tensor[p.name] = {tensor.begin(), tensor.end()};
    }
    for (float& bias : tiny.model.router_biases()) bias += GetParam().bias;
    auto bias = tiny.model.router_biases().begin();
    for (int layer = 0; layer < config.num_layers; ++layer) {
      if (!config.is_moe(layer)) continue;
      reference_weights.router_bias[layer] = {bias, bias + config.num_experts};
      bias += config.num_experts;
    }
  }

  reference::ModelLoss reference_loss(int sample) const {
    auto const batch = data.batch(sample, 1);
    return reference::Model(config, reference_weights, options.yarn, options.balance)
        .run({batch.tokens.begin(), batch.tokens.end()}, {batch.targets.begin(), batch.targets.end()});
  }
  /// What forward_backward differentiates.
  double objective() const {
    double sum = 0;
    for (int s = 0; s < samples; ++s) {
      auto const loss = reference_loss(s);
      sum += loss.tokens / (samples * sequence) + loss.balance / samples;
    }
    return sum;
  }

  ModelConfig config;
  ModelOptions options;
  TinyModel<float> tiny;
  TinyData data;
  reference::ModelWeights reference_weights;
};

// Losses are sums of 9 terms of size about 3; each term passes about 40 roundings of relative size epsilon a layer.
TEST_P(Gradient, LossesMatchTheDefinition) {
  auto const result = run_step(tiny, data, samples, samples);
  for (int s = 0; s < samples; ++s) {
    auto const expected = reference_loss(s);
    auto const index = static_cast<std::size_t>(s);
    double const tolerance = 40 * config.num_layers * epsilon;
    EXPECT_NEAR(result.losses[index], expected.tokens, tolerance * expected.tokens);
    EXPECT_NEAR(result.balance_losses[index], expected.balance, tolerance * expected.balance);
  }
}

// For every tensor, the derivative of the definition along random directions against the product of gradient and
// direction. The gradient's error behaves like its own size times the roundings passed on the way there and back (about
// 80 a layer); the product with a random direction of unit variance then has that size, times at most 4 sigma.
TEST_P(Gradient, MatchesFiniteDifferencesOfTheDefinition) {
  auto const flat = run_step(tiny, data, samples, samples).gradients;
  for (auto const& p : tiny.table.all()) {
    auto const gradients = tensor_of<float>(tiny.table, p, flat);
    auto& weights = reference_weights.tensor[p.name];
    auto const original = weights;
    double norm = 0;
    for (float const g : gradients) norm += static_cast<double>(g) * static_cast<double>(g);
    norm = std::sqrt(norm);
    for (std::uint64_t direction = 0; direction < 2; ++direction) {
      Random const random(direction, p.name);
      double product = 0;
      double const h = 1e-5;
      double values[2];
      for (int side = 0; side < 2; ++side) {
        for (std::size_t i = 0; i < weights.size(); ++i)
          weights[i] = original[i] + (side == 0 ? h : -h) * random.normal(i);
        values[side] = objective();
      }
      weights = original;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        product += random.normal(i) * static_cast<double>(gradients[i]);
      }
      EXPECT_NEAR(product, (values[0] - values[1]) / (2 * h), 4 * 80 * config.num_layers * epsilon * norm + 1e-9)
          << p.name << " with a gradient of norm " << norm;
    }
  }
}

// Slices only change the order of sums: the gradient moves by what its roundings explain, as above.
TEST_P(Gradient, OfSlicesIsTheSameUpToRounding) {
  auto sliced_options = options;
  sliced_options.slices = 2;
  TinyModel<float> sliced(config, sliced_options);
  std::copy(tiny.model.router_biases().begin(), tiny.model.router_biases().end(), sliced.model.router_biases().begin());
  auto const expected_flat = run_step(tiny, data, samples, samples).gradients;
  auto const actual_flat = run_step(sliced, data, samples, samples).gradients;
  for (auto const& p : tiny.table.all()) {
    auto const expected = tensor_of<float>(tiny.table, p, expected_flat);
    auto const actual = tensor_of<float>(sliced.table, sliced.table.find(p.name), actual_flat);
    double norm = 0, error = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      double const g = static_cast<double>(expected[i]);
      norm += g * g;
      error += std::pow(static_cast<double>(actual[i]) - g, 2);
    }
    EXPECT_LE(std::sqrt(error), 80 * config.num_layers * epsilon * std::sqrt(norm)) << p.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Gradient, testing::ValuesIn(variants()),
                         [](auto const& info) { return info.param.name; });

}  // namespace
}  // namespace isotrain::test
