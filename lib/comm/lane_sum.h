#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/tree.h"
#include "lib/device/cpu.h"

namespace isotrain {

/// Adds up the gradients of the consecutive lanes of one rank in the order of Tree(num_lanes), in fp32, keeping as few
/// buffers as that takes: for a rank with all lanes log2(lanes) + 1.
///
///   LaneSum sum(lanes, num_lanes, buffers);            // buffers planned at set-up
///   for (lane : lanes) {
///     accumulate the lane's gradient in sum.next();    // what the buffer held before is garbage
///     sum.push(at);
///   }
///   use sum.partials();  sum.reset();
///
/// Where all lanes' gradients grow at once (experts, round by round), give one buffer per lane: next() and push() then
/// go through them in ascending order and the rest is the same; or call push(at, buffer) with the buffers of each lane.
class LaneSum {
 public:
  /// `buffers` are as many as num_buffers() says, or more, all of one length.
  LaneSum(IndexRange lanes, std::int64_t num_lanes, std::vector<std::span<float>> buffers);

  /// How many buffers the lanes of a rank need with next() and push(at).
  static std::int64_t num_buffers(IndexRange lanes, std::int64_t num_lanes);

  /// The buffer for the next lane; the same until push.
  std::span<float> next() const;
  /// Takes next() as the sum of the next lane.
  void push(Cpu const& at);
  /// Takes `buffer`, of the caller, as the sum of the next lane; it is added to, or added elsewhere and then free.
  void push(Cpu const& at, std::span<float> buffer);

  /// After the last lane: one sum for each of subtrees(lanes, num_lanes), ascending.
  std::vector<std::span<float>> partials() const;
  /// Makes ready for the next step.
  void reset();

 private:
  void take(Cpu const& at, std::span<float> buffer, bool ours);

  struct Held {
    std::span<float> data;
    bool ours;
  };

  IndexRange lanes_;
  std::int64_t num_lanes_;
  std::vector<std::span<float>> buffers_;
  std::vector<std::span<float>> free_;
  std::vector<Held> held_;  // by number of push
  TreeCounter counter_;
};

}  // namespace isotrain
