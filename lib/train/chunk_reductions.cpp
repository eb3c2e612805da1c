#include "lib/train/chunk_reductions.h"

#include <algorithm>

#include "lib/parallel/lanes.h"

namespace isotrain {
namespace {

std::vector<std::int64_t> offsets_of(FlatRange range, int ranks) {
  std::vector<std::int64_t> offsets;
  for (int r = 0; r < ranks; ++r) offsets.push_back(share_of(range, ranks, r).begin - range.begin);
  offsets.push_back(range.size());
  return offsets;
}

TreeReduction over_tensor(FlatRange region, int slices, Mesh const& mesh) {
  int const ranks = mesh.tensor().size();
  std::vector<IndexRange> of_ranks;
  for (int r = 0; r < ranks; ++r) {
    of_ranks.push_back({std::int64_t{r} * slices / ranks, (std::int64_t{r} + 1) * slices / ranks});
  }
  return {mesh.tensor(), slices, of_ranks, offsets_of(region, ranks)};
}

TreeReduction over_data(Domain const& domain, LanePlan const& lanes) {
  std::vector<IndexRange> of_ranks = lanes.of_ranks;
  if (domain.kind == Domain::Kind::experts) {
    of_ranks.clear();
    auto const sources = static_cast<std::size_t>(lanes.sources);
    for (std::size_t r = 0; r < lanes.of_ranks.size(); r += sources) {
      of_ranks.push_back({lanes.of_ranks[r].begin, lanes.of_ranks[r + sources - 1].end});
    }
  }
  std::vector<std::int64_t> offsets;
  for (auto const& share : domain.reduced) offsets.push_back(share.begin - domain.part.begin);
  offsets.push_back(domain.part.size());
  return {*domain.reducers, lanes.num_lanes, of_ranks, offsets};
}

}  // namespace

std::int64_t LanePlan::turns() const {
  std::int64_t most = 0;
  for (int s = 0; s < sources; ++s) most = std::max(most, of_source(s).size());
  return most;
}

LanePlan make_lane_plan(std::int64_t num_lanes, Mesh const& mesh) {
  auto const& at = mesh.coordinates();
  int const sources = mesh.degrees().expert;
  return {.num_lanes = num_lanes,
          .of_ranks = lanes_of_ranks(num_lanes, mesh.degrees().data),
          .data_rank = at.data,
          .first_source = at.expert_data * sources,
          .sources = sources};
}

std::array<FlatRange, 2> replicated_regions(Shard const& shard) {
  FlatRange const matrices = shard.region(Region::replicated), fp32 = shard.region(Region::fp32);
  return {FlatRange{0, matrices.size()}, FlatRange{matrices.size(), matrices.size() + fp32.size()}};
}

ChunkReductions::ChunkReductions(Shard const& shard, ModelConfig const& config, ModelPart const& part,
                                 std::vector<Domain> const& domains, LanePlan const& lanes, Mesh const& mesh)
    : over_tensor{isotrain::over_tensor(replicated_regions(shard)[0], shard.table().slices(), mesh),
                  isotrain::over_tensor(replicated_regions(shard)[1], shard.table().slices(), mesh)} {
  for (auto const& domain : domains) over_data.push_back(isotrain::over_data(domain, lanes));
  if (config.tied_embeddings && part.has_embedding()) {
    tied.emplace(mesh.data(), lanes.num_lanes, lanes.of_ranks,
                 offsets_of({0, embedding_range(shard).size()}, mesh.data().size()));
  }
}

std::int64_t ChunkReductions::tensor_workspace_size() const {
  return std::max(over_tensor[0].workspace_size(), over_tensor[1].workspace_size());
}

std::int64_t ChunkReductions::data_workspace_size() const {
  std::int64_t most = 0;
  for (auto const& reduction : over_data) most = std::max(most, reduction.workspace_size());
  return tied ? std::max(most, tied->workspace_size()) : most;
}

}  // namespace isotrain
