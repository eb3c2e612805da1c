#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace isotrain {

/// "rank 2", "ranks 0, 1, 3", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 92 more".
std::string list_ranks(std::vector<int> const& ranks);

/// Ranks with what they have in common.
template <class Key>
struct RankGroup {
  Key key;
  std::vector<int> ranks;
};

/// The smallest group first: these are the odd ones. Groups of one size and the ranks in a group keep their order.
template <class Key>
std::vector<RankGroup<Key>> group_ranks(std::vector<std::pair<Key, int>> const& keys) {
  std::vector<RankGroup<Key>> groups;
  for (auto const& [key, rank] : keys) {
    auto const found = std::ranges::find(groups, key, &RankGroup<Key>::key);
    if (found != groups.end()) {
      found->ranks.push_back(rank);
    } else {
      groups.push_back({key, {rank}});
    }
  }
  std::ranges::stable_sort(groups, {}, [](auto const& group) { return group.ranks.size(); });
  return groups;
}

}  // namespace isotrain
