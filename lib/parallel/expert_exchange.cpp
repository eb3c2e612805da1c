#include "lib/parallel/expert_exchange.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "lib/base/error.h"
#include "lib/parallel/lanes.h"

namespace isotrain {
namespace {

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

template <class Byte>
std::span<Byte> part(Byte* data, IndexRange rows, std::int64_t row_bytes) {
  return {data + rows.begin * row_bytes, index(rows.size() * row_bytes)};
}

/// Worth a thread of its own.
constexpr std::int64_t piece_bytes = std::int64_t{1} << 18;

void copy(Cpu const& at, std::byte* to, std::byte const* from, std::int64_t bytes) {
  at.parallel_for(bytes, piece_bytes, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, index(end - begin));
  });
}

/// The rows of one rank from its message to their canonical places.
void place(Cpu const& at, std::byte* received, std::span<IndexRange const> runs, std::byte const* block,
           std::int64_t row_bytes) {
  for (IndexRange const run : runs) {
    copy(at, received + run.begin * row_bytes, block, run.size() * row_bytes);
    block += run.size() * row_bytes;
  }
}

/// The reverse.
void pack(Cpu const& at, std::byte* block, std::span<IndexRange const> runs, std::byte const* received,
          std::int64_t row_bytes) {
  for (IndexRange const run : runs) {
    copy(at, block, received + run.begin * row_bytes, run.size() * row_bytes);
    block += run.size() * row_bytes;
  }
}

}  // namespace

IndexRange Route::routed_range(int rank) const {
  return {routed_begin_.at(index(rank)), routed_begin_.at(index(rank) + 1)};
}

IndexRange Route::block_range(int rank) const {
  return {block_begin_.at(index(rank)), block_begin_.at(index(rank) + 1)};
}

std::int64_t Route::rows_from(int rank) const {
  std::int64_t rows = 0;
  for (IndexRange const run : runs_.at(index(rank))) rows += run.size();
  return rows;
}

ExpertExchange::ExpertExchange(Communicator const* group, int tensor_ranks, int experts, int max_samples)
    : group_(group),
      size_(group ? group->size() : 1),
      rank_(group ? group->rank() : 0),
      tensor_ranks_(tensor_ranks),
      experts_(experts),
      max_samples_(max_samples) {
  expects(tensor_ranks >= 1 && size_ % tensor_ranks == 0, "the same number of tensor ranks for each source");
  expects(experts >= 1 && max_samples >= 0, "an expert and a number of samples");
}

IndexRange ExpertExchange::experts_of(int rank) const {
  return even_part(experts_, size_, rank);
}

