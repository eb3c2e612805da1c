#include "lib/model/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "lib/base/error.h"

namespace isotrain::test {
namespace {

std::vector<float> const logits = {0.5F, 2.0F, -1.0F, 2.0F, 1.0F};

std::vector<int> draw(SamplerOptions options, int count) {
  Sampler const sample(options);
  std::vector<int> frequency(logits.size());
  for (int position = 0; position < count; ++position) ++frequency[static_cast<std::size_t>(sample(logits, position))];
  return frequency;
}

TEST(Sampler, GreedyTakesTheFirstOfTheLikeliest) {
  EXPECT_EQ(draw({.temperature = 0}, 10), (std::vector<int>{0, 10, 0, 0, 0}));
}

TEST(Sampler, DrawsInProportionToTheProbabilities) {
  for (double const temperature : {0.5, 1.0, 2.0}) {
    int const count = 20000;
    auto const frequency = draw({.temperature = temperature}, count);
    double sum = 0;
    for (float const z : logits) sum += std::exp(static_cast<double>(z) / temperature);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      double const p = std::exp(static_cast<double>(logits[i]) / temperature) / sum;
      EXPECT_NEAR(frequency[i], count * p, 5 * std::sqrt(count * p * (1 - p))) << "token " << i;
    }
  }
}

TEST(Sampler, TopKKeepsTheLikeliest) {
  auto const frequency = draw({.top_k = 3}, 1000);
  EXPECT_EQ(frequency[0], 0);
  EXPECT_EQ(frequency[2], 0);
  EXPECT_GT(frequency[4], 0);
  EXPECT_EQ(draw({.top_k = 1}, 10)[1], 10);
  EXPECT_EQ(draw({.top_k = 100}, 1000), draw({}, 1000));
}

// probabilities: 0.37 (tokens 1 and 3), 0.14 (4), 0.08 (0), 0.02 (2)
TEST(Sampler, TopPKeepsWhatReachesTheProbability) {
  EXPECT_EQ(draw({.top_p = 0.3}, 100)[1], 100);
  auto const two = draw({.top_p = 0.7}, 1000);
  EXPECT_EQ(two[1] + two[3], 1000);
  EXPECT_GT(two[3], 0);
  auto const three = draw({.top_p = 0.8}, 1000);
  EXPECT_EQ(three[1] + three[3] + three[4], 1000);
  EXPECT_GT(three[4], 0);
}

TEST(Sampler, DependsOnSeedAndPositionOnly) {
  Sampler const a({.seed = 1}), b({.seed = 1}), c({.seed = 2});
  std::vector<std::int32_t> from_a, from_b, from_c;
  for (int position = 0; position < 50; ++position) {
    from_a.push_back(a(logits, position));
    from_b.insert(from_b.begin(), b(logits, 49 - position));
    from_c.push_back(c(logits, position));
  }
  EXPECT_EQ(from_a, from_b);
  EXPECT_NE(from_a, from_c);
}

TEST(Sampler, RefusesWrongOptionsAndLogits) {
  EXPECT_THROW(Sampler({.temperature = -1}), UsageError);
  EXPECT_THROW(Sampler({.temperature = NAN}), UsageError);
  EXPECT_THROW(Sampler({.top_k = -1}), UsageError);
  EXPECT_THROW(Sampler({.top_p = 0}), UsageError);
  EXPECT_THROW(Sampler({.top_p = 1.5}), UsageError);
  std::vector<float> const broken = {1, NAN};
  EXPECT_THROW(Sampler({})(broken, 0), Error);
}

}  // namespace
}  // namespace isotrain::test
