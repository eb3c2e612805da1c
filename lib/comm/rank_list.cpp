#include "lib/comm/rank_list.h"

namespace isotrain {

std::string list_ranks(std::vector<int> const& ranks) {
  constexpr std::size_t most_shown = 8;
  std::string text = ranks.size() > 1 ? "ranks " : "rank ";
  for (std::size_t i = 0; i < std::min(ranks.size(), most_shown); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  }
  if (ranks.size() > most_shown) text += " and " + std::to_string(ranks.size() - most_shown) + " more";
  return text;
}

}  // namespace isotrain
