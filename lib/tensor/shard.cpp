#include "lib/tensor/shard.h"

#include <algorithm>

#include "lib/base/error.h"

namespace isotrain {

Shard::Shard(ParameterTable const& table) : Shard(table, [](auto const&, auto const&) { return true; }) {}

Shard::Shard(ParameterTable const& table, Holds const& holds) : table_(&table) {
  std::int64_t end = 0;
  std::size_t region = 0;
  for (auto const& piece : table.pieces()) {
    Parameter const& parameter = table.parameter(piece);
    if (!holds(parameter, piece)) continue;
    for (; region < static_cast<std::size_t>(parameter.region()); ++region) {
      regions_[region].end = end;
      regions_[region + 1].begin = end;
    }
    auto const entry = by_name_.try_emplace(parameter.name, held_.size(), 0).first;
    entry->second.second += 1;
    held_.push_back({&piece, end});
    end = held_.back().end();
  }
  for (; region + 1 < regions_.size(); ++region) {
    regions_[region].end = end;
    regions_[region + 1].begin = end;
  }
  regions_.back().end = end;
}

std::span<Shard::Held const> Shard::find(std::string const& name) const {
  auto const found = by_name_.find(name);
  if (found == by_name_.end()) return {};
  return std::span(held_).subspan(found->second.first, found->second.second);
}

std::span<Shard::Held const> Shard::operator[](std::string const& name) const {
  auto const pieces = find(name);
  expects(!pieces.empty(), "a parameter that the shard has");
  return pieces;
}

std::vector<FlatRange> Shard::global_runs(FlatRange range) const {
  expects(range.begin >= 0 && range.begin <= range.end && range.end <= flat_size(), "a range of the shard");
  std::vector<FlatRange> runs;
  auto held = std::upper_bound(held_.begin(), held_.end(), range.begin,
                               [](std::int64_t x, Held const& h) { return x < h.end(); });
  for (std::int64_t offset = range.begin; offset < range.end; ++held) {
    std::int64_t const begin = held->piece->offset + (offset - held->offset);
    std::int64_t const count = std::min(range.end, held->end()) - offset;
    if (!runs.empty() && runs.back().end == begin) {
      runs.back().end += count;
    } else {
      runs.push_back({begin, begin + count});
    }
    offset += count;
  }
  return runs;
}

}  // namespace isotrain
