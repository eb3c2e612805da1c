#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "lib/comm/operation.h"

namespace isotrain {

/// The last operations between ranks of this process, in a ring of fixed size: always on, written without locks or
/// allocation by any thread, read by the watchdog while it is written to.
class FlightRecorder {
 public:
  static constexpr std::size_t size = 64;

  struct Entry {
    std::uint64_t sequence = 0;  // of this process, from 1
    OperationFacts facts;
    std::int64_t begun_ns = 0;    // std::chrono::steady_clock
    std::int64_t touched_ns = 0;  // when a part of it last ended
    std::int64_t ended_ns = 0;    // 0: under way
  };

  static FlightRecorder& of_process();

  /// The slot that is being written to until end().
  std::size_t begin(OperationFacts const& facts);
  void touch(std::size_t slot);
  void end(std::size_t slot);

  /// Oldest first. Entries that change meanwhile are left out.
  std::vector<Entry> entries() const;
  /// When an operation last ended, or touch_all() was called; 0: never.
  std::int64_t last_ended_ns() const { return last_ended_ns_.load(std::memory_order_relaxed); }
  /// Tells the watchdog that long work without communication goes on.
  void touch_all();

 private:
  struct Slot {
    std::atomic<std::uint64_t> sequence{0};  // 0: empty or being written
    std::atomic<std::int64_t> begun_ns{0};
    std::atomic<std::int64_t> touched_ns{0};
    std::atomic<std::int64_t> ended_ns{1};
    std::array<std::atomic<std::uint64_t>, std::tuple_size_v<OperationWords>> words{};
  };

  std::array<Slot, size> slots_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::int64_t> last_ended_ns_{0};
};

/// Notes an operation from here to the end of the scope. Inside another one of the same thread it is a part of that
/// one: it only shows that something moves.
class NotedOperation {
 public:
  explicit NotedOperation(OperationFacts const& facts);
  ~NotedOperation();
  NotedOperation(NotedOperation const&) = delete;
  NotedOperation& operator=(NotedOperation const&) = delete;

 private:
  std::size_t slot_;
  bool is_part_;
};

}  // namespace isotrain
