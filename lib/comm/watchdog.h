#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>

#include "lib/comm/communicator.h"

namespace isotrain {

struct WatchdogOptions {
  double limit_s = 0;            // 0: no watchdog
  std::filesystem::path folder;  // on a file system that all ranks share
  double gather_s = 5;           // how long ranks wait for each other's reports
};

/// Ends a job that hangs, and says why. A thread of each rank looks whether an operation between ranks (or the time
/// between two) has lasted longer than the limit without anything moving. Then every rank writes what it does and its
/// last operations to folder/rank-00003.txt, those over the limit say it in one line on stderr, the lowest rank reads
/// all reports and prints (and writes to folder/summary.txt) who is where and who is missing, and the job is aborted
/// with exit code 1. The limit must be longer than the longest work without communication, or that work calls
/// FlightRecorder::touch_all() now and then. Costs nothing while all goes well but a look now and then.
class Watchdog {
 public:
  /// Collective over `world`, all ranks of the job.
  Watchdog(Communicator const& world, WatchdogOptions options);
  ~Watchdog();
  Watchdog(Watchdog const&) = delete;
  Watchdog& operator=(Watchdog const&) = delete;

 private:
  void watch(std::stop_token const& stop) const;
  /// There when some rank is over its limit, for the others to report.
  std::filesystem::path call_file() const;
  [[noreturn]] void end_job(bool have_reports) const;

  WatchdogOptions options_;
  std::string job_;
  std::string host_;
  int rank_;
  int size_;
  std::int64_t start_ns_;
  std::jthread thread_;
};

}  // namespace isotrain
