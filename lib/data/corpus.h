#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/data/tokenizer.h"

namespace isotrain::data {

enum class Split { train, validation };
std::string to_string(Split split);
Split parse_split(std::string_view text);

/// Raised when a file can no longer be read by older programs.
constexpr std::int64_t corpus_format_version = 1;

/// How a token is stored: the narrowest that holds the vocabulary.
enum class TokenType { uint16, uint32 };
std::string to_string(TokenType type);
inline TokenType token_type(std::int64_t vocabulary_size) {
  return vocabulary_size <= 65536 ? TokenType::uint16 : TokenType::uint32;
}

/// One shard file as corpus.json describes it.
struct ShardInfo {
  std::string file;  // name inside the folder
  Split split = Split::train;
  std::int64_t num_tokens = 0;
  std::int64_t num_documents = 0;  // entries of /document_offsets less one: a long document counts once for each piece
  std::string digest;              // 16 hex digits: XXH3-64 of the bytes of /tokens, then of /document_offsets

  bool operator==(ShardInfo const&) const = default;
};

/// A tokenized corpus: what corpus.json says. A folder is a corpus only once that file is in it.
struct Corpus {
  static constexpr char const* file_name = "corpus.json";
  static constexpr char const* tokenizer_file_name = "tokenizer.bin";

  std::filesystem::path folder;
  std::string tokenizer_name;
  std::string tokenizer_hash;
  std::int64_t vocabulary_size = 0;
  std::uint32_t eos = 0;
  std::uint64_t seed = 0;                // of the split
  std::vector<ShardInfo> shards;         // train first
  std::int64_t num_train_documents = 0;  // whole ones
  std::int64_t num_validation_documents = 0;
  std::string digest;  // of corpus.json itself; ranks compare it. Set by open_corpus

  std::vector<ShardInfo> shards_of(Split split) const;
  std::int64_t num_tokens(Split split) const;
};

/// Reads folder/corpus.json. Throws Error naming what is missing, of the wrong type or contradictory.
Corpus open_corpus(std::filesystem::path const& folder);

/// The text of corpus.json.
std::string to_json(Corpus const& corpus);

/// The tokenizer in the corpus folder. Throws Error if it is missing, damaged or not the one that corpus.json names.
std::unique_ptr<Tokenizer> open_tokenizer(Corpus const& corpus);

}  // namespace isotrain::data
