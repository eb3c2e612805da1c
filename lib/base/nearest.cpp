#include "lib/base/nearest.h"

#include <algorithm>

namespace isotrain {
namespace {

bool same(char a, char b) {
  return a == b || ((a == '-' || a == '_') && (b == '-' || b == '_'));
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> cost(a.size() + 1, std::vector<int>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = static_cast<int>(i + j);
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + !same(a[i - 1], b[j - 1])});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::optional<std::string> nearest(std::string_view word, std::vector<std::string> const& candidates) {
  std::optional<std::string> best;
  int best_distance = 0;
  for (std::string const& candidate : candidates) {
    int distance = edit_distance(word, candidate);
    std::size_t const dot = candidate.rfind('.');
    if (dot != std::string::npos) {
      std::string_view const key = std::string_view(candidate).substr(dot + 1);
      // A missing or wrong section counts as one edit.
      std::string_view const own_key = word.substr(word.rfind('.') + 1);
      distance = std::min(distance, 1 + edit_distance(own_key, key));
    }
    if (!best || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  int const limit = std::max(2, static_cast<int>(word.size()) / 3);
  return best && best_distance <= limit ? best : std::nullopt;
}

}  // namespace isotrain
