#include "lib/data/batch_reader.h"

#include <algorithm>

#include "lib/base/error.h"

namespace isotrain::data {

BatchReader::BatchReader(Corpus const& corpus, std::uint64_t seed, LaneRange lanes, std::int64_t sequence,
                         std::int64_t position, std::int64_t samples_ahead)
    : sequence_(static_cast<std::size_t>(sequence)),
      samples_ahead_(static_cast<std::size_t>(samples_ahead)),
      position_(position) {
  expects(lanes.num_own_lanes > 0 && position >= 0 && samples_ahead > 0, "a rank reads lanes, from a sample, ahead");
  for (std::int64_t i = 0; i < lanes.num_own_lanes; ++i) {
    lanes_.emplace_back(corpus, seed, lanes.first_lane + i, lanes.num_lanes, sequence);
  }
  thread_ = std::thread([this, position] { read_ahead(position); });
}

BatchReader::~BatchReader() {
  {
    std::lock_guard const lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BatchReader::read_ahead(std::int64_t sample) {
  try {
    for (;; ++sample) {
      Round round;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || ready_.size() < samples_ahead_; });
        if (stop_) return;
        if (!spare_.empty()) {
          round = std::move(spare_.back());
          spare_.pop_back();
        }
      }
      round.tokens.resize(lanes_.size() * sequence_);
      round.targets.resize(lanes_.size() * sequence_);
      for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
        lanes_[lane].read(sample, std::span(round.tokens).subspan(lane * sequence_, sequence_),
                          std::span(round.targets).subspan(lane * sequence_, sequence_));
      }
      {
        std::lock_guard const lock(mutex_);
        ready_.push_back(std::move(round));
      }
      changed_.notify_all();
    }
  } catch (...) {
    std::lock_guard const lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

BatchReader::Round BatchReader::take_round() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || !ready_.empty(); });
  // What was read before the failure is still good.
  if (ready_.empty()) std::rethrow_exception(failure_);
  Round round = std::move(ready_.front());
  ready_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return round;
}

void BatchReader::read(std::int64_t samples, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
  auto const count = static_cast<std::size_t>(samples);
  auto const elements = lanes_.size() * count * sequence_;
  expects(samples > 0 && tokens.size() == elements && targets.size() == elements, "a batch is (lanes, samples, T)");
  for (std::size_t b = 0; b < count; ++b) {
    auto round = take_round();
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      auto const from = static_cast<std::ptrdiff_t>(lane * sequence_);
      auto const to = static_cast<std::ptrdiff_t>((lane * count + b) * sequence_);
      std::copy_n(round.tokens.begin() + from, sequence_, tokens.begin() + to);
      std::copy_n(round.targets.begin() + from, sequence_, targets.begin() + to);
    }
    ++position_;
    std::lock_guard const lock(mutex_);
    spare_.push_back(std::move(round));
  }
}

}  // namespace isotrain::data
