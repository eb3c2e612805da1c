#include "lib/comm/watchdog_report.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace isotrain::test {
namespace {

constexpr std::int64_t second = 1'000'000'000;

FlightRecorder::Entry entry(std::uint64_t number, std::int64_t begun_s, std::int64_t ended_s) {
  return {.sequence = number,
          .facts = {.number = number, .group = ShortName("world")},
          .begun_ns = begun_s * second,
          .touched_ns = begun_s * second,
          .ended_ns = ended_s * second};
}

TEST(RankState, IsInTheOperationUnderWay) {
  auto const state = state_of({entry(1, 10, 11), entry(2, 12, 0)}, 11 * second, 5 * second, 20 * second);
  EXPECT_TRUE(state.waits);
  EXPECT_EQ(state.for_s, 8);
  EXPECT_EQ(state.operation, "barrier 2 of world");
  EXPECT_EQ(describe(state), "waits for 8.00 s in barrier 2 of world");
}

TEST(RankState, IsOutsideAfterTheLastThatEnded) {
  // Number 1 was begun first and ended last, as a long one of another thread would.
  auto const state = state_of({entry(1, 10, 14), entry(2, 12, 13)}, 14 * second, 5 * second, 34 * second);
  EXPECT_FALSE(state.waits);
  EXPECT_EQ(state.for_s, 20);
  EXPECT_EQ(describe(state), "is in no operation for 20 s, the last was barrier 1 of world");
}

TEST(RankState, CountsFromTheStartWhereNothingHappened) {
  auto const state = state_of({}, 0, 5 * second, 6 * second);
  EXPECT_EQ(describe(state), "is in no operation for 1.00 s");
  // What happened before somebody watched does not count either.
  EXPECT_EQ(state_of({entry(1, 1, 2)}, 2 * second, 5 * second, 6 * second).for_s, 1);
  EXPECT_EQ(state_of({entry(1, 1, 0)}, 0, 5 * second, 6 * second).for_s, 1);
}

TEST(RankState, WhatMovesIsNotStuck) {
  auto moving = entry(1, 10, 0);
  moving.touched_ns = 19 * second;
  EXPECT_EQ(state_of({moving}, 0, 5 * second, 20 * second).for_s, 1);
  // Of several the one that has stood longest.
  auto const state = state_of({moving, entry(2, 15, 0)}, 0, 5 * second, 20 * second);
  EXPECT_EQ(state.operation, "barrier 2 of world");
  EXPECT_EQ(state.for_s, 5);
}

WatchdogReport report(int rank, bool waits, double for_s, std::string operation) {
  return {"job", rank, "node" + std::to_string(rank), {waits, for_s, std::move(operation)}};
}

TEST(WatchdogReport, ReadsBackWhatItWrote) {
  auto const before = report(3, true, 1.5, "sum 3 of world (1 x i32, \"a b\")");
  std::string const text = report_text(before, {entry(1, 10, 12), entry(2, 13, 0)}, 20 * second);
  auto const after = parse_report(text);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->job, "job");
  EXPECT_EQ(after->rank, 3);
  EXPECT_EQ(after->host, "node3");
  EXPECT_TRUE(after->state.waits);
  EXPECT_EQ(after->state.for_s, 1.5);
  EXPECT_EQ(after->state.operation, before.state.operation);
  EXPECT_NE(text.find("     10.000000        2.000000  barrier 1 of world\n"), std::string::npos) << text;
  EXPECT_NE(text.find("      7.000000       under way  barrier 2 of world\n"), std::string::npos) << text;
  auto const outside = parse_report(report_text(report(0, false, 2, ""), {}, 0));
  ASSERT_TRUE(outside);
  EXPECT_FALSE(outside->state.waits);
  EXPECT_EQ(outside->state.operation, "");
}

TEST(WatchdogReport, HoldsTheLast32) {
  std::vector<FlightRecorder::Entry> entries;
  for (int i = 1; i <= 40; ++i) entries.push_back(entry(i, i, i + 1));
  std::string const text = report_text(report(0, false, 1, ""), entries, 50 * second);
  EXPECT_EQ(text.find("barrier 8 of world"), std::string::npos) << text;
  EXPECT_NE(text.find("barrier 9 of world"), std::string::npos) << text;
  EXPECT_NE(text.find("barrier 40 of world"), std::string::npos) << text;
}

TEST(WatchdogReport, RefusesOtherFiles) {
  EXPECT_FALSE(parse_report(""));
  EXPECT_FALSE(parse_report("nothing\n"));
  EXPECT_FALSE(parse_report("job x\nrank y\nhost z\nstate waits\nfor_s 1\noperation a\n"));
  std::string const whole = report_text(report(0, true, 1, "a"), {}, 0);
  EXPECT_TRUE(parse_report(whole));
  EXPECT_FALSE(parse_report(whole.substr(0, whole.find("for_s"))));
  EXPECT_EQ(report_path("folder", 3), "folder/rank-00003.txt");
}

TEST(Summary, NamesTheMissingFirst) {
  EXPECT_EQ(summarize({report(0, true, 30, "a"), report(1, true, 31, "a"), report(2, false, 32, "b"),
                       report(3, true, 29, "a"), report(5, true, 40, "c")},
                      7),
            "  rank 2 on node2 is in no operation for 32 s, the last was b\n"
            "  ranks 4, 6: no report\n"
            "  rank 5 on node5 waits for 40 s in c\n"
            "  ranks 0, 1, 3 wait for up to 31 s in a\n");
}

TEST(Summary, StaysShort) {
  std::vector<WatchdogReport> reports;
  for (int rank = 0; rank < 100; ++rank) reports.push_back(report(rank, false, 1, "a"));
  std::string const text = summarize(reports, 100);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 17);
  EXPECT_NE(text.find("  and 84 more lines\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace isotrain::test
