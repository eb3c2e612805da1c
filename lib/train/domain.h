#pragma once

#include <cstdint>
#include <vector>

#include "lib/comm/mesh.h"
#include "lib/model/config.h"
#include "lib/model/part.h"
#include "lib/tensor/shard.h"

namespace isotrain {

/// A part of what a chunk holds whose gradients are reduced, and whose optimizer state is shared out, over one group of
/// ranks (ZeRO-1, arXiv:1910.02054): every rank of the group owns a run of whole blocks of it.
///   tied        embedding that is the output matrix, too; on the chunk with the head, which owns it
///   sliced      own slices of the cut matrices; over the data ranks
///   experts     own experts; over the data ranks with the same experts
///   replicated  what every tensor rank has: a part of it to each, of that over the data ranks
///   fp32        norm gains and routers, the same way
struct Domain {
  enum class Kind { tied, sliced, experts, replicated, fp32 };

  Kind kind = Kind::sliced;
  FlatRange local = {};                    // in the chunk's shard
  FlatRange part = {};                     // of it, what this rank's group reduces over its data ranks
  Communicator const* reducers = nullptr;  // these data ranks
  std::vector<FlatRange> reduced = {};     // what each of them owns, in the shard; together `part`
  Communicator const* holders = nullptr;   // all ranks that need the weights
  std::vector<std::int64_t> held = {};     // elements that each of them owns, in their order in `local`
  FlatRange own = {};                      // in the shard
};

/// Part `part` of `parts` of a range: whole blocks, even to one, ascending.
FlatRange share_of(FlatRange range, int parts, int part);

/// The domains of a chunk that are not empty, ascending. An embedding that another chunk owns is in none.
std::vector<Domain> make_domains(Shard const& shard, ModelConfig const& config, ModelPart const& part,
                                 Mesh const& mesh);

/// Where a tied embedding lies in the shard.
FlatRange embedding_range(Shard const& shard);

}  // namespace isotrain
