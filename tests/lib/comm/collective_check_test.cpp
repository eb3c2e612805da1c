#include "lib/comm/collective_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "lib/comm/agree.h"
#include "lib/comm/communicator.h"
#include "lib/comm/tree_sum.h"

namespace isotrain::test {
namespace {

/// On four ranks, of which the third errs.
class CollectiveCheckTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(comm_.size(), 4);
    check_collectives(true);
  }
  void TearDown() override { check_collectives(false); }

  /// The message of the error that every rank must get; "" if none came.
  template <class E = AgreedError>
  static std::string error_of(std::function<void()> const& body) {
    try {
      body();
    } catch (E const& error) {
      return error.what();
    }
    return "";
  }
  bool odd() const { return comm_.rank() == 2; }

  Communicator const comm_ = Communicator::duplicate(MPI_COMM_WORLD).named("world");
};

TEST_F(CollectiveCheckTest, LetsTheSameThrough) {
  EXPECT_EQ(error_of([&] {
              comm_.barrier();
              EXPECT_EQ(comm_.sum(1), 4);
              EXPECT_EQ(comm_.broadcast(comm_.rank(), 3), 3);
              EXPECT_EQ(comm_.all_gather(comm_.rank()), (std::vector<int>{0, 1, 2, 3}));
              EXPECT_EQ(comm_.broadcast(std::string(comm_.rank() == 0 ? "text" : ""), 0), "text");
              std::vector<std::int64_t> const counts{1, 1, 1, 1};
              std::vector<int> const send{1, 2, 3, 4};
              std::vector<int> receive(4);
              comm_.all_to_all<int>(send, counts, receive, counts);
              EXPECT_EQ(receive, std::vector<int>(4, comm_.rank() + 1));
            }),
            "");
}

TEST_F(CollectiveCheckTest, NamesWhoCallsAnother) {
  EXPECT_EQ(
      error_of([&] { odd() ? void(comm_.sum(std::int64_t{1})) : void(comm_.all_gather(1)); }),
      "ranks that should do the same do not (rank 2: sum 1 of world (1 x i64); ranks 0, 1, 3: all_gather 1 of world "
      "(4 x i32))");
  EXPECT_EQ(comm_.sum(1), 4);  // nobody is left waiting elsewhere
}

TEST_F(CollectiveCheckTest, NamesWhoBringsAnotherCount) {
  std::vector<int> data(odd() ? 3 : 2);
  EXPECT_EQ(
      error_of([&] { comm_.sum(std::span(data)); }),
      "ranks that should do the same do not (rank 2: sum 1 of world (3 x i32); ranks 0, 1, 3: sum 1 of world (2 x "
      "i32))");
}

TEST_F(CollectiveCheckTest, NamesWhoBringsOtherCountsOfTheSameSum) {
  std::vector<std::int64_t> const counts =
      odd() ? std::vector<std::int64_t>{0, 2, 1, 1} : std::vector<std::int64_t>(4, 1);
  int const mine = 1;
  std::vector<int> all(4);
  EXPECT_EQ(error_of([&] { comm_.all_gather(std::span(&mine, 1), std::span(all), counts); }),
            "ranks that should do the same do not (rank 2: all_gather 1 of world (4 x i32) with other counts per rank; "
            "ranks 0, 1, 3: all_gather 1 of world (4 x i32) with other counts per rank)");
}

TEST_F(CollectiveCheckTest, NamesWhoHasAnotherRoot) {
  EXPECT_EQ(
      error_of([&] { comm_.broadcast(1.5F, odd() ? 1 : 0); }),
      "ranks that should do the same do not (rank 2: broadcast 1 of world (1 x f32, from rank 1 of it); ranks 0, 1, "
      "3: broadcast 1 of world (1 x f32, from rank 0 of it))");
}

TEST_F(CollectiveCheckTest, NamesWhoIsElsewhere) {
  EXPECT_EQ(
      error_of([&] {
        NamedOperations const name(odd() ? "losses" : "gradients", 3);
        comm_.barrier();
      }),
      "ranks that should do the same do not (rank 2: barrier 1 of world (\"losses 3\"); ranks 0, 1, 3: barrier 1 of "
      "world (\"gradients 3\"))");
}

