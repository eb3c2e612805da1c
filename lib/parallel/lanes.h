#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/tree.h"

namespace isotrain {

/// Part `part` of [0, count) cut into `num_parts` contiguous parts that differ by at most one, larger ones first: 8 in
/// 3 parts are 3, 3, 2. Requires 0 <= part < num_parts.
IndexRange even_part(std::int64_t count, std::int64_t num_parts, std::int64_t part);

/// The lanes of each data-parallel rank, ascending: consecutive ranges that together are [0, num_lanes), none empty.
/// Throws UsageError if there are more ranks than lanes.
std::vector<IndexRange> lanes_of_ranks(std::int64_t num_lanes, std::int64_t num_ranks);

}  // namespace isotrain
