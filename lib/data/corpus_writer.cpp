#include "lib/data/corpus_writer.h"

#include <unistd.h>

#include <cstdio>

#include "lib/base/atomic_file.h"
#include "lib/base/error.h"
#include "lib/base/random.h"

namespace isotrain::data {
namespace {

std::string shard_name(std::size_t index) {
  char name[32];
  std::snprintf(name, sizeof name, "shard-%05zu.h5", index);
  return name;
}

}  // namespace

bool is_validation(std::uint64_t seed, std::int64_t document, double fraction) {
  return Random(seed, "data.split").uniform_double(static_cast<std::uint64_t>(document)) < fraction;
}

CorpusWriter::CorpusWriter(std::filesystem::path const& out, Tokenizer const& tokenizer, std::uint64_t seed,
                           CorpusLayout const& layout)
    : out_(out.has_filename() ? out : out.parent_path()),
      folder_(out_.string() + ".tmp-" + std::to_string(::getpid())),
      tokenizer_(tokenizer),
      seed_(seed),
      piece_tokens_(static_cast<std::size_t>(layout.piece_tokens)) {
  expects(layout.num_train_shards > 0 && layout.num_validation_shards >= 0 && layout.piece_tokens > 0,
          "a corpus has shards and pieces");
  try {
    if (std::filesystem::exists(out_) && !(std::filesystem::is_directory(out_) && std::filesystem::is_empty(out_))) {
      throw UsageError("'" + out_.string() + "' exists already", "a corpus is written as a whole",
                       "remove it, or choose another --out");
    }
    std::filesystem::create_directories(folder_);
  } catch (std::filesystem::filesystem_error const& failure) {
    throw Error("'" + out_.string() + "' cannot be written", failure.code().message());
  }
  try {
    auto const type = token_type(tokenizer.vocabulary_size());
    add_shards(Split::train, layout.num_train_shards, type);
    add_shards(Split::validation, layout.num_validation_shards, type);
  } catch (...) {
    std::error_code ignored;
    writers_.clear();
    std::filesystem::remove_all(folder_, ignored);
    throw;
  }
}

CorpusWriter::~CorpusWriter() {
  if (folder_.empty()) return;
  writers_.clear();
  std::error_code code;
  std::filesystem::remove_all(folder_, code);
  if (code) std::fprintf(stderr, "'%s' cannot be removed (%s)\n", folder_.c_str(), code.message().c_str());
}

void CorpusWriter::add_shards(Split split, std::int64_t count, TokenType type) {
  for (std::int64_t i = 0; i < count; ++i) {
    auto const index = writers_.size();
    writers_.push_back(std::make_unique<ShardWriter>(folder_ / shard_name(index), split, type));
    state(split).emptiest.emplace(0, index);
  }
}

void CorpusWriter::add(Split split, std::span<std::uint32_t const> tokens, bool ends_document) {
  expects(!state(split).emptiest.empty(), "the split has shards");
  open_document_.insert(open_document_.end(), tokens.begin(), tokens.end());
  std::span<std::uint32_t const> rest(open_document_);
  // The last piece stays open, so that its eos never stands alone.
  while (rest.size() > piece_tokens_) {
    write_piece(split, rest.first(piece_tokens_));
    rest = rest.subspan(piece_tokens_);
  }
  open_document_.erase(open_document_.begin(), open_document_.end() - static_cast<std::ptrdiff_t>(rest.size()));
  if (!ends_document) return;
  open_document_.push_back(tokenizer_.eos());
  write_piece(split, open_document_);
  open_document_.clear();
  ++state(split).num_documents;
}

void CorpusWriter::write_piece(Split split, std::span<std::uint32_t const> piece) {
  auto& emptiest = state(split).emptiest;
  auto const index = emptiest.top().second;
  emptiest.pop();
  writers_[index]->append(piece);
  emptiest.emplace(writers_[index]->num_tokens(), index);
}

Corpus CorpusWriter::finish() {
  expects(open_document_.empty(), "the last document has ended");
  Corpus corpus;
  corpus.tokenizer_name = tokenizer_.name();
  corpus.tokenizer_hash = tokenizer_.hash();
  corpus.vocabulary_size = tokenizer_.vocabulary_size();
  corpus.eos = tokenizer_.eos();
  corpus.seed = seed_;
  corpus.num_train_documents = state(Split::train).num_documents;
  corpus.num_validation_documents = state(Split::validation).num_documents;
  if (corpus.num_train_documents == 0) {
    throw Error("no document is left for training",
                std::to_string(corpus.num_validation_documents) + " went to the validation split",
                "cut the text finer with --documents paragraphs, or lower --validation");
  }
  for (auto& writer : writers_) corpus.shards.push_back(writer->finish(corpus.tokenizer_hash));
  writers_.clear();
  auto const tokenizer = tokenizer_.serialize();
  write_file_atomically(folder_ / Corpus::tokenizer_file_name,
                        {reinterpret_cast<char const*>(tokenizer.data()), tokenizer.size()});
  write_file_atomically(folder_ / Corpus::file_name, to_json(corpus));
  sync_to_disk(folder_);
  std::error_code code;
  std::filesystem::rename(folder_, out_, code);
  if (code) throw Error("'" + folder_.string() + "' cannot be renamed to '" + out_.string() + "'", code.message());
  folder_.clear();
  sync_to_disk(out_.has_parent_path() ? out_.parent_path() : ".");
  return open_corpus(out_);
}

}  // namespace isotrain::data
