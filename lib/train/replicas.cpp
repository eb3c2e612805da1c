#include "lib/train/replicas.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "kernels/reduce.h"
#include "lib/comm/agree.h"

namespace isotrain {
namespace {

char const* name_of(Domain::Kind kind) {
  switch (kind) {
    case Domain::Kind::tied:
      return "tied embedding";
    case Domain::Kind::sliced:
      return "sliced matrices";
    case Domain::Kind::experts:
      return "experts";
    case Domain::Kind::replicated:
      return "replicated matrices";
    case Domain::Kind::fp32:
      return "norm gains and routers";
  }
  return "";
}

/// What most ranks have; of equally many the value of the lowest rank.
std::uint64_t majority(std::vector<std::uint64_t> const& values) {
  auto const votes = [&](std::uint64_t value) { return std::ranges::count(values, value); };
  return *std::ranges::max_element(values, [&](auto a, auto b) { return votes(a) < votes(b); });
}

}  // namespace

template <class T>
void check_replicas(RankPlan const& rank, TrainMemory<T> const& memory, Cpu const& at, std::string const& host) {
  std::optional<std::string> wrong;
  for (std::size_t c = 0; c < rank.chunks().size(); ++c) {
    auto const& chunk = rank.chunks()[c];
    auto const& names = memory.layout().chunks[c];
    for (auto const& domain : chunk.domains) {
      auto const size = static_cast<std::size_t>(domain.local.size());
      bool const fp32 = domain.kind == Domain::Kind::fp32;
      auto const begin = static_cast<std::size_t>(domain.local.begin - (fp32 ? chunk.shard.matrix_size() : 0));
      std::uint64_t const hash = fp32 ? kernels::hash(at, memory[names.fp32].subspan(begin, size), 0)
                                      : kernels::hash(at, memory[names.matrices].subspan(begin, size), 0);
      auto const all = domain.holders->all_gather(hash);
      if (hash == majority(all) || wrong) continue;
      wrong = std::string(name_of(domain.kind)) + " of layers " + std::to_string(chunk.part.layers.begin) + " to " +
              std::to_string(chunk.part.layers.end - 1);
    }
  }
  auto const& world = rank.mesh().world();
  run_collectively(world, [&] {
    if (!wrong) return;
    throw Error("the weights of rank " + std::to_string(world.rank()) + " on " + host +
                    " are not those of the ranks that hold the same: " + *wrong,
                "memory or processor of that node may be faulty, or something else wrote there",
                "resume from the last checkpoint without that node");
  });
}

template void check_replicas(RankPlan const&, TrainMemory<float> const&, Cpu const&, std::string const&);
template void check_replicas(RankPlan const&, TrainMemory<bfloat16> const&, Cpu const&, std::string const&);

}  // namespace isotrain
