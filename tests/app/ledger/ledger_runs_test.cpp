// What a run with a ledger writes is the same on every layout, and isotrain diff finds where runs part.
#include <gtest/gtest.h>

#include "tests/app/tiny_run.h"

namespace isotrain::test {
namespace {

class LedgerOfRuns : public testing::Test {
 protected:
  static void SetUpTestSuite() { world_ = new TinyWorld; }
  static void TearDownTestSuite() { delete world_; }

  static void train(std::string const& folder, int ranks, std::vector<std::string> more) {
    more.insert(more.end(), {"--repro.ledger", "true", "--debug.check_replicas", "2"});
    auto const result = run(mpirun(ranks, world_->train("moe", folder, more)));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err.find("no gradient"), std::string::npos) << result.err;
  }
  static std::string ledger(std::string const& folder) { return read_file(*world_ / folder / "ledger.jsonl"); }
  static ProgramResult diff(std::string const& a, std::string const& b) {
    return run(isotrain({"diff", *world_ / a, *world_ / b}));
  }

  static TinyWorld* world_;
};
TinyWorld* LedgerOfRuns::world_ = nullptr;

TEST_F(LedgerOfRuns, IsTheSameOnEveryLayout) {
  train("one", 1, {});
  train("tp-pp-ep", 8,
        {"--tp", "2", "--pp", "2", "--ep", "2", "--parallel.schedule", "zb-h1", "--train.micro_batch", "2"});
  train("pp", 3, {"--pp", "3", "--model.recompute", "full"});
  train("dp", 3, {"--model.recompute", "selective"});
  auto const expected = ledger("one");
  EXPECT_EQ(ledger("tp-pp-ep"), expected);
  EXPECT_EQ(ledger("pp"), expected);
  EXPECT_EQ(ledger("dp"), expected);
  auto const same = diff("one", "tp-pp-ep");
  EXPECT_EQ(same.exit_code, 0) << same.out;
  EXPECT_NE(same.out.find("steps 1 to 4 the same"), std::string::npos) << same.out;
}

TEST_F(LedgerOfRuns, NamesWhereRunsPart) {
  train("here", 1, {});
  // Another learning rate: the first step's forward and backward passes are the same, its update is not.
  train("other-rate", 2, {"--tp", "2", "--optim.lr", "2e-2"});
  auto const rate = diff("here", "other-rate");
  EXPECT_EQ(rate.exit_code, 1);
  EXPECT_NE(rate.out.find("optim.lr"), std::string::npos) << rate.out;
  EXPECT_NE(rate.out.find("first in step 1, update, "), std::string::npos) << rate.out;
  // Another weight of the balancing loss: the backward pass of a layer with experts.
  train("other-balance", 2, {"--pp", "2", "--balance.expert_alpha", "0.5"});
  auto const balance = diff("here", "other-balance");
  EXPECT_EQ(balance.exit_code, 1);
  EXPECT_NE(balance.out.find("first in step 1, backward, "), std::string::npos) << balance.out;
}

TEST_F(LedgerOfRuns, GoesOnAfterAResume) {
  train("whole", 2, {"--pp", "2"});
  train("stopped", 1, {"--train.steps", "2", "--optim.schedule", "constant"});
  train("unstopped", 1, {"--optim.schedule", "constant"});
  train("stopped", 4, {"--tp", "2", "--ep", "2", "--optim.schedule", "constant"});
  EXPECT_EQ(ledger("stopped"), ledger("unstopped"));
  EXPECT_NE(ledger("whole"), ledger("unstopped")) << "the comparison can tell";
}

}  // namespace
}  // namespace isotrain::test
