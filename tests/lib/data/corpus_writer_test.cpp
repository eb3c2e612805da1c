#include "lib/data/corpus_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/digest.h"
#include "lib/base/random.h"
#include "tests/lib/data/data_test.h"

namespace isotrain::data::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::int64_t> made_up_lengths(std::size_t count, std::int64_t longest, std::uint64_t seed = 5) {
  Random const random(seed, "lengths");
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < count; ++i) {
    lengths.push_back(1 + static_cast<std::int64_t>(random.bits(i) % static_cast<std::uint64_t>(longest)));
  }
  return lengths;
}

std::map<std::string, std::string> contents(fs::path const& folder) {
  std::map<std::string, std::string> files;
  for (auto const& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = digest_file(entry.path()).hex();
  }
  return files;
}

TEST(CorpusWriter, KeepsEveryToken) {
  ScratchFolder const folder;
  auto const corpus = write_corpus(folder / "c", {10, 3, 1, 20, 5}, {.num_train_shards = 2, .piece_tokens = 8});
  EXPECT_EQ(corpus.num_train_documents, 5);
  EXPECT_EQ(corpus.num_tokens(Split::train), 39 + 5);
  std::vector<std::uint32_t> all;
  for (auto const& shard : corpus.shards_of(Split::train)) {
    auto const tokens = tokens_of(corpus, shard);
    EXPECT_EQ(static_cast<std::int64_t>(tokens.size()), shard.num_tokens);
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  std::map<std::uint32_t, int> counts;
  for (auto const token : all) ++counts[token];
  EXPECT_EQ(counts[256], 5);
  for (std::uint32_t i = 0; i < 26; ++i) EXPECT_EQ(counts['a' + i], i < 13 ? 2 : 1) << i;
}

/// Direct definition: pieces in order, each to the emptiest shard.
TEST(CorpusWriter, GivesEachPieceToTheEmptiestShard) {
  ScratchFolder const folder;
  auto const lengths = made_up_lengths(300, 100);
  std::int64_t const piece = 16;
  auto const corpus = write_corpus(folder / "c", lengths, {.num_train_shards = 5, .piece_tokens = piece});
  std::vector<std::vector<std::uint32_t>> expected(5);
  std::vector<std::vector<std::uint64_t>> offsets(5, {0});
  std::uint32_t next = 0;
  for (auto length : lengths) {
    while (length > 0) {
      auto const emptiest = std::min_element(expected.begin(), expected.end(),
                                             [](auto const& a, auto const& b) { return a.size() < b.size(); });
      for (std::int64_t i = 0; i < std::min(length, piece); ++i) emptiest->push_back('a' + next++ % 26);
      if (length <= piece) emptiest->push_back(256);
      offsets[static_cast<std::size_t>(emptiest - expected.begin())].push_back(emptiest->size());
      length -= piece;
    }
  }
  for (std::size_t s = 0; s < 5; ++s) {
    EXPECT_EQ(tokens_of(corpus, corpus.shards[s]), expected[s]);
    auto const file = hdf5::open_read_only(corpus.folder / corpus.shards[s].file);
    EXPECT_EQ(hdf5::read_all<std::uint64_t>(file.get(), "document_offsets"), offsets[s]);
  }
}

TEST(CorpusWriter, ShardsAreEven) {
  ScratchFolder const folder;
  struct {
    char const* what;
    std::vector<std::int64_t> lengths;
  } const cases[] = {{"one long document", {100000}},
                     {"many short ones", made_up_lengths(2000, 30)},
                     {"long and short ones", made_up_lengths(200, 3000)},
                     {"growing ones", {1, 10, 100, 1000, 10000}}};
  std::int64_t const piece = 500;
  int n = 0;
  for (auto const& [what, lengths] : cases) {
    auto const corpus =
        write_corpus(folder / std::to_string(n++), lengths, {.num_train_shards = 7, .piece_tokens = piece});
    std::vector<std::int64_t> sizes;
    for (auto const& shard : corpus.shards_of(Split::train)) sizes.push_back(shard.num_tokens);
    auto const [least, most] = std::minmax_element(sizes.begin(), sizes.end());
    EXPECT_LE(*most - *least, piece + 1) << what;
    EXPECT_GT(*least, 0) << what;
  }
}

TEST(CorpusWriter, DigestIsOfTokensThenOffsets) {
  ScratchFolder const folder;
  // More tokens than a chunk of the file, more documents than a chunk of offsets.
  auto const corpus = write_corpus(folder / "c", made_up_lengths(20000, 20), {.num_train_shards = 1});
  auto const& shard = corpus.shards[0];
  auto const file = hdf5::open_read_only(corpus.folder / shard.file);
  auto const tokens = hdf5::read_all<std::uint16_t>(file.get(), "tokens");
  auto const offsets = hdf5::read_all<std::uint64_t>(file.get(), "document_offsets");
  EXPECT_GT(tokens.size(), 131072u);
  ASSERT_EQ(offsets.size(), 20001u);
  EXPECT_EQ(offsets.back(), tokens.size());
  for (std::size_t d = 1; d < offsets.size(); ++d) ASSERT_EQ(tokens[offsets[d] - 1], 256);
  EXPECT_EQ(Digest().update(std::span(tokens)).update(std::span(offsets)).hex(), shard.digest);
  EXPECT_EQ(hdf5::read_attribute<std::string>(file.get(), "digest"), shard.digest);
}

TEST(CorpusWriter, WideVocabulariesHaveWideTokens) {
  class Wide final : public Tokenizer {
   public:
    using Tokenizer::encode;
    std::string name() const override { return "wide"; }
    std::int64_t vocabulary_size() const override { return 70000; }
    std::uint32_t eos() const override { return 69999; }
    void encode(std::string_view, std::vector<std::uint32_t>&) const override {}
    std::string decode(std::span<std::uint32_t const>) const override { return {}; }
    std::vector<std::byte> serialize() const override { return {std::byte{1}}; }
  };
  ScratchFolder const folder;
  Wide const tokenizer;
  CorpusWriter writer(folder / "c", tokenizer, 1, {.num_train_shards = 1, .num_validation_shards = 0});
  writer.add(Split::train, std::vector<std::uint32_t>{66000, 1}, true);
  auto const corpus = writer.finish();
  ShardReader const reader(corpus.folder / corpus.shards[0].file);
  EXPECT_EQ(reader.type(), TokenType::uint32);
  std::vector<std::uint32_t> tokens(3);
  reader.read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<std::uint32_t>{66000, 1, 69999}));
  reader.verify(70000);
}

