// The promise: the fingerprint and the loss after every step are the same bits whatever ranks, micro-batch, threads,
// recomputation and instruction set.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/app/tiny_run.h"

namespace isotrain::test {
namespace {

struct Variant {
  char const* name;
  int ranks;
  std::vector<std::string> arguments;
};

std::vector<Variant> const same_bits{
    {"2 ranks", 2, {}},
    {"3 ranks", 3, {}},
    {"4 ranks", 4, {}},
    {"5 ranks", 5, {}},
    {"6 ranks", 6, {}},
    {"8 ranks", 8, {}},
    {"micro-batch 1", 1, {"--train.micro_batch", "1"}},
    {"micro-batch 2", 1, {"--train.micro_batch", "2"}},
    {"micro-batch 4, 3 ranks", 3, {"--train.micro_batch", "4"}},
    {"2 threads", 1, {"--device.threads", "2"}},
    {"2 threads, micro-batch 2, 2 ranks", 2, {"--device.threads", "2", "--train.micro_batch", "2"}},
    {"scalar", 1, {"--device.isa", "scalar"}},
    {"AVX2", 2, {"--device.isa", "avx2"}},
    {"AVX-512", 1, {"--device.isa", "avx512"}},
    {"selective recomputation", 2, {"--model.recompute", "selective"}},
    {"checked and watched, 3 ranks", 3, {"--debug.check_collectives", "--debug.timeout_s", "60"}},
    {"full recomputation, micro-batch 2", 1, {"--model.recompute", "full", "--train.micro_batch", "2"}},
};

/// What changes the computation must change the bits, or the test above proves nothing.
std::vector<Variant> const other_bits{
    {"4 lanes", 1, {"--repro.lanes", "4"}},
    {"2 slices", 1, {"--repro.slices", "2"}},
    {"another seed", 1, {"--train.seed", "2"}},
};

class Layouts : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  static void SetUpTestSuite() { world_ = new TinyWorld; }
  static void TearDownTestSuite() { delete world_; }

  std::vector<TinyWorld::Step> train(Variant const& variant) {
    auto const& [model, precision] = GetParam();
    std::string const folder = "run-" + std::to_string(runs_++);
    auto arguments = variant.arguments;
    arguments.insert(arguments.end(), {"--model.precision", precision == "pairs" ? "bf16" : precision});
    if (precision == "pairs") arguments.insert(arguments.end(), {"--repro.bf16", "pairs"});
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
TinyWorld* Layouts::world_ = nullptr;
int Layouts::runs_ = 0;

TEST_P(Layouts, GiveTheSameBits) {
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
INSTANTIATE_TEST_SUITE_P(All, Layouts,
                         testing::Values(Case{"llama", "fp32"}, Case{"llama", "bf16"}, Case{"moe", "fp32"},
                                         Case{"moe", "bf16"}, Case{"moe", "pairs"}),
                         [](auto const& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });

}  // namespace
}  // namespace isotrain::test
