#include "lib/io/runs.h"

namespace isotrain::io {

std::uint64_t elements(std::vector<FlatRange> const& runs) {
  std::uint64_t total = 0;
  for (FlatRange const& run : runs) total += static_cast<std::uint64_t>(run.size());
  return total;
}

bool ascending(std::vector<FlatRange> const& runs) {
  std::int64_t last = 0;
  for (FlatRange const& run : runs) {
    if (run.begin < last || run.end < run.begin) return false;
    last = run.end;
  }
  return true;
}

std::vector<FlatRange> merged(std::vector<FlatRange> const& runs) {
  std::vector<FlatRange> result;
  for (FlatRange const& run : runs) {
    if (run.size() == 0) continue;
    if (!result.empty() && result.back().end == run.begin) {
      result.back().end = run.end;
    } else {
      result.push_back(run);
    }
  }
  return result;
}

}  // namespace isotrain::io
