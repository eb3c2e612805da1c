#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "lib/base/random.h"
#include "lib/comm/communicator.h"
#include "lib/comm/lane_sum.h"
#include "tests/reference/tree_sum.h"

/// What the tests of sums over lanes across ranks share.
namespace isotrain::test {

inline constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// Gradients whose sums depend on the order: N(0, 1) * 2^U(-8, 8).
inline float gradient(std::int64_t lane, std::int64_t element) {
  Random const random(17, static_cast<std::uint64_t>(lane));
  auto const i = static_cast<std::uint64_t>(element);
  return static_cast<float>(random.normal(i) * std::exp2(16 * random.uniform_double((std::uint64_t{1} << 40) + i) - 8));
}

inline std::vector<float> expected_sum(std::int64_t num_lanes, IndexRange elements) {
  std::vector<float> sum;
  for (std::int64_t e = elements.begin; e < elements.end; ++e) {
    sum.push_back(reference::tree_sum([&](std::int64_t lane) { return gradient(lane, e); }, num_lanes));
  }
  return sum;
}

inline bool same_bits(std::span<float const> a, std::span<float const> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

/// A rank's lanes, added up in buffers of its own.
struct Local {
  Local(Cpu const& at, IndexRange lanes, std::int64_t num_lanes, std::int64_t num_elements)
      : memory(static_cast<std::size_t>(LaneSum::num_buffers(lanes, num_lanes)),
               std::vector<float>(static_cast<std::size_t>(num_elements), nan)),
        sum(lanes, num_lanes, {memory.begin(), memory.end()}) {
    for (std::int64_t lane = lanes.begin; lane < lanes.end; ++lane) {
      std::span<float> const buffer = sum.next();
      for (std::int64_t e = 0; e < num_elements; ++e) buffer[static_cast<std::size_t>(e)] = gradient(lane, e);
      sum.push(at);
    }
  }
  std::vector<std::vector<float>> memory;
  LaneSum sum;
};

/// Lanes and chunks of the ranks that run the test.
class LanesOfRanks : public testing::Test {
 protected:
  IndexRange own(std::vector<std::int64_t> const& offsets) const {
    return {offsets[static_cast<std::size_t>(rank_)], offsets[static_cast<std::size_t>(rank_) + 1]};
  }
  /// Chunks of different lengths; with three ranks or more, one is empty.
  std::vector<std::int64_t> uneven_offsets(std::int64_t unit) const {
    std::vector<std::int64_t> offsets{0};
    for (int r = 0; r < size_; ++r) offsets.push_back(offsets.back() + (r == 1 && size_ > 2 ? 0 : unit + 5 * r));
    return offsets;
  }
  /// `num_lanes` over all ranks, the first ones getting one more: 8 over 3 is 3, 3, 2.
  std::vector<IndexRange> even_lanes(std::int64_t num_lanes) const {
    std::vector<IndexRange> lanes;
    for (std::int64_t r = 0, next = 0; r < size_; ++r) {
      std::int64_t const count = num_lanes / size_ + (r < num_lanes % size_);
      lanes.push_back({next, next + count});
      next += count;
    }
    return lanes;
  }

  Cpu const at_{1};
  Communicator const comm_ = Communicator::duplicate(MPI_COMM_WORLD);
  int const rank_ = comm_.rank();
  int const size_ = comm_.size();
};

}  // namespace isotrain::test
