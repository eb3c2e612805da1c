#include "lib/data/batch_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/lib/data/data_test.h"

namespace isotrain::data::test {
namespace {

constexpr std::int64_t sequence = 8;
constexpr std::uint64_t seed = 3;

struct Batch {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  bool operator==(Batch const&) const = default;
};

Batch read(BatchReader& reader, std::int64_t lanes, std::int64_t samples) {
  auto const size = static_cast<std::size_t>(lanes * samples * sequence);
  Batch batch{std::vector<std::int32_t>(size), std::vector<std::int32_t>(size)};
  reader.read(samples, batch.tokens, batch.targets);
  return batch;
}

class BatchReading : public testing::Test {
 protected:
  /// Samples [first, first + samples) of lanes, by definition.
  Batch expected(LaneRange lanes, std::int64_t first, std::int64_t samples) const {
    Batch batch;
    std::vector<std::int32_t> tokens(sequence), targets(sequence);
    for (std::int64_t lane = 0; lane < lanes.num_own_lanes; ++lane) {
      LaneReader reader(corpus_, seed, lanes.first_lane + lane, lanes.num_lanes, sequence);
      for (std::int64_t b = 0; b < samples; ++b) {
        reader.read(first + b, tokens, targets);
        batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
        batch.targets.insert(batch.targets.end(), targets.begin(), targets.end());
      }
    }
    return batch;
  }

  ScratchFolder folder_;
  Corpus corpus_ = write_corpus(folder_ / "c", {300, 200, 500, 400, 350, 100}, {.num_train_shards = 4});
};

TEST_F(BatchReading, EqualsTheLanes) {
  for (LaneRange const lanes : {LaneRange{0, 4, 4}, LaneRange{1, 2, 4}, LaneRange{0, 1, 1}}) {
    for (std::int64_t const ahead : {1, 5}) {
      BatchReader reader(corpus_, seed, lanes, sequence, 0, ahead);
      std::int64_t position = 0;
      // Steps of several sizes, as in a batch-size ramp, over more than an epoch.
      for (std::int64_t step = 0; step < 60; ++step) {
        std::int64_t const samples = 1 + step % 7;
        ASSERT_EQ(read(reader, lanes.num_own_lanes, samples), expected(lanes, position, samples)) << step;
        position += samples;
        EXPECT_EQ(reader.position(), position);
      }
    }
  }
}

/// What 4 lanes read does not depend on how many ranks they are spread over.
TEST_F(BatchReading, IsTheSameOnAnyNumberOfRanks) {
  BatchReader all(corpus_, seed, {0, 4, 4}, sequence, 0, 4);
  auto const whole = read(all, 4, 6);
  for (std::vector<std::int64_t> const& cut : {std::vector<std::int64_t>{2, 2}, {3, 1}, {1, 1, 1, 1}}) {
    Batch joined;
    std::int64_t first = 0;
    for (auto const count : cut) {
      BatchReader reader(corpus_, seed, {first, count, 4}, sequence, 0, 2);
      auto const part = read(reader, count, 6);
      joined.tokens.insert(joined.tokens.end(), part.tokens.begin(), part.tokens.end());
      joined.targets.insert(joined.targets.end(), part.targets.begin(), part.targets.end());
      first += count;
    }
    EXPECT_EQ(joined, whole);
  }
  // Negative control: another number of lanes, which is part of the envelope, does change it.
  BatchReader two(corpus_, seed, {0, 2, 2}, sequence, 0, 4);
  EXPECT_NE(read(two, 2, 12), whole);
}

TEST_F(BatchReading, GoesOnFromAPosition) {
  BatchReader first(corpus_, seed, {0, 4, 4}, sequence, 0, 3);
  read(first, 4, 10);
  auto const position = first.position();
  auto const next = read(first, 4, 5);
  BatchReader resumed(corpus_, seed, {0, 4, 4}, sequence, position, 3);
  EXPECT_EQ(read(resumed, 4, 5), next);
  BatchReader wrong(corpus_, seed, {0, 4, 4}, sequence, position + 1, 3);
  EXPECT_NE(read(wrong, 4, 5), next);
}

TEST_F(BatchReading, FailuresComeOutAtTheReader) {
  std::filesystem::remove(corpus_.folder / corpus_.shards[3].file);
  BatchReader broken(corpus_, seed, {0, 4, 4}, sequence, 0, 1);
  EXPECT_CONTAINS(message_of<Error>([&] { read(broken, 4, 1); }), "shard-00003.h5");
  // And again, rather than waiting for ever.
  EXPECT_CONTAINS(message_of<Error>([&] { read(broken, 4, 1); }), "shard-00003.h5");
}

TEST_F(BatchReading, EndsWhileReadingAhead) {
  for (int i = 0; i < 50; ++i) {
    BatchReader reader(corpus_, seed, {0, 4, 4}, sequence, 0, 1 + i % 5);
    if (i % 2 == 0) read(reader, 4, 1);
  }
}

TEST_F(BatchReading, RefusesWhatDoesNotFit) {
  BatchReader reader(corpus_, seed, {0, 2, 4}, sequence, 0, 1);
  std::vector<std::int32_t> small(sequence);
  EXPECT_THROW(reader.read(1, small, small), std::logic_error);
  EXPECT_CONTAINS(message_of<UsageError>([&] { BatchReader(corpus_, seed, {0, 1, 3}, sequence, 0, 1); }), "3 lanes");
}

TEST(BatchReadingAhead, HasABound) {
  ScratchFolder const folder;
  std::int64_t const num_shards = 40;
  auto const corpus = write_corpus(folder / "c", std::vector<std::int64_t>(40, 99), {.num_train_shards = num_shards});
  std::int64_t const ahead = 2;
  BatchReader reader(corpus, seed, {0, 1, 1}, sequence, 0, ahead);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  // What was read, or is open, can still be had; a reader without bound would have everything.
  std::filesystem::remove_all(corpus.folder);
  std::int64_t samples = 0;
  auto const message = message_of<Error>([&] {
    for (; samples < num_shards * 12; ++samples) read(reader, 1, 1);
  });
  EXPECT_CONTAINS(message, "shard-000");
  EXPECT_GE(samples, ahead);
}

}  // namespace
}  // namespace isotrain::data::test
