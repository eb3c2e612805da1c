#include "lib/train/domain.h"

namespace isotrain {
namespace {

Domain shared_over(Domain::Kind kind, FlatRange local, Communicator const& group) {
  Domain domain{.kind = kind, .local = local, .part = local, .reducers = &group, .holders = &group};
  for (int r = 0; r < group.size(); ++r) {
    domain.reduced.push_back(share_of(local, group.size(), r));
    domain.held.push_back(domain.reduced.back().size());
  }
  domain.own = domain.reduced[static_cast<std::size_t>(group.rank())];
  return domain;
}

Domain shared_over_tensor_and_data(Domain::Kind kind, FlatRange local, Mesh const& mesh) {
  int const tensor = mesh.tensor().size(), data = mesh.data().size();
  Domain domain{.kind = kind,
                .local = local,
                .part = share_of(local, tensor, mesh.tensor().rank()),
                .reducers = &mesh.data(),
                .holders = &mesh.stage()};
  for (int d = 0; d < data; ++d) domain.reduced.push_back(share_of(domain.part, data, d));
  for (int t = 0; t < tensor; ++t) {
    for (int d = 0; d < data; ++d) domain.held.push_back(share_of(share_of(local, tensor, t), data, d).size());
  }
  domain.own = domain.reduced[static_cast<std::size_t>(mesh.data().rank())];
  return domain;
}

}  // namespace

FlatRange share_of(FlatRange range, int parts, int part) {
  std::int64_t const blocks = range.size() / block_elements;
  return {range.begin + blocks * part / parts * block_elements,
          range.begin + blocks * (part + 1) / parts * block_elements};
}

FlatRange embedding_range(Shard const& shard) {
  auto const pieces = shard["model.embed_tokens.weight"];
  return {pieces.front().offset, pieces.back().end()};
}

std::vector<Domain> make_domains(Shard const& shard, ModelConfig const& config, ModelPart const& part,
                                 Mesh const& mesh) {
  std::vector<Domain> domains;
  FlatRange sliced = shard.region(Region::sliced);
  if (config.tied_embeddings && (part.has_embedding() || part.has_head(config))) {
    FlatRange const embedding = embedding_range(shard);
    if (part.has_head(config)) domains.push_back(shared_over(Domain::Kind::tied, embedding, mesh.data()));
    sliced.begin = embedding.end;
  }
  domains.push_back(shared_over(Domain::Kind::sliced, sliced, mesh.data()));
  domains.push_back(shared_over(Domain::Kind::experts, shard.region(Region::experts), mesh.expert_data()));
  domains.push_back(shared_over_tensor_and_data(Domain::Kind::replicated, shard.region(Region::replicated), mesh));
  domains.push_back(shared_over_tensor_and_data(Domain::Kind::fp32, shard.region(Region::fp32), mesh));
  std::erase_if(domains, [](Domain const& domain) { return domain.local.size() == 0; });
  return domains;
}

}  // namespace isotrain
