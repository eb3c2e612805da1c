#pragma once

#include <cstdint>
#include <filesystem>

#include "lib/comm/communicator.h"
#include "lib/data/corpus.h"
#include "lib/data/window_reader.h"

namespace isotrain::data {

/// How a corpus is looked through before it is used: everything, or all but the tokens themselves (moments instead of
/// the time to read the corpus).
enum class Verification { full, quick };

/// Throws Error if a shard cannot be opened, is not the one that corpus.json describes, was made with another tokenizer
/// or has another type of tokens; with `full` also if its digest is wrong or a token is not in the vocabulary.
void verify_shard(Corpus const& corpus, ShardInfo const& shard, Verification how);

/// Opens the corpus on all ranks: the same everywhere, undamaged and fit for the run, or one AgreedError that names
/// what is wrong and where. Collective. Each rank looks at the shards of its lanes and at every size()-th validation
/// shard. Wrong are also: a model vocabulary smaller than the tokenizer's, lanes that do not divide the train shards, a
/// lane without a window of `sequence` tokens.
Corpus open_corpus(Communicator const& comm, std::filesystem::path const& folder, LaneRange lanes,
                   std::int64_t sequence, std::int64_t model_vocabulary_size, Verification how);

}  // namespace isotrain::data