TEST_F(CollectiveCheckTest, NamesWhoExpectsOtherMessages) {
  std::vector<std::int64_t> const one(4, 1);
  // Rank 2 keeps one element for itself and sends the others two.
  std::vector<std::int64_t> const send_counts = odd() ? std::vector<std::int64_t>{2, 2, 1, 2} : one;
  std::vector<int> const send(odd() ? 7 : 4);
  std::vector<int> receive(4);
  EXPECT_EQ(error_of([&] { comm_.all_to_all<int>(send, send_counts, receive, one); }),
            "ranks disagree on what one sends another (in all_to_all rank 2 sends 8 bytes to rank 0, which expects 4)");
}

TEST_F(CollectiveCheckTest, SeesSumsOfMessages) {
  TreeReduction const reduction(comm_, 4, {{0, 1}, {1, 2}, {2, 3}, {3, 4}}, {0, 2, 4, 6, 8});
  TreeReduction const longer(comm_, 4, {{0, 1}, {1, 2}, {2, 3}, {3, 4}}, {0, 2, 4, 6, 9});
  std::vector<float> partial(odd() ? 9 : 8), chunk(2), workspace(100);
  std::span<float> const partials[] = {partial};
  EXPECT_EQ(error_of([&] { (odd() ? longer : reduction).reduce_scatter(Cpu(1), partials, chunk, workspace); }),
            "ranks that should do the same do not (rank 2: tree_sum 1 of world (9 x f32); ranks 0, 1, 3: tree_sum 1 of "
            "world (8 x f32))");
}

TEST_F(CollectiveCheckTest, ASmallerGroupIsNamedByRanksOfTheJob) {
  Communicator const half = std::move(*comm_.split(comm_.rank() / 2, 0)).named("tensor");
  // Not agreed on by the job, so not an AgreedError: the others would not end.
  std::string const expected =
      comm_.rank() < 2
          ? ""
          : "ranks that should do the same do not (rank 2: max 1 of tensor (1 x i32); rank 3: barrier 1 of "
            "tensor)";
  EXPECT_EQ(error_of<Error>([&] {
              odd() ? void(half.max(1)) : comm_.rank() == 3 ? half.barrier() : void(half.min(1));
            }),
            expected);
  try {
    if (comm_.rank() >= 2) half.broadcast(1, odd() ? 0 : 1);
  } catch (AgreedError const&) {
    ADD_FAILURE() << "as if all ranks had thrown it";
  } catch (Error const&) {
  }
}

TEST_F(CollectiveCheckTest, IsOffByDefaultAndOffAgain) {
  check_collectives(false);
  // Unequal names do no harm, so nobody minds.
  NamedOperations const name(odd() ? "a" : "b");
  EXPECT_EQ(error_of([&] { comm_.barrier(); }), "");
}

TEST_F(CollectiveCheckTest, SignaturesAgreeWhereAllDoTheSame) {
  check_collectives(false);
  comm_.barrier();
  comm_.sum(1);
  EXPECT_EQ(error_of([&] { comm_.check_signature(); }), "");
  EXPECT_EQ(error_of([&] { comm_.check_signature(); }), "");
}

TEST_F(CollectiveCheckTest, SignaturesTellWhoDidOthers) {
  check_collectives(false);
  comm_.barrier();
  {
    NamedOperations const name(odd() ? "losses" : "gradients");
    comm_.sum(7);
  }
  comm_.max(1.0F);
  EXPECT_EQ(
      error_of([&] { comm_.check_signature(); }),
      "ranks did not do the same until now (rank 2: last max 3 of world (1 x f32), before it sum 2 of world (1 x "
      "i32, \"losses\"), before it barrier 1 of world; ranks 0, 1, 3: last max 3 of world (1 x f32), before it sum 2 "
      "of world (1 x i32, \"gradients\"), before it barrier 1 of world)");
}

TEST(DescribeMismatch, PutsTheOddOnesFirstAndShortensTheRest) {
  std::vector<RankOperation> operations(20);
  for (int r = 0; r < 20; ++r) operations[static_cast<std::size_t>(r)] = {{.number = 1}, r};
  EXPECT_EQ(describe_mismatch(operations), "");
  operations[17].facts.number = 2;
  EXPECT_EQ(describe_mismatch(operations),
            "rank 17: barrier 2 of a group of 1; ranks 0, 1, 2, 3, 4, 5, 6, 7 and 11 more: barrier 1 of a group of 1");
}

}  // namespace
}  // namespace isotrain::test
