// The promise: the fingerprint, the losses and the gradient norm of every step are the same bits whatever ranks and
// their parallelism, schedule, micro-batch, threads, recomputation and instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/app/layout_runs.h"

namespace isotrain::test {
namespace {

struct Variant {
  char const* name;
  int ranks;
  std::vector<std::string> arguments;
};

std::vector<Variant> const same_bits{
    {"5 ranks", 5, {}},
    {"6 ranks", 6, {}},
    {"8 ranks", 8, {}},
    {"2 threads", 1, {"--device.threads", "2"}},
    {"2 threads, micro-batch 2, 2 ranks", 2, {"--device.threads", "2", "--train.micro_batch", "2"}},
    {"scalar", 1, {"--device.isa", "scalar"}},
    {"AVX2", 2, {"--device.isa", "avx2"}},
    {"AVX-512", 1, {"--device.isa", "avx512"}},
    {"sums over lanes beside the backward pass of other layers, 3 ranks",
     3,
     {"--parallel.schedule", "interleaved", "--parallel.virtual_stages", "2"}},
    {"sums over lanes afterwards, 3 ranks",
     3,
     {"--parallel.schedule", "interleaved", "--parallel.virtual_stages", "2", "--parallel.overlap", "false"}},
    {"checked and watched, 3 ranks", 3, {"--debug.check_collectives", "--debug.timeout_s", "60"}},
};

/// What changes the computation must change the bits, or the test above proves nothing.
std::vector<Variant> const other_bits{
    {"4 lanes", 1, {"--repro.lanes", "4"}},
    {"2 slices", 1, {"--repro.slices", "2"}},
    {"another seed", 1, {"--train.seed", "2"}},
};

class OneLayout : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  static void SetUpTestSuite() { world_ = new TinyWorld; }
  static void TearDownTestSuite() { delete world_; }

  std::vector<TinyWorld::Step> train(Variant const& variant) {
    auto const& [model, precision] = GetParam();
    std::string const folder = "run-" + std::to_string(runs_++);
    auto arguments = precision_arguments(precision);
    arguments.insert(arguments.end(), variant.arguments.begin(), variant.arguments.end());
    auto const result = run(mpirun(variant.ranks, world_->train(model, folder, arguments)));
    skipped_ = result.exit_code == 2 && result.err.find("lacks the instruction set") != std::string::npos;
    if (skipped_) return {};
    EXPECT_EQ(result.exit_code, 0) << variant.name << "\n" << result.err;
    return world_->steps(folder);
  }

