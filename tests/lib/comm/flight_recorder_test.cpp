#include "lib/comm/flight_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "lib/comm/communicator.h"

namespace isotrain::test {
namespace {

OperationFacts numbered(std::uint64_t number) {
  return {.number = number, .count = number, .group = ShortName("test"), .operation = Operation::sum};
}

TEST(FlightRecorder, KeepsTheLastInOrder) {
  FlightRecorder recorder;
  EXPECT_TRUE(recorder.entries().empty());
  EXPECT_EQ(recorder.last_ended_ns(), 0);
  for (std::uint64_t i = 1; i <= 100; ++i) recorder.end(recorder.begin(numbered(i)));
  auto const entries = recorder.entries();
  ASSERT_EQ(entries.size(), FlightRecorder::size);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(entries[i].facts, numbered(37 + i));
    EXPECT_EQ(entries[i].sequence, 37 + i);
    EXPECT_GE(entries[i].ended_ns, entries[i].begun_ns);
  }
  EXPECT_EQ(recorder.last_ended_ns(), entries.back().ended_ns);
}

TEST(FlightRecorder, KeepsWhatIsUnderWay) {
  FlightRecorder recorder;
  std::size_t const slot = recorder.begin(numbered(1000));
  for (std::uint64_t i = 1; i <= 200; ++i) recorder.end(recorder.begin(numbered(i)));
  auto entries = recorder.entries();
  ASSERT_EQ(entries.size(), FlightRecorder::size);
  EXPECT_EQ(entries.front().facts, numbered(1000));
  EXPECT_EQ(entries.front().ended_ns, 0);
  recorder.touch(slot);
  EXPECT_GE(recorder.entries().front().touched_ns, entries.front().touched_ns);
  recorder.end(slot);
  EXPECT_GT(recorder.entries().front().ended_ns, 0);
}

TEST(FlightRecorder, GoesOnWhenEverythingIsUnderWay) {
  FlightRecorder recorder;
  for (std::uint64_t i = 1; i <= 3 * FlightRecorder::size; ++i) recorder.begin(numbered(i));
  EXPECT_EQ(recorder.entries().size(), FlightRecorder::size);
}

TEST(FlightRecorder, IsReadWhileThreadsWrite) {
  FlightRecorder recorder;
  std::atomic<bool> stop{false};
  auto const write = [&](std::uint64_t first) {
    for (std::uint64_t i = first; !stop; i += 2) recorder.end(recorder.begin(numbered(i)));
  };
  std::jthread const one(write, 1), two(write, 2);
  std::size_t seen = 0;
  while (seen < 20000) {
    for (auto const& entry : recorder.entries()) {
      // A torn entry would mix two operations.
      EXPECT_EQ(entry.facts.number, entry.facts.count);
      ++seen;
    }
  }
  stop = true;
}

/// The facts of this process's entries after the given one.
std::vector<OperationFacts> noted_after(std::uint64_t sequence) {
  std::vector<OperationFacts> facts;
  for (auto const& entry : FlightRecorder::of_process().entries()) {
    if (entry.sequence > sequence) facts.push_back(entry.facts);
  }
  return facts;
}

std::uint64_t last_sequence() {
  auto const entries = FlightRecorder::of_process().entries();
  return entries.empty() ? 0 : entries.back().sequence;
}

TEST(FlightRecorder, NotesWhatCommunicatorsDo) {
  Communicator const comm = Communicator::duplicate(MPI_COMM_WORLD).named("mine");
  std::uint64_t const before = last_sequence();
  comm.barrier();
  comm.broadcast(1, 0);
  comm.all_gather(2.5);
  {
    NamedOperations const name("counts");
    comm.sum(std::int64_t{1});
  }
  comm.max(1.5F);
  comm.split(0, 0);
  auto const facts = noted_after(before);
  ASSERT_EQ(facts.size(), 6u);
  std::string const size = std::to_string(comm.size());
  EXPECT_EQ(describe(facts[0]), "barrier 1 of mine");
  EXPECT_EQ(describe(facts[1]), "broadcast 2 of mine (1 x i32, from rank 0 of it)");
  EXPECT_EQ(describe(facts[2]), "all_gather 3 of mine (" + size + " x f64)");
  EXPECT_EQ(describe(facts[3]), "sum 4 of mine (1 x i64, \"counts\")");
  EXPECT_EQ(describe(facts[4]), "max 5 of mine (1 x f32)");
  EXPECT_EQ(describe(facts[5]), "split 6 of mine");
}

TEST(FlightRecorder, NotesMessagesAndNotPartsOfCollectives) {
  Communicator const comm = Communicator::duplicate(MPI_COMM_WORLD).named("mine");
  int const right = (comm.rank() + 1) % comm.size(), left = (comm.rank() + comm.size() - 1) % comm.size();
  std::vector<float> const out(3);
  std::vector<float> in(3);
  std::uint64_t const before = last_sequence();
  Messages messages(comm);
  messages.receive(std::span(in), left);
  messages.send(std::span(out), right);
  messages.wait();
  std::vector<std::int64_t> const counts(static_cast<std::size_t>(comm.size()), 1);
  std::vector<float> const send(counts.size());
  std::vector<float> receive(counts.size());
  comm.all_to_all<float>(send, counts, receive, counts);
  auto const facts = noted_after(before);
  ASSERT_EQ(facts.size(), 4u);
  EXPECT_EQ(describe(facts[0]), "receive of mine (3 x f32, from rank " + std::to_string(left) + " of it)");
  EXPECT_EQ(describe(facts[1]), "send of mine (3 x f32, to rank " + std::to_string(right) + " of it)");
  EXPECT_EQ(describe(facts[2]), "wait of mine (2 messages, the first with rank " + std::to_string(left) + " of it)");
  EXPECT_EQ(describe(facts[3]), "all_to_all 1 of mine (f32)");
}

TEST(FlightRecorder, APartShowsThatTheWholeMoves) {
  auto const touched = [] { return FlightRecorder::of_process().entries().back().touched_ns; };
  NotedOperation const whole(numbered(1));
  std::int64_t const begun = touched();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  { NotedOperation const part(numbered(2)); }
  EXPECT_GT(touched(), begun);
  EXPECT_EQ(FlightRecorder::of_process().entries().back().facts, numbered(1));
}

TEST(FlightRecorder, ACollectiveThatFailsHasEnded) {
  Communicator const comm = Communicator::duplicate(MPI_COMM_WORLD);
  EXPECT_THROW(comm.broadcast(1, comm.size()), Error);
  EXPECT_NE(FlightRecorder::of_process().entries().back().ended_ns, 0);
}

}  // namespace
}  // namespace isotrain::test
