#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lib/base/digest.h"
#include "lib/base/error.h"
#include "lib/base/hdf5.h"
#include "lib/data/corpus.h"
#include "lib/data/shard_file.h"

namespace isotrain::data {

/// Writes one shard file: /tokens (uint16 or uint32, chunked), /document_offsets (uint64, n + 1 entries), and the
/// attributes format_version, tokenizer_hash, split, num_tokens, num_documents and digest. Holds one chunk in memory.
class ShardWriter {
 public:
  /// Replaces an existing file.
  ShardWriter(std::filesystem::path const& path, Split split, TokenType type);

  /// Adds a document, or a piece of one. No token may be beyond the type.
  void append(std::span<std::uint32_t const> document);
  std::int64_t num_tokens() const { return num_tokens_; }

  /// Writes what is left, closes and fsyncs the file. Nothing may be appended afterwards.
  ShardInfo finish(std::string const& tokenizer_hash);

 private:
  void flush_tokens();
  void flush_offsets();

  std::filesystem::path path_;
  Split split_;
  TokenType type_;
  ShardFile file_;
  hdf5::Dataset tokens_;
  hdf5::Dataset offsets_;
  std::vector<std::uint32_t> pending_tokens_;
  std::vector<std::uint64_t> pending_offsets_;
  std::int64_t num_tokens_ = 0;
  std::int64_t num_documents_ = 0;
  Digest digest_;
};

/// The Error for a token that the model has no embedding for.
Error token_error(std::filesystem::path const& shard, std::uint64_t position, std::uint64_t token,
                  std::int64_t vocabulary_size);

/// Reads one shard file. All functions throw Error naming the file.
class ShardReader {
 public:
  explicit ShardReader(std::filesystem::path const& path);

  /// What the file says about itself.
  ShardInfo const& info() const { return info_; }
  std::string const& tokenizer_hash() const { return tokenizer_hash_; }
  TokenType type() const { return type_; }
  std::filesystem::path const& path() const { return path_; }

  /// Tokens [begin, begin + out.size()).
  void read(std::int64_t begin, std::span<std::uint32_t> out) const;

  /// Streams through the file. Throws Error if the digest is not the one it should be, or a token is not below
  /// `vocabulary_size`.
  void verify(std::int64_t vocabulary_size) const;

 private:
  std::filesystem::path path_;
  hdf5::File file_;
  hdf5::Dataset tokens_;
  hdf5::Dataset offsets_;
  ShardInfo info_;
  std::string tokenizer_hash_;
  TokenType type_ = TokenType::uint16;
};

}  // namespace isotrain::data
