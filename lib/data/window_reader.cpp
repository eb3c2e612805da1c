#include "lib/data/window_reader.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/random.h"

namespace isotrain::data {

ShardReader const& ShardFiles::open(std::size_t shard) {
  auto& reader = readers_.at(shard);
  if (reader) {
    recent_.remove(shard);
  } else {
    if (recent_.size() == max_open) {
      readers_[recent_.back()].reset();
      recent_.pop_back();
    }
    reader = std::make_unique<ShardReader>(folder_ / shards_[shard].file);
  }
  recent_.push_front(shard);
  return *reader;
}

WindowTable::WindowTable(Corpus const& corpus, std::vector<ShardInfo> shards, std::int64_t sequence)
    : files_(corpus.folder, std::move(shards)), vocabulary_size_(corpus.vocabulary_size), sequence_(sequence) {
  expects(sequence > 0, "a sequence has tokens");
  first_window_.push_back(0);
  for (auto const& shard : files_.shards()) {
    first_window_.push_back(first_window_.back() + num_windows(shard.num_tokens, sequence));
  }
  buffer_.resize(static_cast<std::size_t>(sequence) + 1);
}

void WindowTable::read(std::int64_t window, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
  auto const length = static_cast<std::size_t>(sequence_);
  expects(window >= 0 && window < size(), "the window exists");
  expects(tokens.size() == length && targets.size() == length, "a window has T tokens and T targets");
  auto const next = std::upper_bound(first_window_.begin(), first_window_.end(), window);
  auto const shard = static_cast<std::size_t>(next - first_window_.begin()) - 1;
  std::int64_t const begin = (window - first_window_[shard]) * sequence_;
  auto const& reader = files_.open(shard);
  reader.read(begin, buffer_);
  for (std::size_t i = 0; i <= length; ++i) {
    if (static_cast<std::int64_t>(buffer_[i]) >= vocabulary_size_) {
      throw token_error(reader.path(), static_cast<std::uint64_t>(begin) + i, buffer_[i], vocabulary_size_);
    }
  }
  for (std::size_t i = 0; i < length; ++i) {
    tokens[i] = static_cast<std::int32_t>(buffer_[i]);
    targets[i] = static_cast<std::int32_t>(buffer_[i + 1]);
  }
}

std::vector<ShardInfo> shards_of_lane(Corpus const& corpus, std::int64_t lane, std::int64_t num_lanes) {
  auto const all = corpus.shards_of(Split::train);
  auto const count = static_cast<std::int64_t>(all.size());
  expects(num_lanes > 0 && lane >= 0 && lane < num_lanes, "the lane exists");
  if (count % num_lanes != 0) {
    std::string fitting;
    for (std::int64_t n = 1; n <= count; ++n) {
      if (count % n == 0) fitting += (fitting.empty() ? "" : ", ") + std::to_string(n);
    }
    throw UsageError(
        std::to_string(num_lanes) + " lanes cannot share the train shards of '" + corpus.folder.string() + "'",
        "there are " + std::to_string(count) + ", and each lane owns as many as the others",
        "set --repro.lanes to one of " + fitting + ", or prepare the corpus with --shards " +
            std::to_string((count / num_lanes + 1) * num_lanes));
  }
  std::vector<ShardInfo> mine;
  for (std::int64_t i = lane; i < count; i += num_lanes) mine.push_back(all[static_cast<std::size_t>(i)]);
  return mine;
}

void require_windows(Corpus const& corpus, std::int64_t num_lanes, std::int64_t sequence) {
  auto const shards = corpus.shards_of(Split::train);
  for (std::int64_t lane = 0; lane < num_lanes; ++lane) {
    std::int64_t longest = 0;
    for (auto i = static_cast<std::size_t>(lane); i < shards.size(); i += static_cast<std::size_t>(num_lanes)) {
      longest = std::max(longest, shards[i].num_tokens);
    }
    if (num_windows(longest, sequence) > 0) continue;
    throw Error("lane " + std::to_string(lane) + " of " + std::to_string(num_lanes) + " has nothing to read in '" +
                    corpus.folder.string() + "'",
                "its longest shard has " + std::to_string(longest) + " tokens, a sequence takes " +
                    std::to_string(sequence + 1),
                "use a smaller --train.sequence, prepare with fewer --shards, or prepare more text");
  }
}

LaneReader::LaneReader(Corpus const& corpus, std::uint64_t seed, std::int64_t lane, std::int64_t num_lanes,
                       std::int64_t sequence)
    : windows_(corpus, shards_of_lane(corpus, lane, num_lanes), sequence),
      seed_(seed),
      stream_(stream_id("data.order." + std::to_string(lane))) {
  require_windows(corpus, num_lanes, sequence);
}

std::int64_t LaneReader::window_of(std::int64_t sample) const {
  expects(sample >= 0, "samples are counted from 0");
  auto const epoch = static_cast<std::uint64_t>(sample / windows_.size());
  auto const index = static_cast<std::uint64_t>(sample % windows_.size());
  return static_cast<std::int64_t>(
      permute(index, static_cast<std::uint64_t>(windows_.size()), Random(seed_, stream_).bits(epoch)));
}

WindowTable make_split_reader(Corpus const& corpus, Split split, std::int64_t sequence) {
  WindowTable windows(corpus, corpus.shards_of(split), sequence);
  if (windows.size() == 0) {
    throw Error("there is nothing to read in the " + to_string(split) + " split of '" + corpus.folder.string() + "'",
                "it has " + std::to_string(corpus.num_tokens(split)) + " tokens in " +
                    std::to_string(corpus.shards_of(split).size()) + " shards, a sequence takes " +
                    std::to_string(sequence + 1),
                split == Split::validation ? "prepare with a larger --validation or with --validation-input"
                                           : "use a smaller --train.sequence, or prepare more text");
  }
  return windows;
}

}  // namespace isotrain::data
