#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "lib/data/corpus.h"
#include "lib/data/shard.h"

namespace isotrain::data {

struct CorpusLayout {
  std::int64_t num_train_shards = 24;
  std::int64_t num_validation_shards = 1;
  std::int64_t piece_tokens = 16384;  // a longer document is cut into pieces of so many, or shards could not be even
};

/// True for the documents that go to the validation split: a function of (seed, document), true for `fraction` of them.
bool is_validation(std::uint64_t seed, std::int64_t document, double fraction);

/// Writes a corpus folder: all shards at once, one chunk of each in memory. Works in `out`.tmp-PID and renames it at
/// the end, so `out` appears complete and durable or not at all. A document ends with eos; its pieces, which have none
/// between them, go to the shard of their split that has the fewest tokens (the first of equals), so shards of a split
/// differ by at most one piece and its eos.
class CorpusWriter {
 public:
  /// Throws UsageError if `out` exists and is not an empty folder, Error if it cannot be made.
  CorpusWriter(std::filesystem::path const& out, Tokenizer const& tokenizer, std::uint64_t seed,
               CorpusLayout const& layout);
  /// Without finish(), removes all that was written.
  ~CorpusWriter();
  CorpusWriter(CorpusWriter const&) = delete;
  CorpusWriter& operator=(CorpusWriter const&) = delete;

  /// Adds the next tokens of a document of `split`; documents come one after the other.
  void add(Split split, std::span<std::uint32_t const> tokens, bool ends_document);

  /// Throws Error if there is no train document. Returns what open_corpus(out) gives.
  Corpus finish();

 private:
  struct SplitState {
    using Entry = std::pair<std::int64_t, std::size_t>;  // tokens, index of the shard in writers_
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> emptiest{};
    std::int64_t num_documents = 0;
  };

  SplitState& state(Split split) { return splits_[split == Split::train ? 0 : 1]; }
  void add_shards(Split split, std::int64_t count, TokenType type);
  void write_piece(Split split, std::span<std::uint32_t const> piece);

  std::filesystem::path out_;
  std::filesystem::path folder_;  // the temporary one
  Tokenizer const& tokenizer_;
  std::uint64_t seed_;
  std::size_t piece_tokens_;
  std::vector<std::unique_ptr<ShardWriter>> writers_;
  SplitState splits_[2];
  std::vector<std::uint32_t> open_document_;  // what of it is in no piece yet
};

}  // namespace isotrain::data
