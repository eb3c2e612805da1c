#include "lib/train/stop.h"

#include <atomic>

#include "lib/base/error.h"
#include "lib/base/setting_value.h"

namespace isotrain {
namespace {

constexpr int handled[] = {SIGTERM, SIGINT, SIGUSR1};

// A handler may touch nothing but lock-free atomics.
std::atomic<int> received = 0;
std::atomic<bool> alive = false;
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void note_signal(int signal) {
  received.store(signal, std::memory_order_relaxed);
}

}  // namespace

StopRequest::StopRequest(double max_seconds) : max_seconds_(max_seconds), start_(std::chrono::steady_clock::now()) {
  if (!(max_seconds >= 0)) {
    throw UsageError("--run.max_seconds = " + format_value(max_seconds) + " is no time",
                     "it must be 0 (no limit) or more");
  }
  expects(!alive.exchange(true), "one StopRequest at a time");
  received = 0;
  for (int i = 0; i < num_signals; ++i) {
    struct sigaction action = {};
    action.sa_handler = note_signal;
    sigemptyset(&action.sa_mask);
    // Reads and writes go on after the handler; the second SIGINT finds the default action.
    action.sa_flags = SA_RESTART | (handled[i] == SIGINT ? static_cast<int>(SA_RESETHAND) : 0);
    sigaction(handled[i], &action, &before_[i]);
  }
}

StopRequest::~StopRequest() {
  for (int i = 0; i < num_signals; ++i) sigaction(handled[i], &before_[i], nullptr);
  alive = false;
}

int StopRequest::signal_received() {
  return received.load(std::memory_order_relaxed);
}

bool StopRequest::out_of_time() const {
  if (max_seconds_ <= 0) return false;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count() >= max_seconds_;
}

std::string StopRequest::reason() const {
  switch (signal_received()) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return out_of_time() ? "--run.max_seconds is over" : "";
  }
}

}  // namespace isotrain
