#pragma once

#include <cstdint>

namespace isotrain::kernels {

/// Writes the ids of the `k` largest of score[0 .. count), best first, equal ones by lower id. Only ids for which
/// allowed(id) holds take part; at least k must. NaN counts as smaller than all numbers, so that the choice is always
/// defined.
template <class Allowed>
void top_k(std::int32_t* chosen, int k, float const* score, int count, Allowed const& allowed) {
  // Insertion into a sorted list of at most k: ids come in ascending order, so a later equal score stays behind.
  auto const better = [&](int a, int b) {
    return score[a] > score[b] || (score[b] != score[b] && score[a] == score[a]);
  };
  int found = 0;
  for (int id = 0; id < count; ++id) {
    if (!allowed(id)) continue;
    if (found == k && !better(id, chosen[k - 1])) continue;
    int place = found < k ? found++ : k - 1;
    for (; place > 0 && better(id, chosen[place - 1]); --place) chosen[place] = chosen[place - 1];
    chosen[place] = id;
  }
}

}  // namespace isotrain::kernels