TEST(CorpusWriter, SplitIsOfDocumentsAndKeyed) {
  int held_out = 0, same = 0;
  for (std::int64_t d = 0; d < 10000; ++d) {
    held_out += is_validation(1, d, 0.1);
    same += is_validation(1, d, 0.1) == is_validation(2, d, 0.1);
    EXPECT_FALSE(is_validation(1, d, 0));
    // A larger part holds the smaller one.
    if (is_validation(1, d, 0.1)) {
      EXPECT_TRUE(is_validation(1, d, 0.2));
    }
  }
  EXPECT_NEAR(held_out, 1000, 150);  // five standard deviations
  EXPECT_LT(same, 9000);
  EXPECT_FALSE(is_validation(1, 0, 0.05)) << "the default seed and fraction leave a single document for training";
}

TEST(CorpusWriter, SplitsAreDisjointAndComplete) {
  ScratchFolder const folder;
  auto const tokenizer = make_byte_tokenizer();
  CorpusWriter writer(folder / "c", *tokenizer, 3, {.num_train_shards = 3});
  // Document d is the letter d, four times.
  for (std::uint32_t d = 0; d < 100; ++d) {
    auto const split = is_validation(3, d, 0.3) ? Split::validation : Split::train;
    writer.add(split, std::vector<std::uint32_t>(4, d), true);
  }
  auto const corpus = writer.finish();
  std::map<std::uint32_t, std::map<Split, int>> seen;
  for (auto const& shard : corpus.shards) {
    for (auto const token : tokens_of(corpus, shard)) ++seen[token][shard.split];
  }
  for (std::uint32_t d = 0; d < 100; ++d) {
    EXPECT_EQ(seen[d].size(), 1u) << d;
    EXPECT_EQ(seen[d].begin()->second, 4) << d;
    EXPECT_EQ(seen[d].begin()->first == Split::validation, is_validation(3, d, 0.3)) << d;
  }
  EXPECT_EQ(corpus.num_train_documents + corpus.num_validation_documents, 100);
  EXPECT_GT(corpus.num_validation_documents, 10);
}

TEST(CorpusWriter, RepeatsToTheByte) {
  ScratchFolder const folder;
  auto const lengths = made_up_lengths(200, 200);
  write_corpus(folder / "a", lengths, {.num_train_shards = 3}, 0.2);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // HDF5 would keep times in seconds
  write_corpus(folder / "b", lengths, {.num_train_shards = 3}, 0.2);
  EXPECT_EQ(contents(folder / "a"), contents(folder / "b"));
  auto changed = lengths;
  ++changed[100];
  write_corpus(folder / "c", changed, {.num_train_shards = 3}, 0.2);
  EXPECT_NE(contents(folder / "a"), contents(folder / "c"));
}

