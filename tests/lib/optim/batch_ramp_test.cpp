#include "lib/optim/batch_ramp.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "lib/base/error.h"

namespace isotrain::test {
namespace {

/// DeepSeek-V3's ramp; V3 cuts batches in multiples of its 128 data-parallel ranks.
BatchRamp v3_ramp() {
  return BatchRamp({.start = 3072, .full = 15360, .ramp_tokens = 469'000'000'000, .multiple = 128, .sequence = 4096});
}

std::string message_of(BatchRamp::Settings const& settings) {
  try {
    BatchRamp const ramp(settings);
  } catch (UsageError const& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
  return "no error";
}

TEST(BatchRamp, WithoutARampEveryStepIsFull) {
  BatchRamp const ramp({.full = 12, .multiple = 4, .sequence = 64});
  EXPECT_EQ(ramp.sequences(0), 12);
  EXPECT_EQ(ramp.sequences(1'000'000), 12);
  EXPECT_EQ(ramp.tokens_after(0), 0);
  EXPECT_EQ(ramp.tokens_after(5), 5 * 12 * 64);
}

TEST(BatchRamp, RisesLinearlyInTokensInWholeMultiples) {
  BatchRamp const ramp = v3_ramp();
  EXPECT_EQ(ramp.sequences(0), 3072);
  // 96 multiples of 128 to climb: the first after a 96th of the tokens.
  std::int64_t const stair = 469'000'000'000 / 96;
  EXPECT_EQ(ramp.sequences(stair), 3072);
  EXPECT_EQ(ramp.sequences(stair + 1), 3072 + 128);
  EXPECT_EQ(ramp.sequences(469'000'000'000 / 2), 3072 + 48 * 128);
  EXPECT_EQ(ramp.sequences(469'000'000'000 - 1), 15360 - 128);
  EXPECT_EQ(ramp.sequences(469'000'000'000), 15360);
  EXPECT_EQ(ramp.sequences(14'800'000'000'000), 15360);
}

TEST(BatchRamp, NeverFallsAndKeepsTheMultiple) {
  BatchRamp const ramp({.start = 6, .full = 42, .ramp_tokens = 1000, .multiple = 6, .sequence = 1});
  std::int64_t before = 0;
  for (std::int64_t tokens = 0; tokens < 1100; ++tokens) {
    std::int64_t const now = ramp.sequences(tokens);
    EXPECT_GE(now, before);
    EXPECT_EQ(now % 6, 0);
    before = now;
  }
  EXPECT_EQ(before, 42);
}

TEST(BatchRamp, TokensAfterIsTheSumOverSteps) {
  BatchRamp const ramp({.start = 2, .full = 16, .ramp_tokens = 3000, .multiple = 2, .sequence = 8});
  std::int64_t tokens = 0;
  for (std::int64_t step = 0; step < 100; ++step) {
    EXPECT_EQ(ramp.tokens_after(step), tokens) << "after step " << step;
    tokens += ramp.sequences(tokens) * 8;
  }
  EXPECT_GT(tokens, 3000);
}

TEST(BatchRamp, AFlatRampIsNoRamp) {
  BatchRamp const ramp({.start = 8, .full = 8, .ramp_tokens = 100, .multiple = 8, .sequence = 1});
  EXPECT_EQ(ramp.sequences(50), 8);
}

TEST(BatchRamp, WrongSettingsAreNamed) {
  EXPECT_EQ(message_of({.full = 10, .multiple = 4}),
            "--train.global_batch = 10 cannot be divided evenly (it must be a multiple of 4, the lanes times the "
            "micro-batch); use 8 or 12");
  EXPECT_EQ(message_of({.full = 3, .multiple = 4}),
            "--train.global_batch = 3 cannot be divided evenly (it must be a multiple of 4, the lanes times the "
            "micro-batch); use 4");
  EXPECT_EQ(message_of({.full = 0}), "--train.global_batch = 0 is not a batch (it must be at least 1)");
  EXPECT_EQ(message_of({.start = 6, .full = 8, .ramp_tokens = 10, .multiple = 4}),
            "--train.ramp_batch = 6 cannot be divided evenly (it must be a multiple of 4, the lanes times the "
            "micro-batch); use 4 or 8");
  EXPECT_EQ(message_of({.start = 16, .full = 8, .ramp_tokens = 10}),
            "the batch ramp goes down (--train.ramp_batch = 16 is above --train.global_batch = 8)");
  EXPECT_EQ(message_of({.start = 4, .full = 8}),
            "half a batch ramp is given (--train.ramp_batch = 4, --train.ramp_tokens = 0); give both or neither");
  EXPECT_EQ(message_of({.start = 0, .full = 8, .ramp_tokens = 10}),
            "half a batch ramp is given (--train.ramp_batch = 0, --train.ramp_tokens = 10); give both or neither");
  EXPECT_EQ(message_of({.start = -4, .full = 8, .ramp_tokens = 10}),
            "the batch ramp has a negative size (--train.ramp_batch = -4, --train.ramp_tokens = 10)");
  EXPECT_THROW(BatchRamp({.full = 8, .multiple = 0}), std::logic_error);
  EXPECT_THROW(BatchRamp({.full = 8}).sequences(-1), std::logic_error);
}

}  // namespace
}  // namespace isotrain::test
