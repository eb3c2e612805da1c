#include "lib/comm/agree.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "lib/comm/session.h"

namespace isotrain::test {
namespace {

class AgreeTest : public testing::Test {
 protected:
  /// What a rank gets that brings `mine`: the message and the exit code, or "" if nothing was thrown.
  std::string outcome(std::optional<Failure> const& mine) const {
    try {
      agree(comm_, mine);
    } catch (AgreedError const& error) {
      return std::string(error.what()) + " / " + std::to_string(error.exit_code());
    }
    return "";
  }
  std::string on(int rank) const { return "on " + host_name() + ", rank " + std::to_string(rank); }

  Communicator const comm_ = Communicator::duplicate(MPI_COMM_WORLD);
  int const rank_ = comm_.rank();
  int const last_ = comm_.size() - 1;
};

TEST_F(AgreeTest, PassesWhenNobodyFailed) {
  EXPECT_EQ(outcome(std::nullopt), "");
}

TEST_F(AgreeTest, AllThrowWhatOneBrought) {
  std::string const expected = (last_ == 0 ? "" : on(last_) + ": ") + "no file / 2";
  EXPECT_EQ(outcome(rank_ == last_ ? std::optional(Failure{"no file", 2}) : std::nullopt), expected);
}

TEST_F(AgreeTest, RankZeroAloneNeedsNoName) {
  EXPECT_EQ(outcome(rank_ == 0 ? std::optional(Failure{"no file", 1}) : std::nullopt), "no file / 1");
}

TEST_F(AgreeTest, TheSameFromAllIsSaidOnce) {
  EXPECT_EQ(outcome(Failure{"wrong", 2}), "wrong / 2");
}

TEST_F(AgreeTest, SeveralAreCountedAndTheHighestCodeWins) {
  std::string const message = "mine is " + std::to_string(rank_);
  std::string expected = "mine is 0 / " + std::to_string(last_ + 1);
  if (last_ == 1) expected = on(0) + " and 1 more rank: " + expected;
  if (last_ > 1) expected = on(0) + " and " + std::to_string(last_) + " more ranks: " + expected;
  EXPECT_EQ(outcome(Failure{message, rank_ + 1}), expected);
}

TEST_F(AgreeTest, RunsABodyOnAllRanks) {
  EXPECT_EQ(run_collectively(comm_, [&] { return rank_ * 2; }), rank_ * 2);
  bool ran = false;
  run_collectively(comm_, [&] { ran = true; });
  EXPECT_TRUE(ran);
  EXPECT_THROW(run_collectively(comm_,
                                [&] {
                                  if (rank_ == last_) throw UsageError("bad");
                                }),
               AgreedError);
  try {
    run_collectively(comm_, [&]() -> int { throw std::logic_error("broken"); });
    ADD_FAILURE() << "no exception";
  } catch (AgreedError const& error) {
    EXPECT_STREQ(error.what(), "internal error: broken");
  }
  EXPECT_EQ(comm_.sum(1), last_ + 1);  // nobody is left waiting elsewhere
}

TEST_F(AgreeTest, NestedAgreementStaysOneMessage) {
  try {
    run_collectively(comm_, [&] { agree(comm_, Failure{"inner", 2}); });
    ADD_FAILURE() << "no exception";
  } catch (AgreedError const& error) {
    EXPECT_STREQ(error.what(), "inner");
    EXPECT_EQ(error.exit_code(), 2);
  }
}

TEST_F(AgreeTest, NamesTheOddRank) {
  EXPECT_NO_THROW(agree_on_same(comm_, "a", "settings"));
  std::string what;
  try {
    agree_on_same(comm_, rank_ == last_ ? "b" : "a", "settings");
  } catch (AgreedError const& error) {
    what = error.what();
  }
  EXPECT_EQ(what, last_ == 0 ? ""
                             : "settings differ between ranks (rank 0 has 'a', rank " + std::to_string(last_) + " on " +
                                   host_name() + " has 'b')");
}

}  // namespace
}  // namespace isotrain::test