TEST(CorpusWriter, TakesOnlyAnEmptyFolder) {
  ScratchFolder const folder;
  fs::create_directory(folder / "empty");
  write_corpus(folder / "empty", {10}, {.num_train_shards = 1});
  EXPECT_EQ(open_corpus(folder / "empty").num_train_documents, 1);
  auto const before = contents(folder / "empty");
  EXPECT_CONTAINS(message_of<UsageError>([&] { write_corpus(folder / "empty", {10}, {}); }), "exists already");
  EXPECT_EQ(contents(folder / "empty"), before);
  auto const file = write_text(folder / "file", "x");
  EXPECT_CONTAINS(message_of<UsageError>([&] { write_corpus(file, {10}, {}); }), "exists already");
  // A slash at the end and folders on the way that do not exist are no obstacle.
  write_corpus(folder / "deep/er/", {10}, {.num_train_shards = 1});
  EXPECT_EQ(open_corpus(folder / "deep/er").num_train_documents, 1);
}

std::size_t num_entries(fs::path const& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

TEST(CorpusWriter, LeavesNothingUnfinished) {
  ScratchFolder const folder;
  auto const tokenizer = make_byte_tokenizer();
  {
    CorpusWriter writer(folder / "c", *tokenizer, 1, {});
    writer.add(Split::train, std::vector<std::uint32_t>(100, 1), true);
    EXPECT_EQ(num_entries(folder.path()), 1u);
    EXPECT_FALSE(fs::exists(folder / "c"));
  }
  EXPECT_EQ(num_entries(folder.path()), 0u);
  EXPECT_CONTAINS(message_of<Error>([&] { write_corpus(folder / "c", {}, {}); }), "no document is left for training");
  EXPECT_EQ(num_entries(folder.path()), 0u);
}

TEST(CorpusWriter, SaysWhereItMayNotWrite) {
  ScratchFolder const folder;
  EXPECT_CONTAINS(message_of<Error>([&] { write_corpus("/proc/corpus", {10}, {}); }),
                  "'/proc/corpus' cannot be written");
  write_text(folder / "file", "x");
  EXPECT_CONTAINS(message_of<Error>([&] { write_corpus(folder / "file/c", {10}, {}); }), "cannot be written");
  if (::geteuid() == 0) return;  // root may write everywhere
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_CONTAINS(message_of<Error>([&] { write_corpus(folder / "c", {10}, {}); }), "cannot be written");
  fs::permissions(folder.path(), fs::perms::owner_all);
}

/// A limit on the size of files stands in for a full disk: HDF5's write fails in the same place.
TEST(CorpusWriter, SaysWhenTheDiskIsFull) {
  ScratchFolder const folder;
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  for (rlim_t const limit : {rlim_t{1000}, rlim_t{100000}, rlim_t{300000}}) {
    rlimit const small{limit, old.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    testing::internal::CaptureStderr();
    auto const message = message_of<Error>([&] { write_corpus(folder / "c", {400000}, {.num_train_shards = 1}); });
    auto const noise = testing::internal::GetCapturedStderr();
    ::setrlimit(RLIMIT_FSIZE, &old);
    EXPECT_CONTAINS(message, "File too large");
    EXPECT_CONTAINS(message, "shard-00000.h5");
    EXPECT_EQ(num_entries(folder.path()), 0u) << message;
    EXPECT_EQ(noise, "");
  }
  // The library is still in order.
  write_corpus(folder / "c", {400000}, {.num_train_shards = 1});
  EXPECT_EQ(open_corpus(folder / "c").num_tokens(Split::train), 400001);
}

TEST(CorpusWriter, MemoryDoesNotGrowWithTheCorpus) {
  ScratchFolder const folder;
  auto const before = resident_bytes();
  if (!before) GTEST_SKIP() << "the memory of this process cannot be measured";
  auto const tokenizer = make_byte_tokenizer();
  CorpusWriter writer(folder / "c", *tokenizer, 1, {.num_train_shards = 8});
  std::vector<std::uint32_t> const tokens(1 << 20, 'x');
  for (int i = 0; i < 60; ++i) {  // 120 MB in two documents
    writer.add(Split::train, tokens, i % 30 == 29);
    ASSERT_LT(*resident_bytes(), *before + (32u << 20));
  }
  auto const corpus = writer.finish();
  EXPECT_EQ(corpus.num_tokens(Split::train), (60 << 20) + 2);
}

}  // namespace
}  // namespace isotrain::data::test
