#include "lib/data/corpus.h"

#include <nlohmann/json.hpp>

#include "lib/base/atomic_file.h"
#include "lib/base/digest.h"
#include "lib/base/error.h"
#include "lib/base/json.h"

namespace isotrain::data {
namespace {

using nlohmann::json;

/// Fields of one object of corpus.json, with errors that say where.
class Fields {
 public:
  Fields(json const& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("is no JSON object", object);
  }

  std::int64_t integer(char const* name) const {
    auto const& value = get(name);
    if (!value.is_number_unsigned()) fail("has no whole number >= 0 in '" + std::string(name) + "'", value);
    if (value.get<std::uint64_t>() > INT64_MAX) fail("has too large a number in '" + std::string(name) + "'", value);
    return value.get<std::int64_t>();
  }
  std::uint64_t bits(char const* name) const {
    auto const& value = get(name);
    if (!value.is_number_unsigned()) fail("has no whole number >= 0 in '" + std::string(name) + "'", value);
    return value.get<std::uint64_t>();
  }
  std::string text(char const* name) const {
    auto const& value = get(name);
    if (!value.is_string()) fail("has no text in '" + std::string(name) + "'", value);
    return value.get<std::string>();
  }
  std::string hex(char const* name) const {
    auto value = text(name);
    if (value.size() != 16 || value.find_first_not_of("0123456789abcdef") != std::string::npos) {
      throw Error(where_ + " has no 16 hex digits in '" + std::string(name) + "'", "it has '" + value + "'");
    }
    return value;
  }
  Fields object(char const* name) const { return {get(name), where_ + " '" + name + "'"}; }
  json const& array(char const* name) const {
    auto const& value = get(name);
    if (!value.is_array()) fail("has no list in '" + std::string(name) + "'", value);
    return value;
  }

 private:
  json const& get(char const* name) const {
    auto const found = object_.find(name);
    if (found == object_.end()) {
      throw Error(where_ + " has no field '" + name + "'", "", "was it edited, or written by another version?");
    }
    return *found;
  }
  [[noreturn]] void fail(std::string const& problem, json const& value) const {
    throw Error(where_ + " " + problem, "it is " + value.dump().substr(0, 80), "was it edited?");
  }

