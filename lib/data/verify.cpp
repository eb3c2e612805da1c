#include "lib/data/verify.h"

#include "lib/base/error.h"
#include "lib/comm/agree.h"

namespace isotrain::data {
namespace {

void require_same(std::filesystem::path const& path, char const* what, std::string const& here,
                  std::string const& expected) {
  if (here == expected) return;
  throw Error("'" + path.string() + "' is not the shard that corpus.json describes",
              std::string("its ") + what + " is " + here + ", corpus.json says " + expected,
              "was it replaced, or copied from another corpus?");
}

void require_vocabulary(Corpus const& corpus, std::int64_t model_vocabulary_size) {
  if (corpus.vocabulary_size <= model_vocabulary_size) return;
  throw UsageError("the model's vocabulary is too small for '" + corpus.folder.string() + "'",
                   "the tokenizer has " + std::to_string(corpus.vocabulary_size) +
                       " tokens, the model's vocab_size is " + std::to_string(model_vocabulary_size),
                   "raise vocab_size in the model's config.json, or use another corpus");
}

}  // namespace

void verify_shard(Corpus const& corpus, ShardInfo const& shard, Verification how) {
  auto const path = corpus.folder / shard.file;
  ShardReader const reader(path);
  auto const& found = reader.info();
  require_same(path, "tokenizer", reader.tokenizer_hash(), corpus.tokenizer_hash);
  require_same(path, "split", to_string(found.split), to_string(shard.split));
  require_same(path, "number of tokens", std::to_string(found.num_tokens), std::to_string(shard.num_tokens));
  require_same(path, "number of documents", std::to_string(found.num_documents), std::to_string(shard.num_documents));
  require_same(path, "digest", found.digest, shard.digest);
  require_same(path, "token type", to_string(reader.type()), to_string(token_type(corpus.vocabulary_size)));
  if (how == Verification::full) reader.verify(corpus.vocabulary_size);
}

Corpus open_corpus(Communicator const& comm, std::filesystem::path const& folder, LaneRange lanes,
                   std::int64_t sequence, std::int64_t model_vocabulary_size, Verification how) {
  auto corpus = run_collectively(comm, [&] { return open_corpus(folder); });
  agree_on_same(comm, corpus.digest, "the digests of corpus.json");
  run_collectively(comm, [&] {
    require_vocabulary(corpus, model_vocabulary_size);
    for (std::int64_t i = 0; i < lanes.num_own_lanes; ++i) {
      for (auto const& shard : shards_of_lane(corpus, lanes.first_lane + i, lanes.num_lanes)) {
        verify_shard(corpus, shard, how);
      }
    }
    require_windows(corpus, lanes.num_lanes, sequence);
    auto const validation = corpus.shards_of(Split::validation);
    auto const stride = static_cast<std::size_t>(comm.size());
    for (auto i = static_cast<std::size_t>(comm.rank()); i < validation.size(); i += stride) {
      verify_shard(corpus, validation[i], how);
    }
  });
  return corpus;
}

}  // namespace isotrain::data
