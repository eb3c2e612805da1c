#include "lib/parallel/lanes.h"

#include <algorithm>
#include <string>

#include "lib/base/error.h"

namespace isotrain {

IndexRange even_part(std::int64_t count, std::int64_t num_parts, std::int64_t part) {
  expects(0 <= part && part < num_parts && count >= 0, "a part of a cut");
  std::int64_t const size = count / num_parts;
  std::int64_t const larger = count % num_parts;
  std::int64_t const begin = part * size + std::min(part, larger);
  return {begin, begin + size + (part < larger)};
}

std::vector<IndexRange> lanes_of_ranks(std::int64_t num_lanes, std::int64_t num_ranks) {
  if (num_ranks > num_lanes) {
    throw UsageError(
        std::to_string(num_ranks) + " data-parallel ranks are too many for " + std::to_string(num_lanes) + " lanes",
        "each rank needs a lane",
        "use at most " + std::to_string(num_lanes) + " ranks or raise --repro.lanes, which changes the results");
  }
  std::vector<IndexRange> ranges;
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) ranges.push_back(even_part(num_lanes, num_ranks, rank));
  return ranges;
}

}  // namespace isotrain
