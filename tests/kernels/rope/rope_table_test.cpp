#include "kernels/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace isotrain::kernels::test {
namespace {

YarnConfig deepseek_yarn(double mscale) {
  return {.factor = 40,
          .original_positions = 4096,
          .beta_fast = 32,
          .beta_slow = 1,
          .mscale = mscale,
          .mscale_all_dim = mscale};
}

TEST(RopeTable, PlainFrequencies) {
  auto const f = rope_frequencies(10000, 64);
  ASSERT_EQ(f.size(), 32u);
  EXPECT_EQ(f[0], 1);
  for (int j = 0; j < 32; ++j) EXPECT_NEAR(f[j], std::pow(10000.0, -j / 32.0), 4e-16 * f[j]) << j;
}

/// Values of the DeepSeek models: theta 10000, width 64, factor 40, original length 4096, so that the ramp is 10 to 23.
TEST(RopeTable, YarnFrequenciesOfDeepSeek) {
  auto const plain = rope_frequencies(10000, 64);
  auto const f = rope_frequencies(10000, 64, deepseek_yarn(1));
  for (int j = 0; j <= 10; ++j) EXPECT_EQ(f[j], plain[j]) << j;
  EXPECT_NEAR(f[10], 0.05623413252, 1e-11);
  EXPECT_NEAR(f[11], 0.03900692657, 1e-11);
  EXPECT_NEAR(f[15], 0.00833450895, 1e-11);
  EXPECT_NEAR(f[16], 0.0055, 1e-12);
  EXPECT_NEAR(f[22], 1.7782794e-4, 1e-11);
  for (int j = 23; j < 32; ++j) EXPECT_NEAR(f[j], plain[j] / 40, 1e-15 * plain[j]) << j;
  EXPECT_NEAR(f[31], 3.33380358e-6, 1e-14);
}

TEST(RopeTable, YarnSoftmaxScalesOfDeepSeek) {
  EXPECT_NEAR(yarn_softmax_factor(deepseek_yarn(0.707)), 1.58962617, 1e-8);
  EXPECT_NEAR(yarn_softmax_factor(deepseek_yarn(1)), 1.87385421, 1e-8);
  EXPECT_NEAR(yarn_softmax_factor(deepseek_yarn(0.707)) / std::sqrt(192.0), 0.11472139, 1e-8);
  EXPECT_NEAR(yarn_softmax_factor(deepseek_yarn(1)) / std::sqrt(192.0), 0.13523378, 1e-8);
  EXPECT_EQ(yarn_softmax_factor({}), 1);
  EXPECT_EQ(rope_table_multiplier(deepseek_yarn(0.707)), 1);
  EXPECT_EQ(rope_table_multiplier({}), 1);
}

TEST(RopeTable, YarnScalesWithoutMscale) {
  YarnConfig yarn = deepseek_yarn(0);
  EXPECT_NEAR(rope_table_multiplier(yarn), 1.36888795, 1e-8);
  EXPECT_EQ(yarn_softmax_factor(yarn), 1);
  yarn.mscale_all_dim = 0.707;
  EXPECT_NEAR(yarn_softmax_factor(yarn), 1.58962617, 1e-8);
  yarn.mscale = 1;
  EXPECT_NEAR(rope_table_multiplier(yarn), 1.36888795 / 1.26080378, 1e-8);
  yarn.factor = 1;
  EXPECT_EQ(rope_table_multiplier(yarn), 1);
  EXPECT_EQ(yarn_softmax_factor(yarn), 1);
}

TEST(RopeTable, RampThatIsAStep) {
  YarnConfig yarn = deepseek_yarn(1);
  yarn.beta_slow = yarn.beta_fast = 2061.5;  // turns that the pair -0.5 would make: both ends of the ramp are 0
  auto const plain = rope_frequencies(10000, 8);
  auto const f = rope_frequencies(10000, 8, yarn);
  EXPECT_EQ(f[0], plain[0]);
  for (int j = 1; j < 4; ++j) EXPECT_NEAR(f[j], plain[j] / 40, 1e-15) << j;
}

TEST(RopeTable, HoldsCosinesAndSines) {
  auto const f = rope_frequencies(500000, 6);
  auto const table = rope_table(500000, 6, 1000);
  ASSERT_EQ(table.size(), 6000u);
  for (int p = 0; p < 1000; ++p) {
    for (int j = 0; j < 3; ++j) {
      EXPECT_EQ(table[(p * 3 + j) * 2], static_cast<float>(std::cos(p * f[j])));
      EXPECT_EQ(table[(p * 3 + j) * 2 + 1], static_cast<float>(std::sin(p * f[j])));
    }
  }
  YarnConfig yarn = deepseek_yarn(0);
  EXPECT_NEAR(rope_table(10000, 6, 1, yarn)[0], rope_table_multiplier(yarn), 1e-7);
  EXPECT_TRUE(rope_table(10000, 6, 0).empty());
}

TEST(RopeTable, RefusesWhatHasNoMeaning) {
  EXPECT_THROW(rope_frequencies(10000, 7), std::logic_error);
  EXPECT_THROW(rope_frequencies(10000, 0), std::logic_error);
  EXPECT_THROW(rope_frequencies(1, 8), std::logic_error);
  EXPECT_THROW(rope_frequencies(10000, 8, YarnConfig{.factor = 0}), std::logic_error);
  EXPECT_THROW(rope_frequencies(10000, 8, YarnConfig{.original_positions = 0}), std::logic_error);
  EXPECT_THROW(rope_frequencies(10000, 8, YarnConfig{.beta_fast = 1, .beta_slow = 2}), std::logic_error);
  EXPECT_THROW(rope_table(10000, 8, -1), std::logic_error);
  EXPECT_THROW(rope_table(10000, 8, (1 << 20) + 1), std::logic_error);
}

}  // namespace
}  // namespace isotrain::kernels::test
