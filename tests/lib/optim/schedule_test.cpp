#include "lib/optim/schedule.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "lib/base/error.h"

namespace isotrain::test {
namespace {

constexpr std::int64_t trillion = 1'000'000'000'000;

RunPlan plan_of(std::int64_t steps, double warmup, std::int64_t batch = 4, std::int64_t sequence = 16) {
  return plan_run(steps, BatchRamp({.full = batch, .sequence = sequence}), warmup);
}

/// The rates of all steps of a run.
std::vector<double> rates(LearningRate::Settings const& settings, RunPlan const& plan) {
  LearningRate const rate(settings, plan);
  std::vector<double> all;
  for (std::int64_t step = 1; step <= plan.steps; ++step) {
    all.push_back(rate.at(step, plan.tokens / plan.steps * (step - 1)));
  }
  return all;
}

std::string message_of(LearningRate::Settings const& settings) {
  try {
    LearningRate const rate(settings, plan_of(10, 0));
  } catch (UsageError const& error) {
    return error.what();
  }
  return "no error";
}

TEST(RunPlan, WarmUpIsAFractionOrANumberOfSteps) {
  RunPlan const plan = plan_of(2000, 0.08);
  EXPECT_EQ(plan.steps, 2000);
  EXPECT_EQ(plan.tokens, 2000 * 64);
  EXPECT_EQ(plan.warmup_steps, 160);
  EXPECT_EQ(plan.warmup_tokens, 160 * 64);
  EXPECT_EQ(plan_of(2000, 0).warmup_steps, 0);
  EXPECT_EQ(plan_of(2000, 1).warmup_steps, 1);
  EXPECT_EQ(plan_of(2000, 300).warmup_steps, 300);
  EXPECT_EQ(plan_of(10, 300).warmup_steps, 300);
  EXPECT_EQ(plan_of(1, 0.08).warmup_steps, 0);
  EXPECT_EQ(plan_of(7, 0.08).warmup_steps, 1);  // 0.56 rounds up
  EXPECT_EQ(plan_of(0, 0.08).tokens, 0);
}

TEST(RunPlan, CountsTheTokensOfABatchRamp) {
  BatchRamp const ramp({.start = 2, .full = 8, .ramp_tokens = 500, .multiple = 2, .sequence = 10});
  RunPlan const plan = plan_run(50, ramp, 5);
  EXPECT_EQ(plan.tokens, ramp.tokens_after(50));
  EXPECT_EQ(plan.warmup_tokens, ramp.tokens_after(5));
  EXPECT_LT(plan.tokens, 50 * 80);
}

TEST(RunPlan, WrongWarmUpsAreRefused) {
  for (double const warmup : {-1.0, 1.5, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(plan_of(10, warmup), UsageError) << warmup;
  }
}

TEST(LearningRate, WarmUpIsLinearFromZero) {
  for (char const* name : {"constant", "cosine", "step", "v3", "wsd"}) {
    LearningRate const rate({.schedule = name, .peak = 1e-3}, plan_of(1000, 10));
    EXPECT_EQ(rate.at(0, 0), 0) << name;
    EXPECT_DOUBLE_EQ(rate.at(1, 0), 1e-4) << name;
    EXPECT_DOUBLE_EQ(rate.at(5, 4 * 64), 5e-4) << name;
    EXPECT_EQ(rate.at(10, 9 * 64), 1e-3) << name;
    EXPECT_EQ(rate.at(11, 10 * 64), 1e-3) << name;  // the peak, once more as the first step after
  }
}

TEST(LearningRate, AWarmUpLongerThanTheRunNeverReachesThePeak) {
  auto const all = rates({.peak = 1.0}, plan_of(10, 40));
  EXPECT_DOUBLE_EQ(all.front(), 1.0 / 40);
  EXPECT_DOUBLE_EQ(all.back(), 10.0 / 40);
}

TEST(LearningRate, WithoutWarmUpTheFirstStepHasThePeak) {
  for (char const* name : {"constant", "cosine", "step", "v3", "wsd"}) {
    EXPECT_EQ(rates({.schedule = name, .peak = 0.5}, plan_of(100, 0)).front(), 0.5) << name;
    EXPECT_EQ(rates({.schedule = name, .peak = 0.5}, plan_of(1, 0.08)).front(), 0.5) << name;
  }
}

TEST(LearningRate, CosineFollowsItsDefinition) {
  RunPlan const plan = plan_of(1000, 0.08);
  auto const all = rates({.schedule = "cosine", .peak = 3e-4, .floor = 0.01}, plan);
  for (std::int64_t step = 81; step <= 1000; ++step) {
    double const p = (step - 1 - 80) / 920.0;
    double const expected = 3e-4 * (0.01 + 0.99 * 0.5 * (1 + std::cos(std::numbers::pi * p)));
    EXPECT_NEAR(all[step - 1], expected, 1e-18) << step;
    if (step > 81) {
      EXPECT_LT(all[step - 1], all[step - 2]) << step;
    }
  }
  LearningRate const rate({.schedule = "cosine", .peak = 3e-4, .floor = 0.01}, plan);
  EXPECT_DOUBLE_EQ(rate.at(1001, plan.tokens), 3e-6);
  EXPECT_DOUBLE_EQ(rate.at(2000, 2 * plan.tokens), 3e-6);  // past the end: stays
}

TEST(LearningRate, ConstantStays) {
  for (double const rate : rates({.schedule = "constant", .peak = 0.25}, plan_of(50, 0))) EXPECT_EQ(rate, 0.25);
}

TEST(LearningRate, StepHasTheStagesOfDeepSeekV2) {
  // 8.1T tokens at 2.4e-4: stages 2.4e-4, 7.584e-5, 2.397e-5.
  RunPlan const plan{.steps = 214'577, .tokens = 81 * trillion / 10, .warmup_steps = 2000, .warmup_tokens = 1};
  LearningRate const rate({.schedule = "step", .peak = 2.4e-4}, plan);
  std::int64_t const first = plan.tokens / 10 * 6;
  std::int64_t const second = plan.tokens / 10 * 9;
  EXPECT_EQ(rate.at(3000, first - 1), 2.4e-4);
  EXPECT_DOUBLE_EQ(rate.at(3000, first), 7.584e-5);
  EXPECT_DOUBLE_EQ(rate.at(3000, second - 1), 7.584e-5);
  EXPECT_DOUBLE_EQ(rate.at(3000, second), 2.4e-4 * 0.316 * 0.316);
  EXPECT_NEAR(rate.at(3000, second), 2.397e-5, 0.5e-8);
  EXPECT_EQ(rate.at(3000, plan.tokens), rate.at(3000, second));
  // V2-Lite: 4.2e-4, 1.3272e-4, 4.194e-5 at 80 % and 90 %.
  LearningRate const lite({.schedule = "step", .peak = 4.2e-4, .step_first = 0.8}, plan);
  EXPECT_EQ(lite.at(3000, plan.tokens / 10 * 8 - 1), 4.2e-4);
  EXPECT_DOUBLE_EQ(lite.at(3000, plan.tokens / 10 * 8), 1.3272e-4);
  EXPECT_NEAR(lite.at(3000, second), 4.194e-5, 0.5e-8);
}

TEST(LearningRate, V3HasThePhasesOfThePaper) {
  RunPlan const plan{.steps = 240'000, .tokens = 148 * trillion / 10, .warmup_steps = 2000, .warmup_tokens = 1};
  LearningRate const rate({.schedule = "v3", .peak = 2.2e-4}, plan);
  auto const at = [&](std::int64_t tokens) { return rate.at(2001, tokens); };
  EXPECT_EQ(at(0), 2.2e-4);
  EXPECT_EQ(at(10 * trillion), 2.2e-4);
  EXPECT_LT(at(10 * trillion + trillion / 100), 2.2e-4);
  for (std::int64_t n = 10 * trillion; n <= 143 * trillion / 10; n += trillion / 10) {
    double const p = static_cast<double>(n - 10 * trillion) / (4.3 * trillion);
    EXPECT_NEAR(at(n), 2.2e-5 + 0.5 * (2.2e-4 - 2.2e-5) * (1 + std::cos(std::numbers::pi * p)), 1e-18) << n;
  }
  EXPECT_DOUBLE_EQ(at(143 * trillion / 10), 2.2e-5);
  EXPECT_DOUBLE_EQ(at(145 * trillion / 10), 2.2e-5);
  EXPECT_DOUBLE_EQ(at(14'633 * trillion / 1000), 2.2e-5);
  EXPECT_DOUBLE_EQ(at(14'633 * trillion / 1000 + 1), 7.3e-6);
  EXPECT_DOUBLE_EQ(at(148 * trillion / 10), 7.3e-6);
}

TEST(LearningRate, WsdDecaysAtTheEnd) {
  RunPlan const plan = plan_of(100, 10, 1, 1);
  LearningRate const linear({.schedule = "wsd", .peak = 1.0, .floor = 0.1, .decay_fraction = 0.2}, plan);
  EXPECT_EQ(linear.at(50, 49), 1.0);
  EXPECT_EQ(linear.at(81, 80), 1.0);
  EXPECT_NEAR(linear.at(91, 90), 0.55, 1e-15);
  EXPECT_NEAR(linear.at(101, 100), 0.1, 1e-15);
  LearningRate const root({.schedule = "wsd", .peak = 1.0, .floor = 0.0, .decay_fraction = 0.2, .decay_shape = "sqrt"},
                          plan);
  EXPECT_EQ(root.at(81, 80), 1.0);
  EXPECT_NEAR(root.at(86, 85), 0.5, 1e-15);  // 1 - sqrt(1/4)
  EXPECT_GT(root.at(100, 99), 0);
  EXPECT_NEAR(root.at(101, 100), 0, 1e-15);
  EXPECT_EQ(rates({.schedule = "wsd", .peak = 1.0, .decay_fraction = 0}, plan).back(), 1.0);
}

TEST(LearningRate, NoScheduleRisesAfterTheWarmUp) {
  for (char const* name : {"constant", "cosine", "step", "v3", "wsd"}) {
    for (char const* shape : {"linear", "sqrt"}) {
      auto const all = rates({.schedule = name, .peak = 1.0, .decay_shape = shape}, plan_of(777, 0.08));
      for (std::size_t i = 63; i < all.size(); ++i) {
        EXPECT_LE(all[i], all[i - 1]) << name << " step " << i + 1;
        EXPECT_GT(all[i], 0) << name << " step " << i + 1;
      }
    }
  }
}

TEST(LearningRate, GivesTheseBitsOnEveryMachine) {
  RunPlan const plan = plan_of(1000, 0.08);
  auto const bits = [&](char const* name, char const* shape, std::int64_t step) {
    LearningRate const rate({.schedule = name, .peak = 3e-4, .decay_shape = shape}, plan);
    return std::bit_cast<std::uint64_t>(rate.at(step, 64 * (step - 1)));
  };
  EXPECT_EQ(bits("cosine", "linear", 37), 4549250995497284864u);
  EXPECT_EQ(bits("cosine", "linear", 500), 4550485931205792440u);
  EXPECT_EQ(bits("cosine", "linear", 1000), 4524196020301343165u);
  EXPECT_EQ(bits("v3", "linear", 800), 4551390288897082343u);
  EXPECT_EQ(bits("wsd", "sqrt", 900), 4546346136654592579u);
}

TEST(LearningRate, WrongSettingsAreNamed) {
  EXPECT_EQ(message_of({.schedule = "cosin"}),
            "unknown --optim.schedule 'cosin' (choices: constant, cosine, step, v3, wsd)");
  EXPECT_EQ(message_of({.decay_shape = "round"}), "unknown --optim.decay_shape 'round' (choices: linear, sqrt)");
  EXPECT_EQ(message_of({.peak = -1}), "--optim.lr = -1 is out of range (it must be between 0 and 1e+06)");
  EXPECT_EQ(message_of({.peak = std::numeric_limits<double>::quiet_NaN()}),
            "--optim.lr = nan is out of range (it must be between 0 and 1e+06)");
  EXPECT_EQ(message_of({.floor = 1.5}), "--optim.floor = 1.5 is out of range (it must be between 0 and 1)");
  EXPECT_EQ(message_of({.step_first = -0.1}), "--optim.step_first = -0.1 is out of range (it must be between 0 and 1)");
  EXPECT_EQ(message_of({.step_second = 0.5}),
            "--optim.step_second = 0.5 is out of range (it must be between 0.6 and 1)");
  EXPECT_EQ(message_of({.step_factor = 2}), "--optim.step_factor = 2 is out of range (it must be between 0 and 1)");
  EXPECT_EQ(message_of({.decay_fraction = 1.1}),
            "--optim.decay_fraction = 1.1 is out of range (it must be between 0 and 1)");
}

}  // namespace
}  // namespace isotrain::test
