#include "lib/data/shard.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lib/base/atomic_file.h"
#include "lib/base/error.h"

namespace isotrain::data {
namespace {

constexpr std::size_t token_chunk = 65536;
constexpr std::size_t offset_chunk = 8192;
constexpr std::size_t verify_block = std::size_t{1} << 20;  // elements

/// Opened without HDF5's cache of chunks: a read takes just the elements asked for, and what is written of a chunk is
/// all that is written, where the cache would fill it up with whatever is in memory.
hdf5::Dataset open_uncached(hid_t file, char const* name) {
  std::lock_guard const lock(hdf5_mutex());
  hdf5::PropertyList const access(check_hdf5(H5Pcreate(H5P_DATASET_ACCESS), "create a property list"));
  check_hdf5(H5Pset_chunk_cache(access.get(), 0, 0, 0.0), "switch the chunk cache off");
  return hdf5::Dataset(check_hdf5(H5Dopen2(file, name, access.get()), "open a dataset of", file));
}

TokenType stored_type(hid_t file, std::filesystem::path const& path) {
  std::lock_guard const lock(hdf5_mutex());
  if (!hdf5::exists(file, "tokens")) {
    throw Error("'" + path.string() + "' has no dataset '/tokens'", "", "is it a shard that 'isotrain prepare' wrote?");
  }
  hdf5::Dataset const tokens(check_hdf5(H5Dopen2(file, "tokens", H5P_DEFAULT), "open '/tokens' of", file));
  hdf5::Datatype const type(check_hdf5(H5Dget_type(tokens.get()), "inspect", tokens.get()));
  return H5Tequal(type.get(), H5T_NATIVE_UINT16) > 0 ? TokenType::uint16 : TokenType::uint32;
}

std::int64_t read_count(hid_t file, char const* name) {
  return static_cast<std::int64_t>(hdf5::read_attribute<std::uint64_t>(file, name));
}

void require_size(std::filesystem::path const& path, char const* dataset, std::int64_t header, std::uint64_t found) {
  if (header == static_cast<std::int64_t>(found)) return;
  throw Error(std::string(dataset) + " of '" + path.string() + "' has the wrong size",
              "its header says " + std::to_string(header) + ", the file has " + std::to_string(found),
              "was it damaged or edited?");
}

/// Calls use(first, span) for all elements of a dataset, block by block.
template <class T, class Use>
void for_each_block(hdf5::Dataset const& dataset, Use use) {
  auto const total = hdf5::size(dataset);
  std::vector<T> block(std::min<std::uint64_t>(total, verify_block));
  for (std::uint64_t begin = 0; begin < total; begin += block.size()) {
    std::span<T> const part(block.data(), std::min<std::uint64_t>(block.size(), total - begin));
    hdf5::read<T>(dataset, begin, part);
    use(begin, std::span<T const>(part));
  }
}

}  // namespace

Error token_error(std::filesystem::path const& shard, std::uint64_t position, std::uint64_t token,
                  std::int64_t vocabulary_size) {
  return Error("token " + std::to_string(token) + " at position " + std::to_string(position) + " of '" +
                   shard.string() + "' is beyond the vocabulary",
               "which has " + std::to_string(vocabulary_size) + " tokens",
               "does the model's vocab_size suit the corpus, and is the shard undamaged?");
}

ShardWriter::ShardWriter(std::filesystem::path const& path, Split split, TokenType type)
    : path_(path), split_(split), type_(type), file_(path) {
  if (type_ == TokenType::uint16) {
    hdf5::create_dataset<std::uint16_t>(file_.get(), "tokens", 0, token_chunk);
  } else {
    hdf5::create_dataset<std::uint32_t>(file_.get(), "tokens", 0, token_chunk);
  }
  hdf5::create_dataset<std::uint64_t>(file_.get(), "document_offsets", 0, offset_chunk);
  tokens_ = open_uncached(file_.get(), "tokens");
  offsets_ = open_uncached(file_.get(), "document_offsets");
  pending_offsets_.push_back(0);
}

void ShardWriter::append(std::span<std::uint32_t const> document) {
  while (!document.empty()) {
    auto const count = std::min(document.size(), token_chunk - pending_tokens_.size());
    pending_tokens_.insert(pending_tokens_.end(), document.begin(),
                           document.begin() + static_cast<std::ptrdiff_t>(count));
    num_tokens_ += static_cast<std::int64_t>(count);
    document = document.subspan(count);
    if (pending_tokens_.size() == token_chunk) flush_tokens();
  }
  ++num_documents_;
  pending_offsets_.push_back(static_cast<std::uint64_t>(num_tokens_));
  if (pending_offsets_.size() == offset_chunk) flush_offsets();
}

void ShardWriter::flush_tokens() {
  if (type_ == TokenType::uint32) {
    digest_.update(std::span(pending_tokens_));
    hdf5::append<std::uint32_t>(tokens_, pending_tokens_);
  } else {
    std::vector<std::uint16_t> narrow(pending_tokens_.size());
    std::transform(pending_tokens_.begin(), pending_tokens_.end(), narrow.begin(), [](std::uint32_t token) {
      expects(token <= UINT16_MAX, "a token fits the type of its shard");
      return static_cast<std::uint16_t>(token);
    });
    digest_.update(std::span(narrow));
    hdf5::append<std::uint16_t>(tokens_, narrow);
  }
  pending_tokens_.clear();
  file_.check();
}

void ShardWriter::flush_offsets() {
  hdf5::append<std::uint64_t>(offsets_, pending_offsets_);
  pending_offsets_.clear();
  file_.check();
}

ShardInfo ShardWriter::finish(std::string const& tokenizer_hash) {
  flush_tokens();
  flush_offsets();
  for_each_block<std::uint64_t>(offsets_,
                                [&](std::uint64_t, std::span<std::uint64_t const> block) { digest_.update(block); });
  ShardInfo info{path_.filename().string(), split_, num_tokens_, num_documents_, digest_.hex()};
  hid_t const file = file_.get();
  hdf5::write_attribute(file, "format_version", static_cast<std::uint64_t>(corpus_format_version));
  hdf5::write_attribute(file, "tokenizer_hash", tokenizer_hash);
  hdf5::write_attribute(file, "split", to_string(split_));
  hdf5::write_attribute(file, "num_tokens", static_cast<std::uint64_t>(num_tokens_));
  hdf5::write_attribute(file, "num_documents", static_cast<std::uint64_t>(num_documents_));
  hdf5::write_attribute(file, "digest", info.digest);
  tokens_ = {};
  offsets_ = {};
  file_.close();
  sync_to_disk(path_);
  return info;
}

ShardReader::ShardReader(std::filesystem::path const& path) : path_(path), file_(hdf5::open_read_only(path)) {
  std::lock_guard const lock(hdf5_mutex());
  hid_t const file = file_.get();
  // Before the version, which other files have, too.
  tokenizer_hash_ = hdf5::read_attribute<std::string>(file, "tokenizer_hash");
  auto const version = read_count(file, "format_version");
  if (version != corpus_format_version) {
    throw Error("'" + path.string() + "' has format version " + std::to_string(version),
                "this program reads version " + std::to_string(corpus_format_version));
  }
  info_ = {path.filename().string(), parse_split(hdf5::read_attribute<std::string>(file, "split")),
           read_count(file, "num_tokens"), read_count(file, "num_documents"),
           hdf5::read_attribute<std::string>(file, "digest")};
  type_ = stored_type(file, path);
  // Opening with the type first gives the error for any other type.
  if (type_ == TokenType::uint32) hdf5::open_dataset<std::uint32_t>(file, "tokens");
  hdf5::open_dataset<std::uint64_t>(file, "document_offsets");
  tokens_ = open_uncached(file, "tokens");
  offsets_ = open_uncached(file, "document_offsets");
  require_size(path, "/tokens", info_.num_tokens, hdf5::size(tokens_));
  require_size(path, "/document_offsets", info_.num_documents + 1, hdf5::size(offsets_));
}

void ShardReader::read(std::int64_t begin, std::span<std::uint32_t> out) const {
  if (type_ == TokenType::uint32) return hdf5::read<std::uint32_t>(tokens_, static_cast<std::uint64_t>(begin), out);
  std::vector<std::uint16_t> narrow(out.size());
  hdf5::read<std::uint16_t>(tokens_, static_cast<std::uint64_t>(begin), narrow);
  std::copy(narrow.begin(), narrow.end(), out.begin());
}

void ShardReader::verify(std::int64_t vocabulary_size) const {
  Digest digest;
  std::optional<std::pair<std::uint64_t, std::uint64_t>> beyond;  // position and id of the first such token
  auto const check = [&](std::uint64_t begin, auto block) {
    digest.update(block);
    if (beyond) return;
    auto const found = std::find_if(block.begin(), block.end(),
                                    [&](auto token) { return static_cast<std::int64_t>(token) >= vocabulary_size; });
    if (found != block.end()) beyond = {begin + static_cast<std::uint64_t>(found - block.begin()), *found};
  };
  if (type_ == TokenType::uint16) {
    for_each_block<std::uint16_t>(tokens_, check);
  } else {
    for_each_block<std::uint32_t>(tokens_, check);
  }
  for_each_block<std::uint64_t>(offsets_,
                                [&](std::uint64_t, std::span<std::uint64_t const> block) { digest.update(block); });
  if (auto const found = digest.hex(); found != info_.digest) {
    throw Error("'" + path_.string() + "' is damaged", "its digest is " + found + ", its header says " + info_.digest,
                "copy it again, or prepare the corpus again");
  }
  if (beyond) throw token_error(path_, beyond->first, beyond->second, vocabulary_size);
}

}  // namespace isotrain::data
