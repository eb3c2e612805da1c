#include "lib/data/window_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "lib/base/random.h"
#include "tests/lib/data/data_test.h"

namespace isotrain::data::test {
namespace {

/// A window as the reader gives it: T tokens, then T targets.
template <class Reader>
std::vector<std::int32_t> read(Reader& reader, std::int64_t index, std::int64_t sequence) {
  std::vector<std::int32_t> window(static_cast<std::size_t>(2 * sequence));
  auto const half = std::span(window).first(window.size() / 2);
  reader.read(index, half, std::span(window).subspan(window.size() / 2));
  return window;
}

/// The same by definition, from the tokens of the shard.
std::vector<std::int32_t> window_at(std::vector<std::uint32_t> const& tokens, std::int64_t begin,
                                    std::int64_t sequence) {
  auto const from = tokens.begin() + begin;
  std::vector<std::int32_t> window(from, from + sequence);
  window.insert(window.end(), from + 1, from + sequence + 1);
  return window;
}

std::vector<std::int64_t> made_up_lengths(std::size_t count, std::int64_t longest) {
  Random const random(5, "lengths");
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < count; ++i) {
    lengths.push_back(1 + static_cast<std::int64_t>(random.bits(i) % static_cast<std::uint64_t>(longest)));
  }
  return lengths;
}

TEST(Windows, AreCounted) {
  EXPECT_EQ(num_windows(0, 4), 0);
  EXPECT_EQ(num_windows(1, 4), 0);
  EXPECT_EQ(num_windows(4, 4), 0);
  EXPECT_EQ(num_windows(5, 4), 1);
  EXPECT_EQ(num_windows(8, 4), 1);
  EXPECT_EQ(num_windows(9, 4), 2);
  EXPECT_EQ(num_windows(2, 1), 1);
}

/// All windows of all lanes are those of the definition, each exactly once an epoch.
TEST(LaneReader, CoversEveryWindowOnce) {
  ScratchFolder const folder;
  auto const corpus = write_corpus(folder / "c", made_up_lengths(100, 90), {.num_train_shards = 6, .piece_tokens = 40});
  for (std::int64_t const sequence : {1, 7, 16}) {
    for (std::int64_t const lanes : {1, 2, 3, 6}) {
      std::multiset<std::vector<std::int32_t>> expected;
      for (auto const& shard : corpus.shards_of(Split::train)) {
        auto const tokens = tokens_of(corpus, shard);
        for (std::int64_t w = 0; w < num_windows(shard.num_tokens, sequence); ++w) {
          expected.insert(window_at(tokens, w * sequence, sequence));
        }
      }
      for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
        std::multiset<std::vector<std::int32_t>> seen;
        for (std::int64_t lane = 0; lane < lanes; ++lane) {
          LaneReader reader(corpus, 17, lane, lanes, sequence);
          std::set<std::int64_t> indices;
          for (std::int64_t i = 0; i < reader.windows_per_epoch(); ++i) {
            auto const sample = epoch * reader.windows_per_epoch() + i;
            indices.insert(reader.window_of(sample));
            seen.insert(read(reader, sample, sequence));
          }
          EXPECT_EQ(static_cast<std::int64_t>(indices.size()), reader.windows_per_epoch());
          EXPECT_EQ(*indices.rbegin(), reader.windows_per_epoch() - 1);
        }
        EXPECT_TRUE(seen == expected) << sequence << " tokens, " << lanes << " lanes, epoch " << epoch;
      }
    }
  }
}

TEST(LaneReader, OwnsEveryLthShard) {
  ScratchFolder const folder;
  auto const corpus = write_corpus(folder / "c", made_up_lengths(100, 90), {.num_train_shards = 6});
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    auto const shards = shards_of_lane(corpus, lane, 3);
    ASSERT_EQ(shards.size(), 2u);
    EXPECT_EQ(shards[0], corpus.shards[static_cast<std::size_t>(lane)]);
    EXPECT_EQ(shards[1], corpus.shards[static_cast<std::size_t>(lane + 3)]);
  }
}

TEST(LaneReader, OrderIsAFunctionOfSeedEpochAndLane) {
  ScratchFolder const folder;
  // Shards of one size, so that lanes have as many windows as each other.
  auto const corpus = write_corpus(folder / "c", {199, 199}, {.num_train_shards = 2});
  auto const order = [&](std::uint64_t seed, std::int64_t lane, std::int64_t epoch) {
    LaneReader const reader(corpus, seed, lane, 2, 2);
    std::vector<std::int64_t> windows;
    for (std::int64_t i = 0; i < 99; ++i) windows.push_back(reader.window_of(epoch * 99 + i));
    return windows;
  };
  EXPECT_EQ(order(1, 0, 0), order(1, 0, 0));
  EXPECT_NE(order(1, 0, 0), order(2, 0, 0));
  EXPECT_NE(order(1, 0, 0), order(1, 1, 0));
  EXPECT_NE(order(1, 0, 0), order(1, 0, 1));
  std::vector<std::int64_t> ascending(99);
  std::iota(ascending.begin(), ascending.end(), 0);
  EXPECT_NE(order(1, 0, 0), ascending);
}

