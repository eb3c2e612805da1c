#pragma once

#include <cstdint>
#include <vector>

#include "lib/tensor/parameters.h"

/// Lists of runs of a flat dataset: what one rank holds of it. In memory the runs lie one after the other.
namespace isotrain::io {

/// Elements of all runs.
std::uint64_t elements(std::vector<FlatRange> const& runs);
/// Whether each run begins where the one before it ended, or later, and none ends before it begins.
bool ascending(std::vector<FlatRange> const& runs);
/// The same elements in the fewest runs: without empty ones, those that adjoin joined. Requires ascending(runs).
std::vector<FlatRange> merged(std::vector<FlatRange> const& runs);

}  // namespace isotrain::io
