// A checkpoint knows nothing of the layout that wrote it: a run that goes on elsewhere is the run that never stopped,
// and the other commands say of it what they say of one rank's.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/app/layout.h"
#include "tests/app/tiny_run.h"

namespace isotrain::test {
namespace {

constexpr char const* num_steps = "8";

class Relayout : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  static void SetUpTestSuite() { world_ = new TinyWorld; }
  static void TearDownTestSuite() { delete world_; }

  std::string const& model() const { return std::get<0>(GetParam()); }
  std::string const& precision() const { return std::get<1>(GetParam()); }
  std::string folder(std::string const& name) const { return name + "-" + model() + "-" + precision(); }

  /// Runs of 18 tokens a sequence, which 4 slices do not divide.
  ProgramResult train(Layout layout, std::string const& name, std::vector<std::string> const& more = {}) const {
    layout.precision = precision();
    auto settings = layout.arguments();
    settings.insert(settings.end(), {"--train.steps", num_steps, "--train.sequence", "18"});
    settings.insert(settings.end(), more.begin(), more.end());
    return run(mpirun(layout.ranks(), world_->train(model(), folder(name), settings)), {}, 300);
  }
  std::vector<TinyWorld::Step> whole() const {
    auto const result = train({}, "whole");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return world_->steps(folder("whole"));
  }
  bool has_experts() const { return model() != "tied"; }

  static TinyWorld* world_;
};
TinyWorld* Relayout::world_ = nullptr;

/// After each step to another layout, and back to the first.
TEST_P(Relayout, EveryStepOnAnother) {
  std::vector<Layout> const legs{
      {.tensor = 2, .pipeline = 2},
      {.data = 3, .micro_batch = 1},
      {.pipeline = 2, .data = 2, .expert = has_experts() ? 2 : 1, .schedule = "dualpipev", .micro_batch = 1},
      {.tensor = 4, .recompute = "full"},
      {.pipeline = 4, .schedule = "interleaved", .micro_batch = 2},
      {.tensor = 2, .data = 4, .expert = has_experts() ? 4 : 1, .recompute = "selective"},
      {.tensor = 2, .pipeline = 3, .schedule = "zb-h1"},
      {.tensor = 2, .pipeline = 2}};
  auto const expected = whole();
  for (std::size_t i = 0; i < legs.size(); ++i) {
    SCOPED_TRACE(legs[i].name());
    bool const last = i + 1 == legs.size();
    auto const result = train(legs[i], "moved", {"--run.max_seconds", last ? "0" : "0.001"});
    EXPECT_EQ(result.exit_code, last ? 0 : 75) << result.err;
    ASSERT_EQ(world_->steps(folder("moved")).size(), i + 1);
  }
  EXPECT_EQ(world_->steps(folder("moved")), expected);
}

/// Had a leg not taken over the state of the one before, the steps would differ: the comparison can tell.
TEST_P(Relayout, NegativeControl) {
  auto const expected = whole();
  EXPECT_EQ(train({.tensor = 2, .pipeline = 2}, "control", {"--run.max_seconds", "0.001"}).exit_code, 75);
  auto const result = train({.data = 3}, "control", {"--optim.weight_decay", "0.2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(world_->steps(folder("control")), expected);
}

TEST_P(Relayout, OtherCommandsSeeTheSame) {
  EXPECT_EQ(train({}, "one", {"--run.max_seconds", "0.001"}).exit_code, 75);
  EXPECT_EQ(train({.tensor = 2, .pipeline = 2}, "four", {"--run.max_seconds", "0.001"}).exit_code, 75);
  auto const outputs = [&](std::string const& name) {
    std::string const checkpoint = *world_ / folder(name) / "checkpoints" / checkpoint_name(1);
    std::vector<std::string> all;
    for (std::vector<std::string> const& command :
         {std::vector<std::string>{"inspect", checkpoint, "--verify"},
          {"eval", checkpoint},
          {"generate", checkpoint, "--prompt", "the ear", "--tokens", "30"}}) {
      auto const result = run(isotrain(command));
      EXPECT_EQ(result.exit_code, 0) << result.err;
      std::string text = result.out;
      for (auto at = text.find(folder(name)); at != std::string::npos; at = text.find(folder(name))) {
        text.replace(at, folder(name).size(), "RUN");
      }
      all.push_back(text);
    }
    return all;
  };
  auto const one = outputs("one"), four = outputs("four");
  EXPECT_EQ(one, four);
  EXPECT_NE(one[1].find("loss="), std::string::npos) << one[1];
}

using Case = std::tuple<std::string, std::string>;
INSTANTIATE_TEST_SUITE_P(All, Relayout,
                         testing::Values(Case{"deep-moe", "fp32"}, Case{"deep-moe", "tiles"}, Case{"tied", "fp32"}),
                         [](auto const& info) {
                           std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace isotrain::test
