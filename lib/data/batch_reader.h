#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "lib/data/window_reader.h"

namespace isotrain::data {

/// The samples of a rank's lanes, read ahead by a thread. All lanes move together, so the position is one number: the
/// samples that each lane has consumed. It belongs in a checkpoint; a reader made with it goes on where that one stood,
/// whatever rank owns the lane now.
class BatchReader {
 public:
  /// Reads at most `samples_ahead` samples a lane ahead, which bounds the memory: 8 bytes * T * lanes * samples_ahead.
  /// Throws as LaneReader does.
  BatchReader(Corpus const& corpus, std::uint64_t seed, LaneRange lanes, std::int64_t sequence, std::int64_t position,
              std::int64_t samples_ahead);
  ~BatchReader();
  BatchReader(BatchReader const&) = delete;
  BatchReader& operator=(BatchReader const&) = delete;

  /// The next `samples` samples of each lane; B = samples, N = own lanes. Waits for the reading thread. What that
  /// thread could not read is thrown here, as the Error that it met.
  ///
  ///   tokens   (N, B, T) int32  out
  ///   targets  (N, B, T) int32  out: the tokens one further on
  void read(std::int64_t samples, std::span<std::int32_t> tokens, std::span<std::int32_t> targets);

  /// Samples a lane that read() has given out, from the very first of the run.
  std::int64_t position() const { return position_; }

 private:
  /// One sample of every own lane.
  struct Round {
    std::vector<std::int32_t> tokens;   // (N, T)
    std::vector<std::int32_t> targets;  // (N, T)
  };

  void read_ahead(std::int64_t sample);
  Round take_round();

  std::vector<LaneReader> lanes_;  // used by the thread alone
  std::size_t sequence_;
  std::size_t samples_ahead_;
  std::int64_t position_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Round> ready_;
  std::vector<Round> spare_;
  std::exception_ptr failure_;
  bool stop_ = false;

  std::thread thread_;
};

}  // namespace isotrain::data