Route ExpertExchange::route(std::span<std::int64_t const> offsets, int samples) const {
  expects(0 <= samples && samples <= max_samples_, "at most max_samples");
  expects(offsets.size() == index(std::int64_t{experts_} * samples + 1), "experts * samples + 1 offsets");
  expects(offsets.front() == 0 && std::is_sorted(offsets.begin(), offsets.end()), "ascending offsets from 0");
  Route route;

  // To each rank the number of samples, then the rows of each of its experts and of max_samples samples: messages of a
  // length that the receiver knows.
  std::vector<std::int64_t> send, send_counts;
  for (int to = 0; to < size_; ++to) {
    IndexRange const part = experts_of(to);
    send.push_back(samples);
    for (std::int64_t e = part.begin; e < part.end; ++e) {
      for (int s = 0; s < max_samples_; ++s) {
        std::size_t const run = index(e * samples + s);
        send.push_back(s < samples ? offsets[run + 1] - offsets[run] : 0);
      }
    }
    send_counts.push_back(1 + part.size() * max_samples_);
    route.routed_begin_.push_back(offsets[index(part.end * samples)]);
  }
  std::int64_t const num_experts = experts().size(), length = 1 + num_experts * max_samples_;
  std::vector<std::int64_t> counts(index(size_ * length));
  if (group_) {
    group_->all_to_all<std::int64_t>(send, send_counts, counts, std::vector<std::int64_t>(index(size_), length));
  } else {
    counts = std::move(send);
  }
  auto const from = [&](int rank) { return std::span<std::int64_t const>(counts).subspan(index(rank * length)); };

  for (int rank = 0; rank < size_; ++rank) {
    expects(from(rank)[0] == from(rank - rank % tensor_ranks_)[0], "tensor ranks of a source with the same samples");
    route.samples_ = std::max(route.samples_, static_cast<int>(from(rank)[0]));
  }
  route.runs_.resize(index(size_));
  std::int64_t next = 0;
  for (std::int64_t e = 0; e < num_experts; ++e) {
    for (int first = 0; first < size_; first += tensor_ranks_) {
      for (int s = 0; s < route.samples_; ++s) {
        for (int rank = first; rank < first + tensor_ranks_; ++rank) {
          std::int64_t const rows = from(rank)[index(1 + e * max_samples_ + s)];
          if (rows == 0) continue;
          Route::Runs& runs = route.runs_[index(rank)];
          if (!runs.empty() && runs.back().end == next) {
            runs.back().end += rows;
          } else {
            runs.push_back({next, next + rows});
          }
          next += rows;
        }
        route.offsets_.push_back(next);
      }
    }
    route.expert_offsets_.push_back(next);
  }
  for (int rank = 0; rank < size_; ++rank) {
    route.block_begin_.push_back(route.block_begin_.back() + (rank == rank_ ? 0 : route.rows_from(rank)));
  }
  return route;
}

void ExpertExchange::dispatch_bytes(Cpu const& at, Route const& route, std::byte* received, std::byte const* routed,
                                    std::byte* workspace, std::int64_t row_bytes) const {
  auto const block = [&](int rank) { return part(workspace, route.block_range(rank), row_bytes); };
  auto const rows_for = [&](int rank) { return part(routed, route.routed_range(rank), row_bytes); };
  // One collection of messages per rank, so that rows are placed while others are still on their way.
  std::deque<Messages> arriving;
  std::optional<Messages> leaving;
  if (group_) leaving.emplace(*group_);
  for (int distance = 1; distance < size_; ++distance) {
    int const from = (rank_ + size_ - distance) % size_;
    arriving.emplace_back(*group_).receive(block(from), from);
  }
  for (int distance = 1; distance < size_; ++distance) {
    int const to = (rank_ + distance) % size_;
    leaving->send(rows_for(to), to);
  }
  place(at, received, route.runs_[index(rank_)], rows_for(rank_).data(), row_bytes);
  for (int distance = 1; distance < size_; ++distance) {
    int const from = (rank_ + size_ - distance) % size_;
    arriving[index(distance - 1)].wait();
    place(at, received, route.runs_[index(from)], block(from).data(), row_bytes);
  }
  if (leaving) leaving->wait();
}

void ExpertExchange::collect_bytes(Cpu const& at, Route const& route, std::byte* routed, std::byte const* received,
                                   std::byte* workspace, std::int64_t row_bytes) const {
  auto const block = [&](int rank) { return part(workspace, route.block_range(rank), row_bytes); };
  auto const rows_for = [&](int rank) { return part(routed, route.routed_range(rank), row_bytes); };
  pack(at, rows_for(rank_).data(), route.runs_[index(rank_)], received, row_bytes);
  if (!group_) return;
  Messages messages(*group_);
  for (int distance = 1; distance < size_; ++distance) {
    int const owner = (rank_ + size_ - distance) % size_;
    messages.receive(rows_for(owner), owner);
  }
  for (int distance = 1; distance < size_; ++distance) {
    int const to = (rank_ + distance) % size_;
    pack(at, block(to).data(), route.runs_[index(to)], received, row_bytes);
    messages.send(block(to), to);
  }
  messages.wait();
}

}  // namespace isotrain
