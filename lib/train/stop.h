#pragma once

#include <chrono>
#include <csignal>
#include <string>

namespace isotrain {

/// Notices that the run should end early: SIGTERM, SIGINT, SIGUSR1, or its time is up (`--run.max_seconds`). Handlers
/// only set a flag. A second SIGINT acts as if nobody handled it. At most one object at a time; the destructor restores
/// the handlers.
class StopRequest {
 public:
  /// `max_seconds` counts from now; 0: no limit. Throws UsageError if it is negative or not a number.
  explicit StopRequest(double max_seconds = 0);
  ~StopRequest();
  StopRequest(StopRequest const&) = delete;
  StopRequest& operator=(StopRequest const&) = delete;

  /// On this rank. Ranks agree by an exact maximum over this, once a step.
  bool requested() const { return signal_received() != 0 || out_of_time(); }
  /// "SIGTERM", "--run.max_seconds is over", or empty.
  std::string reason() const;

 private:
  static int signal_received();
  bool out_of_time() const;

  static constexpr int num_signals = 3;
  struct sigaction before_[num_signals];
  double max_seconds_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace isotrain
