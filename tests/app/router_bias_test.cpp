// The bias that balances experts moves once a step, by the loads of the whole batch: not for each micro-batch, rank or
// recomputation.
#include <gtest/gtest.h>

#include <cmath>

#include "lib/train/stored_model.h"
#include "tests/app/layout.h"
#include "tests/app/tiny_run.h"

namespace isotrain::test {
namespace {

// 1e-3 would be the default.
constexpr float rate = 0.25F;

class RouterBias : public testing::Test {
 protected:
  std::vector<float> after(int steps, Layout const& layout) {
    std::string const folder = "run-" + std::to_string(runs_++);
    auto settings = layout.arguments();
    settings.insert(settings.end(), {"--train.sequence", "18", "--train.steps", std::to_string(steps),
                                     "--balance.bias_rate", "0.25", "--balance.bias_fraction", "1"});
    auto const result = run(mpirun(layout.ranks(), world_.train(layout.model, folder, settings)));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    auto const stored = open_stored_model(world_ / folder);
    return stored_router_biases(stored.reader.header(), stored.config);
  }

  std::vector<Layout> const layouts_{
      {.micro_batch = 1},
      {.micro_batch = 1, .recompute = "full"},
      {.tensor = 2, .pipeline = 2, .micro_batch = 2, .recompute = "selective"},
      {.pipeline = 2, .data = 2, .expert = 2, .schedule = "dualpipev", .micro_batch = 1, .recompute = "full"},
      {.tensor = 2, .data = 4, .expert = 4},
      {.data = 3}};
  TinyWorld world_;
  int runs_ = 0;
};

TEST_F(RouterBias, MovesOncePerStep) {
  auto const one = after(1, {});
  ASSERT_EQ(one.size(), 7U * 8U);
  int moved = 0;
  for (float const bias : one) {
    EXPECT_TRUE(bias == 0 || std::abs(bias) == rate) << bias;
    moved += bias != 0;
  }
  EXPECT_GT(moved, 40);
  auto const three = after(3, {});
  EXPECT_NE(three, one);
  for (float const bias : three) EXPECT_LE(std::abs(bias), 3 * rate);
  for (auto const& layout : layouts_) {
    EXPECT_EQ(after(1, layout), one) << layout.name();
    EXPECT_EQ(after(3, layout), three) << layout.name();
  }
}

}  // namespace
}  // namespace isotrain::test
