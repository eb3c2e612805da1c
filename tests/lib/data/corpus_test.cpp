#include "lib/data/corpus.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/base/atomic_file.h"
#include "tests/lib/data/data_test.h"

namespace isotrain::data::test {
namespace {

using nlohmann::json;

class CorpusFile : public testing::Test {
 protected:
  CorpusFile() : corpus_(write_corpus(folder_ / "c", {100, 50, 70, 20}, {.num_train_shards = 2}, 0.4)) {}

  /// What open_corpus says of corpus.json after `edit`.
  template <class Edit>
  std::string after(Edit edit) {
    auto root = json::parse(to_json(corpus_));
    edit(root);
    write_text(folder_ / "c/corpus.json", root.dump());
    return message_of<Error>([&] { open_corpus(folder_ / "c"); });
  }

  ScratchFolder folder_;
  Corpus corpus_;
};

TEST_F(CorpusFile, RoundTrips) {
  auto const again = open_corpus(folder_ / "c");
  EXPECT_EQ(to_json(again), to_json(corpus_));
  EXPECT_EQ(again.shards, corpus_.shards);
  EXPECT_EQ(again.digest, corpus_.digest);
  EXPECT_EQ(again.digest.size(), 16u);
  EXPECT_EQ(again.num_tokens(Split::train) + again.num_tokens(Split::validation), 240 + 4);
  EXPECT_GT(again.num_validation_documents, 0);
  EXPECT_EQ(open_tokenizer(again)->hash(), again.tokenizer_hash);
}

TEST_F(CorpusFile, EveryFieldIsNeeded) {
  for (std::string const name : {"format_version", "tokenizer", "dtype", "seed", "splits", "shards"}) {
    EXPECT_CONTAINS(after([&](json& root) { root.erase(name); }), "has no field '" + name + "'");
  }
  for (std::string const name : {"name", "hash", "vocabulary_size", "eos"}) {
    auto const message = after([&](json& root) { root["tokenizer"].erase(name); });
    EXPECT_CONTAINS(message, "corpus.json' 'tokenizer' has no field '" + name + "'");
  }
  for (std::string const name : {"file", "split", "tokens", "documents", "digest"}) {
    auto const message = after([&](json& root) { root["shards"][1].erase(name); });
    EXPECT_CONTAINS(message, "corpus.json' shard 1 has no field '" + name + "'");
  }
  EXPECT_CONTAINS(after([](json& root) { root["splits"].erase("train"); }), "'splits' has no field 'train'");
  EXPECT_CONTAINS(after([](json& root) { root["splits"]["validation"].erase("documents"); }),
                  "'validation' has no field 'documents'");
}

TEST_F(CorpusFile, EveryFieldHasItsType) {
  EXPECT_CONTAINS(after([](json& root) { root["shards"] = 3; }), "has no list in 'shards' (it is 3)");
  EXPECT_CONTAINS(after([](json& root) { root["tokenizer"] = "bytes"; }), "'tokenizer' is no JSON object");
  EXPECT_CONTAINS(after([](json& root) { root["tokenizer"]["eos"] = -1; }), "has no whole number >= 0 in 'eos'");
  EXPECT_CONTAINS(after([](json& root) { root["tokenizer"]["eos"] = 2.5; }), "has no whole number >= 0 in 'eos'");
  EXPECT_CONTAINS(after([](json& root) { root["seed"] = "1"; }), "has no whole number >= 0 in 'seed'");
  EXPECT_CONTAINS(after([](json& root) { root["dtype"] = 16; }), "has no text in 'dtype'");
  EXPECT_CONTAINS(after([](json& root) { root["shards"][0]["digest"] = "xyz"; }), "has no 16 hex digits in 'digest'");
  EXPECT_CONTAINS(after([](json& root) { root["shards"][0]["split"] = "test"; }), "there is no split 'test'");
  EXPECT_CONTAINS(after([](json& root) { root["shards"][0]["tokens"] = UINT64_MAX; }), "too large a number");
  EXPECT_CONTAINS(after([](json& root) { root = json::array(); }), "is no JSON object");
}

TEST_F(CorpusFile, ContradictionsAreFound) {
  EXPECT_CONTAINS(after([](json& root) { root["format_version"] = 2; }), "has format version 2 (this program reads");
  EXPECT_CONTAINS(after([](json& root) { root["dtype"] = "uint32"; }), "dtype is uint32 for a vocabulary of 257");
  EXPECT_CONTAINS(after([](json& root) { root["tokenizer"]["eos"] = 257; }), "eos is 257 in a vocabulary of 257");
  EXPECT_CONTAINS(after([](json& root) { root["splits"]["train"]["tokens"] = 1; }), "it says 1 train tokens");
  EXPECT_CONTAINS(after([](json& root) { root["splits"]["validation"]["tokens"] = 1; }), "1 validation tokens");
  EXPECT_CONTAINS(after([](json& root) { root["shards"][0]["file"] = "../shard-00000.h5"; }), "outside its folder");
  EXPECT_CONTAINS(after([](json& root) {
                    root["shards"] = json::array();
                    root["splits"]["train"]["tokens"] = 0;
                    root["splits"]["validation"]["tokens"] = 0;
                  }),
                  "has no train shards");
}

TEST_F(CorpusFile, WhatIsNoCorpus) {
  EXPECT_CONTAINS(message_of<Error>([&] { open_corpus(folder_ / "elsewhere"); }), "elsewhere' is no corpus");
  EXPECT_CONTAINS(message_of<Error>([&] { open_corpus(folder_ / "c/corpus.json"); }), "corpus.json");
  auto const text = read_file(folder_ / "c/corpus.json");
  write_text(folder_ / "c/corpus.json", text.substr(0, text.size() / 2));
  EXPECT_CONTAINS(message_of<Error>([&] { open_corpus(folder_ / "c"); }), "corpus.json");
}

TEST_F(CorpusFile, TheTokenizerIsItsOwn) {
  auto const file = folder_ / "c/tokenizer.bin";
  auto const content = read_file(file);
  write_text(file, content + " ");
  EXPECT_CONTAINS(message_of<Error>([&] { open_tokenizer(corpus_); }), "is not the tokenizer of this corpus");
  std::filesystem::remove(file);
  EXPECT_CONTAINS(message_of<Error>([&] { open_tokenizer(corpus_); }), "tokenizer.bin");
}

}  // namespace
}  // namespace isotrain::data::test