TEST(LaneReader, SaysWhichLanesWouldDo) {
  ScratchFolder const folder;
  auto const corpus = write_corpus(folder / "c", made_up_lengths(100, 90), {.num_train_shards = 12});
  auto const message = message_of<UsageError>([&] { LaneReader(corpus, 1, 0, 8, 4); });
  EXPECT_CONTAINS(message, "8 lanes cannot share the train shards");
  EXPECT_CONTAINS(message, "there are 12");
  EXPECT_CONTAINS(message, "one of 1, 2, 3, 4, 6, 12, or prepare the corpus with --shards 16");
}

TEST(LaneReader, SaysWhenThereIsTooLittleText) {
  ScratchFolder const folder;
  // Three shards of 51, 51 and 11 tokens.
  auto const corpus = write_corpus(folder / "c", {50, 50, 10}, {.num_train_shards = 3});
  EXPECT_EQ(LaneReader(corpus, 1, 2, 3, 10).windows_per_epoch(), 1);
  // All lanes see that lane 2 has no window, not only the one that owns it.
  for (std::int64_t lane = 0; lane < 3; ++lane) {
    auto const message = message_of<Error>([&] { LaneReader(corpus, 1, lane, 3, 11); });
    EXPECT_CONTAINS(message, "lane 2 of 3 has nothing to read");
    EXPECT_CONTAINS(message, "its longest shard has 11 tokens, a sequence takes 12");
    EXPECT_CONTAINS(message, "--train.sequence");
  }
  // With one lane the short shard is left out.
  EXPECT_EQ(LaneReader(corpus, 1, 0, 1, 11).windows_per_epoch(), 8);
}

TEST(SplitReader, ReadsInOrder) {
  ScratchFolder const folder;
  auto const corpus =
      write_corpus(folder / "c", made_up_lengths(100, 90), {.num_train_shards = 1, .num_validation_shards = 2}, 0.5);
  auto reader = make_split_reader(corpus, Split::validation, 8);
  std::int64_t window = 0;
  for (auto const& shard : corpus.shards_of(Split::validation)) {
    auto const tokens = tokens_of(corpus, shard);
    for (std::int64_t w = 0; w < num_windows(shard.num_tokens, 8); ++w) {
      EXPECT_EQ(read(reader, window++, 8), window_at(tokens, w * 8, 8));
    }
  }
  EXPECT_EQ(reader.size(), window);
  EXPECT_GT(window, 100);
  EXPECT_THROW(read(reader, window, 8), std::logic_error);
}

TEST(SplitReader, SaysWhenThereIsNothing) {
  ScratchFolder const folder;
  auto const corpus = write_corpus(folder / "c", {50}, {.num_train_shards = 1, .num_validation_shards = 0});
  EXPECT_CONTAINS(message_of<Error>([&] { make_split_reader(corpus, Split::validation, 8); }),
                  "nothing to read in the validation split");
  EXPECT_CONTAINS(message_of<Error>([&] { make_split_reader(corpus, Split::train, 51); }),
                  "it has 51 tokens in 1 shards");
}

TEST(WindowTable, RefusesTokensBeyondTheVocabulary) {
  ScratchFolder const folder;
  auto corpus = write_corpus(folder / "c", {50}, {.num_train_shards = 1});
  corpus.vocabulary_size = 256;  // so that eos, the last token, is too large
  auto reader = make_split_reader(corpus, Split::train, 10);
  EXPECT_NO_THROW(read(reader, 0, 10));
  EXPECT_CONTAINS(message_of<Error>([&] { read(reader, 4, 10); }), "token 256 at position 50 of");
}

TEST(WindowTable, SaysWhenAShardIsGone) {
  ScratchFolder const folder;
  auto const corpus = write_corpus(folder / "c", {50}, {.num_train_shards = 1});
  std::filesystem::remove(corpus.folder / corpus.shards[0].file);
  auto reader = make_split_reader(corpus, Split::train, 10);
  EXPECT_CONTAINS(message_of<Error>([&] { read(reader, 0, 10); }), "shard-00000.h5");
}

TEST(ShardFiles, KeepsFewOpen) {
  ScratchFolder const folder;
  std::int64_t const count = 2 * static_cast<std::int64_t>(ShardFiles::max_open);
  auto const corpus = write_corpus(folder / "c", std::vector<std::int64_t>(static_cast<std::size_t>(count), 9),
                                   {.num_train_shards = count});
  auto reader = make_split_reader(corpus, Split::train, 4);
  auto const num_open = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  auto const before = num_open();
  ASSERT_EQ(reader.size(), 2 * count);
  std::vector<std::vector<std::uint32_t>> tokens;
  for (auto const& shard : corpus.shards_of(Split::train)) tokens.push_back(tokens_of(corpus, shard));
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t w = 0; w < reader.size(); ++w) {
      ASSERT_EQ(read(reader, w, 4), window_at(tokens[static_cast<std::size_t>(w / 2)], w % 2 * 4, 4));
    }
  }
  EXPECT_LE(num_open() - before, static_cast<std::ptrdiff_t>(ShardFiles::max_open));
}

}  // namespace
}  // namespace isotrain::data::test
