#include "lib/comm/watchdog_report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>

#include "lib/comm/rank_list.h"

namespace isotrain {
namespace {

constexpr std::size_t most_operations = 32;
constexpr int most_lines = 16;

double seconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-9;
}

std::string format_s(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.2f s" : "%.0f s", value);
  return text;
}

std::string format_line(FlightRecorder::Entry const& entry, std::int64_t now_ns) {
  char times[64];
  if (entry.ended_ns == 0) {
    std::snprintf(times, sizeof times, "%14.6f  %14s  ", seconds(now_ns - entry.begun_ns), "under way");
  } else {
    std::snprintf(times, sizeof times, "%14.6f  %14.6f  ", seconds(now_ns - entry.begun_ns),
                  seconds(entry.ended_ns - entry.begun_ns));
  }
  return times + describe(entry.facts) + "\n";
}

}  // namespace

RankState state_of(std::vector<FlightRecorder::Entry> const& entries, std::int64_t last_ended_ns, std::int64_t start_ns,
                   std::int64_t now_ns) {
  FlightRecorder::Entry const* stuck = nullptr;
  FlightRecorder::Entry const* last = nullptr;
  auto const moved = [](FlightRecorder::Entry const& entry) { return std::max(entry.begun_ns, entry.touched_ns); };
  for (auto const& entry : entries) {
    if (entry.ended_ns == 0) {
      if (!stuck || moved(entry) < moved(*stuck)) stuck = &entry;
    } else if (!last || entry.ended_ns > last->ended_ns) {
      last = &entry;
    }
  }
  if (stuck) return {true, seconds(now_ns - std::max(moved(*stuck), start_ns)), describe(stuck->facts)};
  return {false, seconds(now_ns - std::max(last_ended_ns, start_ns)), last ? describe(last->facts) : ""};
}

std::string describe(RankState const& state) {
  if (state.waits) return "waits for " + format_s(state.for_s) + " in " + state.operation;
  return "is in no operation for " + format_s(state.for_s) +
         (state.operation.empty() ? "" : ", the last was " + state.operation);
}

std::string report_text(WatchdogReport const& report, std::vector<FlightRecorder::Entry> const& entries,
                        std::int64_t now_ns) {
  std::string text = "job " + report.job + "\nrank " + std::to_string(report.rank) + "\nhost " + report.host +
                     "\nstate " + (report.state.waits ? "waits" : "outside") + "\nfor_s " +
                     std::to_string(report.state.for_s) + "\noperation " + report.state.operation + "\n\n" +
                     "     began s ago          took s  operation, oldest first\n";
  for (std::size_t i = entries.size() - std::min(entries.size(), most_operations); i < entries.size(); ++i) {
    text += format_line(entries[i], now_ns);
  }
  return text;
}

std::optional<WatchdogReport> parse_report(std::string const& text) {
  std::map<std::string, std::string> fields;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line) && !line.empty();) {
    auto const space = line.find(' ');
    if (space == std::string::npos) return std::nullopt;
    fields[line.substr(0, space)] = line.substr(space + 1);
  }
  for (char const* name : {"job", "rank", "host", "state", "for_s", "operation"}) {
    if (!fields.contains(name)) return std::nullopt;
  }
  WatchdogReport report{.job = fields["job"], .host = fields["host"], .state = {}};
  bool const numbers = std::sscanf(fields["rank"].c_str(), "%d", &report.rank) == 1 &&
                       std::sscanf(fields["for_s"].c_str(), "%lf", &report.state.for_s) == 1;
  if (!numbers) return std::nullopt;
  report.state.waits = fields["state"] == "waits";
  report.state.operation = fields["operation"];
  return report;
}

std::filesystem::path report_path(std::filesystem::path const& folder, int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank-%05d.txt", rank);
  return folder / name;
}

std::string summarize(std::vector<WatchdogReport> const& reports, int num_ranks) {
  std::vector<int> silent;
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (std::ranges::find(reports, rank, &WatchdogReport::rank) == reports.end()) silent.push_back(rank);
  }
  std::vector<std::string> lines;
  std::vector<std::pair<std::string, int>> waiting;
  for (WatchdogReport const& report : reports) {
    if (report.state.waits) {
      waiting.emplace_back(report.state.operation, report.rank);
    } else {
      lines.push_back("rank " + std::to_string(report.rank) + " on " + report.host + " " + describe(report.state));
    }
  }
  if (!silent.empty()) lines.push_back(list_ranks(silent) + ": no report");
  for (auto const& [operation, ranks] : group_ranks(waiting)) {
    auto const longest = std::ranges::max(
        ranks, {}, [&](int rank) { return std::ranges::find(reports, rank, &WatchdogReport::rank)->state.for_s; });
    auto const first = std::ranges::find(reports, longest, &WatchdogReport::rank);
    if (ranks.size() == 1) {
      lines.push_back(list_ranks(ranks) + " on " + first->host + " " + describe(first->state));
    } else {
      lines.push_back(list_ranks(ranks) + " wait for up to " + format_s(first->state.for_s) + " in " + operation);
    }
  }
  std::string text;
  for (int i = 0; i < static_cast<int>(lines.size()); ++i) {
    if (i < most_lines) text += "  " + lines[static_cast<std::size_t>(i)] + "\n";
  }
  if (lines.size() > most_lines) text += "  and " + std::to_string(lines.size() - most_lines) + " more lines\n";
  return text;
}

}  // namespace isotrain
