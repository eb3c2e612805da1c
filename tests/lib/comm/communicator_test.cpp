#include "lib/comm/communicator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "lib/comm/check_mpi.h"

namespace isotrain::test {
namespace {

/// Every test runs with whole messages and with messages in pieces of 8 bytes.
class CommunicatorTest : public testing::TestWithParam<std::size_t> {
 protected:
  Communicator const comm_ = Communicator::duplicate(MPI_COMM_WORLD, GetParam());
  int const rank_ = comm_.rank();
  int const size_ = comm_.size();
};

INSTANTIATE_TEST_SUITE_P(Pieces, CommunicatorTest, testing::Values(std::size_t{1} << 30, std::size_t{8}),
                         [](auto const& info) { return info.param == 8 ? "small" : "whole"; });

TEST_P(CommunicatorTest, Broadcasts) {
  int const root = size_ - 1;
  std::vector<int> data(5);
  if (rank_ == root) std::iota(data.begin(), data.end(), 10);
  comm_.broadcast(std::span(data), root);
  EXPECT_EQ(data, (std::vector<int>{10, 11, 12, 13, 14}));
  EXPECT_EQ(comm_.broadcast(std::string(rank_ == root ? "a text of some length" : "mine"), root),
            "a text of some length");
  EXPECT_EQ(comm_.broadcast(std::string(), root), "");
  EXPECT_EQ(comm_.broadcast(rank_ * 2.5, root), root * 2.5);
}

TEST_P(CommunicatorTest, GathersOneValueOfEach) {
  std::vector<int> const all = comm_.all_gather(rank_ * rank_);
  for (int r = 0; r < size_; ++r) EXPECT_EQ(all[r], r * r);
}

TEST_P(CommunicatorTest, GathersUnevenParts) {
  // Rank r brings r elements, rank 0 none.
  std::vector<std::int64_t> counts(size_);
  std::iota(counts.begin(), counts.end(), 0);
  std::int64_t const total = size_ * (size_ - 1) / 2;
  std::int64_t const start = rank_ * (rank_ - 1) / 2;
  std::vector<std::int64_t> expected, mine(rank_);
  for (int r = 0; r < size_; ++r) {
    for (int i = 0; i < r; ++i) expected.push_back(100 * r + i);
  }
  for (int i = 0; i < rank_; ++i) mine[i] = 100 * rank_ + i;
  std::vector<std::int64_t> all(total, -1);
  comm_.all_gather<std::int64_t>(mine, all, counts);
  EXPECT_EQ(all, expected);

  std::vector<std::int64_t> in_place(total, -1);
  std::copy(mine.begin(), mine.end(), in_place.begin() + start);
  comm_.all_gather<std::int64_t>(std::span(in_place).subspan(start, rank_), in_place, counts);
  EXPECT_EQ(in_place, expected);
}

TEST_P(CommunicatorTest, GathersTexts) {
  std::vector<std::string> const all = comm_.all_gather(std::string(static_cast<std::size_t>(3 * rank_), 'a' + rank_));
  for (int r = 0; r < size_; ++r) EXPECT_EQ(all[r], std::string(static_cast<std::size_t>(3 * r), 'a' + r));
}

TEST_P(CommunicatorTest, ExchangesUnevenParts) {
  // Rank r sends r + 2 t elements to rank t; the element says from whom, to whom, which.
  std::vector<std::int64_t> send_counts, send, expected;
  for (int t = 0; t < size_; ++t) {
    send_counts.push_back(rank_ + 2 * t);
    for (int i = 0; i < rank_ + 2 * t; ++i) send.push_back(10000 * rank_ + 100 * t + i);
    for (int i = 0; i < t + 2 * rank_; ++i) expected.push_back(10000 * t + 100 * rank_ + i);
  }
  std::vector<std::int64_t> const receive_counts = comm_.exchange_counts(send_counts);
  std::vector<std::int64_t> received(expected.size(), -1);
  comm_.all_to_all<std::int64_t>(send, send_counts, received, receive_counts);
  EXPECT_EQ(received, expected);
}

TEST_P(CommunicatorTest, ReducesExactly) {
  EXPECT_EQ(comm_.sum(std::int64_t{1} << (40 + rank_)), ((std::int64_t{1} << size_) - 1) << 40);
  EXPECT_EQ(comm_.max(rank_ - 5), size_ - 6);
  EXPECT_EQ(comm_.min(-rank_), 1 - size_);
  std::vector<std::uint64_t> bits(3, std::uint64_t{1} << rank_);
  comm_.bit_or(std::span(bits));
  EXPECT_EQ(bits, std::vector<std::uint64_t>(3, (std::uint64_t{1} << size_) - 1));
  std::vector<std::int64_t> counts(7, rank_);
  comm_.sum(std::span(counts));
  EXPECT_EQ(counts, std::vector<std::int64_t>(7, size_ * (size_ - 1) / 2));
  EXPECT_EQ(comm_.any(rank_ == size_ - 1), true);
  EXPECT_EQ(comm_.any(false), false);
  EXPECT_EQ(comm_.all(rank_ != size_ - 1), false);
  EXPECT_EQ(comm_.all(true), true);
}

TEST_P(CommunicatorTest, ComparesFloatingPointNumbersInTotalOrder) {
  std::vector<double> values{-1.5 - rank_, 0.25 * rank_, rank_ == 0 ? 0.0 : -0.0, 3.0,
                             -std::numeric_limits<double>::infinity()};
  if (rank_ == size_ - 1) values[3] = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> low = values;
  comm_.max(std::span(values));
  EXPECT_EQ(values[0], -1.5);
  EXPECT_EQ(values[1], 0.25 * (size_ - 1));
  EXPECT_FALSE(std::signbit(values[2]));
  EXPECT_TRUE(std::isnan(values[3]));
  EXPECT_EQ(values[4], -std::numeric_limits<double>::infinity());
  comm_.min(std::span(low));
  EXPECT_EQ(low[0], -0.5 - size_);
  EXPECT_EQ(low[1], 0);
  EXPECT_EQ(std::signbit(low[2]), size_ > 1);
  EXPECT_EQ(comm_.max(1.5F + rank_), 0.5F + size_);
  EXPECT_EQ(comm_.min(-1.5F - rank_), -0.5F - size_);
}

TEST_P(CommunicatorTest, Splits) {
  auto const half = comm_.split(rank_ % 2, -rank_);
  ASSERT_TRUE(half);
  EXPECT_EQ(half->size(), (size_ + 1 - rank_ % 2) / 2);
  EXPECT_EQ(half->rank(), half->size() - 1 - rank_ / 2);
  EXPECT_EQ(half->piece_bytes(), GetParam());
  EXPECT_EQ(comm_.split(rank_ == 0 ? 0 : -1, 0).has_value(), rank_ == 0);
}

TEST_P(CommunicatorTest, SendsInGroups) {
  int const right = (rank_ + 1) % size_, left = (rank_ + size_ - 1) % size_;
  std::vector<int> const first{rank_, 1, 2, 3, 4}, second{rank_ + 100};
  std::vector<int> from_left(5), tagged(1);
  Messages messages(comm_);
  messages.receive(std::span(tagged), left, 7);
  messages.receive(std::span(from_left), left);
  messages.send(std::span(first), right);
  messages.send(std::span(second), right, 7);
  messages.wait();
  EXPECT_EQ(from_left, (std::vector<int>{left, 1, 2, 3, 4}));
  EXPECT_EQ(tagged[0], left + 100);
  messages.wait();  // nothing is left
}

TEST_P(CommunicatorTest, RefusesCountsThatDoNotFit) {
  std::vector<int> data(4), all(4);
  std::vector<std::int64_t> const counts(static_cast<std::size_t>(size_), 3);
  EXPECT_THROW(comm_.all_gather<int>(data, all, counts), std::logic_error);
  EXPECT_THROW(comm_.all_gather<int>(data, all, std::vector<std::int64_t>{-1}), std::logic_error);
}

TEST_P(CommunicatorTest, MpiErrorsBecomeExceptions) {
  try {
    comm_.broadcast(1, size_ + 3);
    FAIL() << "no exception";
  } catch (Error const& error) {
    std::string const what = error.what();
    EXPECT_EQ(what.find("cannot broadcast (MPI_ERR_ROOT: invalid root, at "), 0u) << what;
    EXPECT_NE(what.find("communicator.cpp:"), std::string::npos) << what;
  }
  Messages messages(comm_);
  std::vector<int> data(2);
  EXPECT_THROW(messages.send(std::span(data), size_), Error);
}

TEST(Messages, NoticeAShorterMessage) {
  Communicator const comm = Communicator::duplicate(MPI_COMM_WORLD);
  std::vector<int> longer(4), shorter(2);
  Messages messages(comm);
  messages.receive(std::span(longer), comm.rank());
  messages.send(std::span(shorter), comm.rank());
  EXPECT_THROW(messages.wait(), std::logic_error);
}

TEST(Messages, AreTestedWithoutWaiting) {
  Communicator const comm = Communicator::duplicate(MPI_COMM_WORLD);
  int const right = (comm.rank() + 1) % comm.size(), left = (comm.rank() + comm.size() - 1) % comm.size();
  std::vector<int> sent(1000, comm.rank()), received(1000, -1);
  Messages messages(comm);
  EXPECT_TRUE(messages.test()) << "there is none";
  messages.receive(std::span(received), left);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(messages.test()) << "nobody has sent";
  comm.barrier();
  messages.send(std::span(sent), right);
  while (!messages.test()) continue;
  EXPECT_EQ(received, std::vector<int>(1000, left));
  EXPECT_TRUE(messages.test());
}

TEST(Messages, TestingNoticesAShorterMessage) {
  Communicator const comm = Communicator::duplicate(MPI_COMM_WORLD);
  std::vector<int> longer(4), shorter(2);
  Messages messages(comm);
  messages.receive(std::span(longer), comm.rank());
  messages.send(std::span(shorter), comm.rank());
  EXPECT_THROW(while (!messages.test()) continue, std::logic_error);
}

TEST(Messages, MayBeGivenUp) {
  Communicator const comm = Communicator::duplicate(MPI_COMM_WORLD);
  std::vector<int> data(4);
  {
    Messages messages(comm);
    messages.receive(std::span(data), comm.rank(), 3);
  }
  EXPECT_EQ(comm.sum(1), comm.size());
}

TEST(CheckMpi, PassesSuccess) {
  EXPECT_NO_THROW(check_mpi(MPI_SUCCESS, "do nothing"));
}

}  // namespace
}  // namespace isotrain::test
