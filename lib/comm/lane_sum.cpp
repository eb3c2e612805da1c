#include "lib/comm/lane_sum.h"

#include <algorithm>

#include "kernels/reduce.h"
#include "lib/base/error.h"

namespace isotrain {

LaneSum::LaneSum(IndexRange lanes, std::int64_t num_lanes, std::vector<std::span<float>> buffers)
    : lanes_(lanes), num_lanes_(num_lanes), buffers_(std::move(buffers)), counter_(num_lanes) {
  expects(0 <= lanes.begin && lanes.end <= num_lanes, "lanes inside the tree");
  reset();
}

std::int64_t LaneSum::num_buffers(IndexRange lanes, std::int64_t num_lanes) {
  TreeCounter counter(num_lanes);
  std::size_t most = 0;
  for (std::int64_t lane = lanes.begin; lane < lanes.end; ++lane) {
    most = std::max(most, counter.sums().size() + 1);
    counter.push({0, lane});
  }
  return static_cast<std::int64_t>(most);
}

std::span<float> LaneSum::next() const {
  expects(!free_.empty(), "a free buffer");
  return free_.back();
}

void LaneSum::push(Cpu const& at) {
  std::span<float> const buffer = next();
  free_.pop_back();
  take(at, buffer, true);
}

void LaneSum::push(Cpu const& at, std::span<float> buffer) {
  take(at, buffer, false);
}

void LaneSum::take(Cpu const& at, std::span<float> buffer, bool ours) {
  auto const lane = lanes_.begin + static_cast<std::int64_t>(held_.size());
  expects(lane < lanes_.end, "no more lanes than this rank has");
  held_.push_back({buffer, ours});
  for (TreeAdd add : counter_.push({0, lane})) {
    Held const right = held_[static_cast<std::size_t>(add.right)];
    kernels::add(at, held_[static_cast<std::size_t>(add.left)].data, right.data);
    if (right.ours) free_.push_back(right.data);
  }
}

std::vector<std::span<float>> LaneSum::partials() const {
  expects(static_cast<std::int64_t>(held_.size()) == lanes_.size(), "all lanes to be in");
  std::vector<std::span<float>> result;
  for (auto const& sum : counter_.sums()) result.push_back(held_[static_cast<std::size_t>(sum.number)].data);
  return result;
}

void LaneSum::reset() {
  free_.assign(buffers_.rbegin(), buffers_.rend());
  held_.clear();
  counter_ = TreeCounter(num_lanes_);
}

}  // namespace isotrain
