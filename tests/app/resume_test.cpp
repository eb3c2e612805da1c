// A run that was stopped, killed or moved to other ranks is the run that never stopped, bit for bit.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "tests/app/tiny_run.h"

namespace isotrain::test {
namespace {

namespace fs = std::filesystem;

class Resume : public testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    world_ = new TinyWorld;
    for (std::string const precision : {"fp32", "bf16"}) {
      auto const result = run(mpirun(
          2, world_->train("moe", "whole-" + precision, {"--train.steps", "12", "--model.precision", precision})));
      ASSERT_EQ(result.exit_code, 0) << result.err;
    }
  }
  static void TearDownTestSuite() { delete world_; }

  std::vector<TinyWorld::Step> whole() const { return world_->steps("whole-" + GetParam()); }
  std::vector<std::string> train(std::string const& folder, std::vector<std::string> more) const {
    more.insert(more.end(), {"--train.steps", "12", "--model.precision", GetParam()});
    return world_->train("moe", folder, more);
  }
  /// Waits until a run has come as far as `step`.
  void wait_for(std::string const& folder, std::size_t step, Program& program) const {
    while (program.running() && world_->steps_so_far(folder) < step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  static TinyWorld* world_;
};
TinyWorld* Resume::world_ = nullptr;

TEST_P(Resume, AfterKillOnOtherRanks) {
  std::string const folder = "killed-" + GetParam();
  {
    // Enough steps that it cannot end before it is killed, which does not change those that are compared.
    Program program(mpirun(3, train(folder, {"--checkpoint.every", "2"})));
    wait_for(folder, 5, program);
    program.kill_group();
  }
  auto const before = world_->steps_so_far(folder);
  ASSERT_GE(before, 5U);
  ASSERT_TRUE(fs::exists(*world_ / folder / "checkpoints"));
  auto const resumed = run(mpirun(4, train(folder, {"--checkpoint.every", "2"})));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(world_->steps(folder), whole());
}

TEST_P(Resume, AfterSignal) {
  for (int const number : {SIGUSR1, SIGINT, SIGTERM}) {
    std::string const folder = "signal-" + std::to_string(number) + "-" + GetParam();
    Program program(isotrain(train(folder, {})));
    wait_for(folder, 2, program);
    program.signal(number);
    auto const stopped = program.wait();
    EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
    EXPECT_NE(stopped.out.find("done step="), std::string::npos) << stopped.out;
    auto const done = world_->steps(folder).size();
    EXPECT_TRUE(fs::exists(*world_ / folder / "checkpoints" / checkpoint_name(done)));
    auto const resumed = run(mpirun(3, train(folder, {})));
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(world_->steps(folder), whole());
  }
}

TEST_P(Resume, SignalThroughMpirun) {
  std::string const folder = "usr1-" + GetParam();
  Program program(mpirun(2, train(folder, {})));
  wait_for(folder, 2, program);
  program.signal(SIGUSR1);
  auto const stopped = program.wait();
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
}

TEST_P(Resume, AfterTimeIsUp) {
  std::string const folder = "time-" + GetParam();
  auto const stopped = run(mpirun(2, train(folder, {"--run.max_seconds", "0.001"})));
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_EQ(world_->steps(folder).size(), 1U);
  auto const resumed = run(mpirun(1, train(folder, {})));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(world_->steps(folder), whole());
}

TEST_P(Resume, OfAFinishedRunDoesNothing) {
  std::string const folder = "finished-" + GetParam();
  EXPECT_EQ(run(isotrain(train(folder, {}))).exit_code, 0);
  auto const again = run(isotrain(train(folder, {})));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_NE(again.out.find("fingerprint=" + whole().back().fingerprint), std::string::npos) << again.out;
  EXPECT_EQ(again.out.find("loss=nan"), std::string::npos) << again.out;
  EXPECT_EQ(world_->steps(folder), whole());
}

/// Without the checkpoint's data position and moments the run would not be the same: the comparison can tell.
TEST_P(Resume, NegativeControl) {
  std::string const folder = "control-" + GetParam();
  EXPECT_EQ(run(isotrain(train(folder, {"--run.max_seconds", "0.001"}))).exit_code, 75);
  auto const resumed = run(isotrain(train(folder, {"--optim.weight_decay", "0.2"})));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(world_->steps(folder), whole());
}

INSTANTIATE_TEST_SUITE_P(All, Resume, testing::Values("fp32", "bf16"), [](auto const& info) { return info.param; });

}  // namespace
}  // namespace isotrain::test
