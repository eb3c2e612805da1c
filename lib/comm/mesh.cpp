#include "lib/comm/mesh.h"

#include <algorithm>
#include <array>
#include <vector>

namespace isotrain {
namespace {

/// The ranks that agree in `same`, in the order of `key`; both are below the number of ranks.
Communicator group(Communicator const& world, char const* name, int same, int key) {
  return std::move(*world.split(same, key)).named(name);
}

Degrees checked(Degrees const& degrees, int ranks) {
  expects(degrees.ranks() == ranks, "degrees that multiply to the number of ranks");
  expects(degrees.data % degrees.expert == 0, "an expert degree that divides the data ranks");
  return degrees;
}

using Row = std::array<std::string, 6>;

Row row(Degrees const& degrees, int rank, std::string const& host) {
  auto const at = coordinates(degrees, WorldRank{rank});
  return {std::to_string(rank),        host,
          std::to_string(at.pipeline), std::to_string(at.data),
          std::to_string(at.expert),   std::to_string(at.tensor)};
}

}  // namespace

Mesh::Mesh(Communicator const& world, Degrees const& degrees)
    : world_(&world),
      degrees_(checked(degrees, world.size())),
      at_(isotrain::coordinates(degrees, WorldRank{world.rank()})),
      tensor_(group(world, "tensor", at_.pipeline * degrees.data + at_.data, at_.tensor)),
      data_(group(world, "data", at_.pipeline * degrees.tensor + at_.tensor, at_.data)),
      pipeline_(group(world, "pipeline", at_.data * degrees.tensor + at_.tensor, at_.pipeline)),
      expert_(group(world, "expert", at_.pipeline * degrees.expert_data() + at_.expert_data,
                    at_.expert * degrees.tensor + at_.tensor)),
      expert_data_(group(world, "expert_data",
                         (at_.pipeline * degrees.expert + at_.expert) * degrees.tensor + at_.tensor, at_.expert_data)),
      stage_(group(world, "stage", at_.pipeline, at_.tensor * degrees.data + at_.data)) {}

void Mesh::check_signatures() const {
  for (Communicator const* group : {world_, &tensor_, &data_, &pipeline_, &expert_, &expert_data_, &stage_}) {
    group->check_signature();
  }
}

std::string mesh_table(Degrees const& degrees, std::span<std::string const> hosts) {
  constexpr int most_shown = 16;
  constexpr int first = 12;
  constexpr int last = 3;
  int const ranks = degrees.ranks();
  expects(hosts.size() == static_cast<std::size_t>(ranks), "a host for each rank");
  std::vector<Row> rows{{"rank", "host", "stage", "data", "expert", "tensor"}};
  for (int rank = 0; rank < ranks; ++rank) {
    if (ranks > most_shown && rank >= first && rank < ranks - last) {
      if (rank == first) rows.push_back({"...", std::to_string(ranks - first - last) + " more", "", "", "", ""});
      continue;
    }
    rows.push_back(row(degrees, rank, hosts[static_cast<std::size_t>(rank)]));
  }
  std::array<std::size_t, 6> widths{};
  for (Row const& cells : rows) {
    for (std::size_t c = 0; c < cells.size(); ++c) widths[c] = std::max(widths[c], cells[c].size());
  }
  std::string table;
  for (Row const& cells : rows) {
    std::string line;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      std::string const padding(widths[c] - cells[c].size(), ' ');
      bool const is_host = c == 1;
      line += "  " + (is_host ? cells[c] + padding : padding + cells[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    table += line + "\n";
  }
  return table;
}

}  // namespace isotrain
