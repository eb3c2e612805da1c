#include "lib/comm/watchdog.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <vector>

#include "lib/base/atomic_file.h"
#include "lib/base/digest.h"
#include "lib/base/error.h"
#include "lib/comm/session.h"
#include "lib/comm/watchdog_report.h"

namespace isotrain {
namespace {

using Seconds = std::chrono::duration<double>;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Differs between jobs that use the same folder one after the other.
std::string new_job_name() {
  auto const time = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  return to_hex(time ^ static_cast<std::uint64_t>(getpid()));
}

/// A thread that only looks must not end the program by an exception; what could not be written is said.
bool write_quietly(std::filesystem::path const& path, std::string const& text) {
  try {
    std::filesystem::create_directories(path.parent_path());
    write_file_atomically(path, text);
    return true;
  } catch (std::exception const& error) {
    std::fputs((std::string("watchdog: ") + error.what() + "\n").c_str(), stderr);
    return false;
  }
}

std::vector<WatchdogReport> read_reports(std::filesystem::path const& folder, std::string const& job, int num_ranks) {
  std::vector<WatchdogReport> reports;
  for (int rank = 0; rank < num_ranks; ++rank) {
    try {
      auto report = parse_report(read_file(report_path(folder, rank)));
      if (report && report->job == job && report->rank == rank) reports.push_back(std::move(*report));
    } catch (Error const&) {
      // No report is what the summary then says.
    }
  }
  return reports;
}

}  // namespace

Watchdog::Watchdog(Communicator const& world, WatchdogOptions options)
    : options_(std::move(options)),
      job_(world.broadcast(new_job_name(), 0)),
      host_(host_name()),
      rank_(world.rank()),
      size_(world.size()),
      start_ns_(now_ns()) {
  expects(options_.limit_s >= 0 && options_.gather_s >= 0, "times of at least 0");
  if (options_.limit_s > 0) thread_ = std::jthread([this](std::stop_token const& stop) { watch(stop); });
}

Watchdog::~Watchdog() = default;

std::filesystem::path Watchdog::call_file() const {
  return options_.folder / ("called-" + job_);
}

void Watchdog::watch(std::stop_token const& stop) const {
  Seconds const pause(std::clamp(options_.limit_s / 8, 0.02, 1.0));
  std::mutex mutex;
  std::condition_variable_any stopped;
  while (true) {
    std::unique_lock lock(mutex);
    stopped.wait_for(lock, stop, pause, [] { return false; });
    if (stop.stop_requested()) return;
    auto const& recorder = FlightRecorder::of_process();
    auto const entries = recorder.entries();
    std::int64_t const now = now_ns();
    WatchdogReport const report{job_, rank_, host_, state_of(entries, recorder.last_ended_ns(), start_ns_, now)};
    bool const over = report.state.for_s > options_.limit_s;
    std::error_code ignored;
    // Who computes for long before it waits is over its limit later than the rank that it waits for.
    if (!over && !std::filesystem::exists(call_file(), ignored)) continue;
    bool const written = write_quietly(report_path(options_.folder, rank_), report_text(report, entries, now));
    if (over) {
      std::string const who = "watchdog: rank " + std::to_string(rank_) + " on " + host_ + " ";
      std::fputs((who + describe(report.state) + "\n").c_str(), stderr);
      // Several ranks may do this at once, and what it holds does not matter.
      if (written) std::ofstream(call_file()).put('\n');
    }
    end_job(written);
  }
}

void Watchdog::end_job(bool have_reports) const {
  auto const gather_until = std::chrono::steady_clock::now() + Seconds(options_.gather_s);
  std::vector<WatchdogReport> reports;
  while (have_reports) {
    reports = read_reports(options_.folder, job_, size_);
    bool const complete = reports.size() == static_cast<std::size_t>(size_);
    if (complete || std::chrono::steady_clock::now() > gather_until) break;
    std::this_thread::sleep_for(Seconds(0.1));
  }
  if (!reports.empty() && reports.front().rank == rank_) {
    std::string const summary = "watchdog: the job hangs and is ended; reports are in '" + options_.folder.string() +
                                "'\n" + summarize(reports, size_);
    std::fputs(summary.c_str(), stderr);
    write_quietly(options_.folder / "summary.txt", summary);
    std::error_code ignored;
    std::filesystem::remove(call_file(), ignored);
  } else {
    // The lowest rank ends the job; should it be gone, somebody else has to.
    std::this_thread::sleep_for(Seconds(2 * options_.gather_s + 1));
  }
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

}  // namespace isotrain