  static TinyWorld* world_;
  static int runs_;
  bool skipped_ = false;
};
TinyWorld* OneLayout::world_ = nullptr;
int OneLayout::runs_ = 0;

TEST_P(OneLayout, OfRanksThreadsAndInstructionsGivesTheSameBits) {
  auto const expected = train({"1 rank", 1, {}});
  ASSERT_EQ(expected.size(), 4U);
  EXPECT_LT(expected.back().loss, expected.front().loss);
  for (auto const& variant : same_bits) {
    SCOPED_TRACE(variant.name);
    auto const steps = train(variant);
    if (skipped_) continue;
    EXPECT_EQ(steps, expected);
  }
  for (auto const& variant : other_bits) {
    SCOPED_TRACE(variant.name);
    auto const steps = train(variant);
    ASSERT_EQ(steps.size(), 4U);
    EXPECT_NE(steps.back().fingerprint, expected.back().fingerprint);
  }
}

using Case = std::tuple<std::string, std::string>;
INSTANTIATE_TEST_SUITE_P(All, OneLayout,
                         testing::Values(Case{"llama", "fp32"}, Case{"llama", "tiles"}, Case{"moe", "fp32"},
                                         Case{"moe", "tiles"}, Case{"moe", "pairs"}),
                         [](auto const& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });

/// Every two values of tp, pp, dp, ep, schedule, micro-batch, precision and recomputation at least once; all
/// combinations are in layout_matrix.
class LayoutMatrix : public testing::TestWithParam<std::vector<std::pair<std::string, bool>>> {
 protected:
  static constexpr int num_steps = 4;
};

TEST_P(LayoutMatrix, GivesTheSameBits) {
  std::vector<Layout> all;
  for (auto const& [model, has_experts] : GetParam()) {
    auto const more = all_layouts(model, has_experts);
    all.insert(all.end(), more.begin(), more.end());
  }
  LayoutRuns runs(num_steps);
  for (auto const& layout : covering_pairs(all)) EXPECT_EQ(runs.difference(layout), "") << layout.name();
}

INSTANTIATE_TEST_SUITE_P(All, LayoutMatrix,
                         testing::Values(std::vector{test_models[0]}, std::vector{test_models[1]},
                                         std::vector{test_models[2], test_models[3]}),
                         [](auto const& info) {
                           std::string name;
                           for (auto const& [model, has_experts] : info.param) name += model + "_";
                           std::ranges::replace(name, '-', '_');
                           return name + "layouts";
                         });

/// What the matrix does not vary: a batch that grows, all of V2's balancing losses, eight ranks on one axis, a cut of
/// layers that was asked for.
TEST(OtherSettings, GiveTheSameBits) {
  LayoutRuns runs(4);
  std::vector<std::string> const growing{"--train.ramp_batch", "8", "--train.ramp_tokens", "1000"};
  std::vector<std::string> const balanced{"--balance.device_alpha",  "0.05", "--balance.comm_alpha",  "0.02",
                                          "--balance.device_groups", "4",    "--balance.max_devices", "2"};
  Layout const most{.tensor = 2, .pipeline = 2, .data = 2, .expert = 2, .schedule = "dualpipev", .micro_batch = 1};
  Layout const uneven{.pipeline = 2, .data = 3, .schedule = "zb-h1", .micro_batch = 1, .recompute = "selective"};
  Layout const wide{.data = 8, .expert = 8, .micro_batch = 1};
  for (auto const& [model, settings] : {std::pair(std::string("deep-moe"), growing), {"v2-lite", balanced}}) {
    Layout one{.micro_batch = 1};
    one.model = model;
    auto const expected = runs.steps(one, settings);
    EXPECT_NE(expected, runs.expected(model, "fp32"));
    for (Layout layout : {most, uneven, wide}) {
      layout.model = model;
      EXPECT_EQ(runs.steps(layout, settings), expected) << layout.name();
    }
  }
  EXPECT_EQ(runs.difference({.pipeline = 2, .data = 2}, {"--parallel.layers", "1,7"}), "");
  EXPECT_EQ(runs.difference({.tensor = 2, .pipeline = 2, .schedule = "interleaved"},
                            {"--parallel.virtual_stages", "3", "--parallel.layers", "1,2,1,1,2,1"}),
            "");
}

/// Who comes first must not matter: every rank sleeps at random before it talks to another.
TEST(RandomDelays, LeaveTheBits) {
  LayoutRuns runs(2);
  for (Layout const& layout : {Layout{.tensor = 2, .pipeline = 2, .data = 2, .expert = 2, .schedule = "dualpipev"},
                               Layout{.pipeline = 4, .data = 2, .expert = 2, .schedule = "zb-h1"},
                               Layout{.data = 5, .recompute = "selective"}}) {
    EXPECT_EQ(runs.difference(layout, {"--debug.random_delays_ms", "2"}), "") << layout.name();
  }
}

/// The windows of the validation split are not shared out evenly, so that some ranks have passes without any.
TEST(Validation, GivesTheSameBits) {
  LayoutRuns runs(2);
  std::vector<std::string> const every_step{"--eval.every", "1", "--eval.windows", "37"};
  auto const loss = [&](Layout const& layout) {
    auto const steps = runs.steps(layout, every_step);
    std::vector<double> losses;
    for (auto const& step : steps) losses.push_back(step.validation_loss.value_or(0));
    return losses;
  };
  auto const expected = loss({});
  ASSERT_EQ(expected.size(), 2U);
  EXPECT_GT(expected.back(), 0);
  EXPECT_NE(expected.front(), expected.back());
  for (Layout const& layout : {Layout{.tensor = 2, .pipeline = 2, .data = 2, .expert = 2, .schedule = "dualpipev"},
                               Layout{.pipeline = 2, .data = 4, .expert = 4, .schedule = "interleaved"},
                               Layout{.data = 8, .expert = 4, .micro_batch = 2}, Layout{.tensor = 2, .data = 3}}) {
    EXPECT_EQ(loss(layout), expected) << layout.name();
  }
}

TEST(LayoutCover, HasEveryPairThatFits) {
  auto const all = all_layouts("deep-moe", true);
  auto const cover = covering_pairs(all);
  EXPECT_LT(cover.size(), 40U);
  auto const pairs = [](std::vector<Layout> const& layouts, std::size_t a, std::size_t b) {
    std::set<std::pair<std::string, std::string>> result;
    for (auto const& layout : layouts) {
      auto const factors = layout.factors();
      result.emplace(factors[a], factors[b]);
    }
    return result;
  };
  std::size_t const factors = all.front().factors().size();
  for (std::size_t a = 0; a < factors; ++a) {
    for (std::size_t b = a + 1; b < factors; ++b) EXPECT_EQ(pairs(cover, a, b), pairs(all, a, b));
  }
  // Not cut short by a layout that was never there.
  EXPECT_TRUE(
      std::ranges::any_of(all, [](Layout const& x) { return x.tensor == 2 && x.pipeline == 2 && x.expert == 2; }));
}

/// The comparison can tell: the same layout with another seed is not one rank's run.
TEST(LayoutCover, NegativeControl) {
  LayoutRuns runs(2);
  Layout const layout{.tensor = 2, .pipeline = 2};
  EXPECT_EQ(runs.difference(layout), "");
  EXPECT_NE(runs.difference(layout, {"--train.seed", "2"}).find("but on one rank"), std::string::npos);
}

}  // namespace
}  // namespace isotrain::test
