#pragma once

#include "lib/train/memory.h"
#include "lib/train/rank_plan.h"

namespace isotrain {

/// Compares the weights that ranks hold in common, by hash. Throws the same AgreedError on all ranks if they are not
/// the same bits everywhere, naming the rank that most others of its group differ from, and what it holds:
///   "the weights of rank 3 on node7 are not those of the other ranks: sliced matrices of layers 4 to 7"
/// Collective over all ranks.
template <class T>
void check_replicas(RankPlan const& rank, TrainMemory<T> const& memory, Cpu const& at, std::string const& host);

}  // namespace isotrain
