#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/comm/flight_recorder.h"

/// What the watchdog of each rank writes and what is read out of all of them. No communication, no clock.
namespace isotrain {

/// What a rank is doing, and since when: inside an operation, or outside of any after the last one.
struct RankState {
  bool waits = false;
  double for_s = 0;       // since the operation began or last moved, or since the last one ended
  std::string operation;  // that it waits in, or that ended last; "" if there was none
};

/// Of operations under way the one that has not moved for longest. `start_ns`: when watching began.
RankState state_of(std::vector<FlightRecorder::Entry> const& entries, std::int64_t last_ended_ns, std::int64_t start_ns,
                   std::int64_t now_ns);

struct WatchdogReport {
  std::string job;  // reports of an earlier job may lie in the same folder
  int rank = 0;
  std::string host;
  RankState state;
};

/// "waits for 31 s in all_gather 12 of world (4 x i32)" or "is in no operation for 31 s, the last was ...".
std::string describe(RankState const& state);

/// The file: the report, then the last 32 operations, oldest first.
std::string report_text(WatchdogReport const& report, std::vector<FlightRecorder::Entry> const& entries,
                        std::int64_t now_ns);
/// None if it is no such file.
std::optional<WatchdogReport> parse_report(std::string const& text);

/// folder/rank-00003.txt
std::filesystem::path report_path(std::filesystem::path const& folder, int rank);

/// Who is missing and who waits where; those in no operation and those without a report first.
std::string summarize(std::vector<WatchdogReport> const& reports, int num_ranks);

}  // namespace isotrain