  json const& object_;
  std::string where_;
};

void require_sum(std::string const& where, char const* what, std::int64_t total, std::int64_t sum) {
  if (total == sum) return;
  throw Error(where + " contradicts itself",
              "it says " + std::to_string(total) + " " + what + " and its shards have " + std::to_string(sum),
              "was it edited?");
}

}  // namespace

std::string to_string(Split split) {
  return split == Split::train ? "train" : "validation";
}

Split parse_split(std::string_view text) {
  if (text == "train") return Split::train;
  if (text == "validation") return Split::validation;
  throw Error("there is no split '" + std::string(text) + "'", "", "the splits are train and validation");
}

std::string to_string(TokenType type) {
  return type == TokenType::uint16 ? "uint16" : "uint32";
}

std::vector<ShardInfo> Corpus::shards_of(Split split) const {
  std::vector<ShardInfo> chosen;
  for (auto const& shard : shards) {
    if (shard.split == split) chosen.push_back(shard);
  }
  return chosen;
}

std::int64_t Corpus::num_tokens(Split split) const {
  std::int64_t total = 0;
  for (auto const& shard : shards) total += shard.split == split ? shard.num_tokens : 0;
  return total;
}

std::string to_json(Corpus const& corpus) {
  nlohmann::ordered_json root;
  root["format_version"] = corpus_format_version;
  root["tokenizer"] = {{"name", corpus.tokenizer_name},
                       {"hash", corpus.tokenizer_hash},
                       {"vocabulary_size", corpus.vocabulary_size},
                       {"eos", corpus.eos}};
  root["dtype"] = to_string(token_type(corpus.vocabulary_size));
  root["seed"] = corpus.seed;
  root["splits"]["train"] = {{"documents", corpus.num_train_documents}, {"tokens", corpus.num_tokens(Split::train)}};
  root["splits"]["validation"] = {{"documents", corpus.num_validation_documents},
                                  {"tokens", corpus.num_tokens(Split::validation)}};
  root["shards"] = nlohmann::ordered_json::array();
  for (auto const& shard : corpus.shards) {
    root["shards"].push_back({{"file", shard.file},
                              {"split", to_string(shard.split)},
                              {"tokens", shard.num_tokens},
                              {"documents", shard.num_documents},
                              {"digest", shard.digest}});
  }
  return root.dump(1) + "\n";
}

Corpus open_corpus(std::filesystem::path const& folder) {
  auto const path = folder / Corpus::file_name;
  if (std::error_code code; !std::filesystem::exists(path, code) && !code) {
    throw Error("'" + folder.string() + "' is no corpus", std::string("it has no ") + Corpus::file_name,
                "name a folder that 'isotrain prepare' wrote");
  }
  auto const text = read_file(path);
  auto const root = parse_json(text, path.string());
  auto const where = std::string("'") + path.string() + "'";
  Fields const fields(root, where);
  if (auto const version = fields.integer("format_version"); version != corpus_format_version) {
    throw Error(where + " has format version " + std::to_string(version),
                "this program reads version " + std::to_string(corpus_format_version),
                "prepare the corpus again, or use the program that wrote it");
  }
  Corpus corpus;
  corpus.folder = folder;
  corpus.digest = Digest().update(std::string_view(text)).hex();
  auto const tokenizer = fields.object("tokenizer");
  corpus.tokenizer_name = tokenizer.text("name");
  corpus.tokenizer_hash = tokenizer.hex("hash");
  corpus.vocabulary_size = tokenizer.integer("vocabulary_size");
  auto const eos = tokenizer.integer("eos");
  if (corpus.vocabulary_size > INT32_MAX || eos >= corpus.vocabulary_size) {
    throw Error(where + " contradicts itself", "eos is " + std::to_string(eos) + " in a vocabulary of " +
                                                   std::to_string(corpus.vocabulary_size) + " tokens");
  }
  corpus.eos = static_cast<std::uint32_t>(eos);
  if (auto const dtype = fields.text("dtype"); dtype != to_string(token_type(corpus.vocabulary_size))) {
    throw Error(where + " contradicts itself",
                "dtype is " + dtype + " for a vocabulary of " + std::to_string(corpus.vocabulary_size) + " tokens");
  }
  corpus.seed = fields.bits("seed");
  auto const& shards = fields.array("shards");
  for (std::size_t i = 0; i < shards.size(); ++i) {
    Fields const shard(shards[i], where + " shard " + std::to_string(i));
    corpus.shards.push_back({shard.text("file"), parse_split(shard.text("split")), shard.integer("tokens"),
                             shard.integer("documents"), shard.hex("digest")});
    if (std::filesystem::path(corpus.shards.back().file).filename() != corpus.shards.back().file) {
      throw Error(where + " names a shard outside its folder", "'" + corpus.shards.back().file + "'");
    }
  }
  auto const splits = fields.object("splits");
  auto const train = splits.object("train");
  auto const validation = splits.object("validation");
  corpus.num_train_documents = train.integer("documents");
  corpus.num_validation_documents = validation.integer("documents");
  require_sum(where, "train tokens", train.integer("tokens"), corpus.num_tokens(Split::train));
  require_sum(where, "validation tokens", validation.integer("tokens"), corpus.num_tokens(Split::validation));
  if (corpus.shards_of(Split::train).empty()) throw Error(where + " has no train shards");
  return corpus;
}

std::unique_ptr<Tokenizer> open_tokenizer(Corpus const& corpus) {
  auto const path = corpus.folder / Corpus::tokenizer_file_name;
  auto const text = read_file(path);
  auto const bytes = std::as_bytes(std::span(text));
  auto const hash = Digest().update(bytes).hex();
  if (hash != corpus.tokenizer_hash) {
    throw Error("'" + path.string() + "' is not the tokenizer of this corpus",
                "its hash is " + hash + ", corpus.json says " + corpus.tokenizer_hash,
                "was it damaged, or copied from another corpus?");
  }
  return make_tokenizer(bytes);
}

}  // namespace isotrain::data
