#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace isotrain {

/// How many insertions, deletions, replacements and swaps of neighbours turn `a` into `b`; '-' and '_' are equal.
/// Source: Damerau, 1964 (optimal string alignment).
int edit_distance(std::string_view a, std::string_view b);

/// The candidate that `word` was most likely meant to be, or nothing if none is near. A candidate "section.key" is also
/// compared by its key alone.
std::optional<std::string> nearest(std::string_view word, std::vector<std::string> const& candidates);

}  // namespace isotrain
