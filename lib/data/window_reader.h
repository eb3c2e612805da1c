#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/data/corpus.h"
#include "lib/data/shard.h"

/// Letters: T tokens of a sequence; L lanes; N tokens of a shard.
///
/// A window is T + 1 neighbouring tokens of one shard, across documents; windows start at multiples of T, so a shard
/// has floor((N - 1) / T) of them and every token but the first of a shard is a target at most once an epoch.
namespace isotrain::data {

inline std::int64_t num_windows(std::int64_t num_tokens, std::int64_t sequence) {
  return num_tokens > 0 ? (num_tokens - 1) / sequence : 0;
}

/// Shard files of a corpus, opened when first read, the least recently used closed again where there are many.
class ShardFiles {
 public:
  static constexpr std::size_t max_open = 128;

  ShardFiles(std::filesystem::path folder, std::vector<ShardInfo> shards)
      : folder_(std::move(folder)), shards_(std::move(shards)), readers_(shards_.size()) {}

  std::vector<ShardInfo> const& shards() const { return shards_; }
  ShardReader const& open(std::size_t shard);

 private:
  std::filesystem::path folder_;
  std::vector<ShardInfo> shards_;
  std::vector<std::unique_ptr<ShardReader>> readers_;
  std::list<std::size_t> recent_;  // open ones, the last used first
};

/// The windows of a list of shards, numbered through in the order of the list.
class WindowTable {
 public:
  WindowTable(Corpus const& corpus, std::vector<ShardInfo> shards, std::int64_t sequence);

  std::int64_t size() const { return first_window_.back(); }
  std::int64_t sequence() const { return sequence_; }

  /// tokens (T) and targets (T), the tokens one further on. Throws Error naming the shard if it cannot be read or holds
  /// a token that is not in the vocabulary.
  void read(std::int64_t window, std::span<std::int32_t> tokens, std::span<std::int32_t> targets);

 private:
  ShardFiles files_;
  std::int64_t vocabulary_size_;
  std::int64_t sequence_;
  std::vector<std::int64_t> first_window_;  // of each shard; and the number of all
  std::vector<std::uint32_t> buffer_;
};

/// What a rank reads: lanes [first_lane, first_lane + num_own_lanes) of num_lanes.
struct LaneRange {
  std::int64_t first_lane = 0;
  std::int64_t num_own_lanes = 1;
  std::int64_t num_lanes = 1;
};

/// The train shards that lane `lane` of `num_lanes` owns: every num_lanes-th. Throws UsageError, saying which numbers
/// of lanes would do, unless num_lanes divides the number of train shards.
std::vector<ShardInfo> shards_of_lane(Corpus const& corpus, std::int64_t lane, std::int64_t num_lanes);

/// Throws Error, the same on every rank, if the shards of any lane hold no window.
void require_windows(Corpus const& corpus, std::int64_t num_lanes, std::int64_t sequence);

/// The samples of one lane, an endless sequence: epoch after epoch all windows of its shards, each epoch in another
/// random order. A function of (corpus, seed, lane, number of lanes, T) and of nothing else.
class LaneReader {
 public:
  /// Throws as shards_of_lane and require_windows do.
  LaneReader(Corpus const& corpus, std::uint64_t seed, std::int64_t lane, std::int64_t num_lanes,
             std::int64_t sequence);

  /// Windows of an epoch.
  std::int64_t windows_per_epoch() const { return windows_.size(); }
  /// Sample `sample` >= 0, counted through all epochs, is this window of its epoch.
  std::int64_t window_of(std::int64_t sample) const;
  void read(std::int64_t sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
    windows_.read(window_of(sample), tokens, targets);
  }

 private:
  WindowTable windows_;
  std::uint64_t seed_;
  std::uint64_t stream_;
};

/// All windows of the validation split (or another), in the order of the shards; any rank can read any. Throws Error if
/// there is none.
WindowTable make_split_reader(Corpus const& corpus, Split split, std::int64_t sequence);

}  // namespace isotrain::data
