#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/tensor/parameters.h"

namespace isotrain {

/// Some pieces of a table, one after the other in its order: the flat space of what one rank holds. A shard of all
/// pieces is the table's own flat space. The table outlives it.
class Shard {
 public:
  using Holds = std::function<bool(Parameter const&, Piece const&)>;
  explicit Shard(ParameterTable const& table);
  Shard(ParameterTable const& table, Holds const& holds);

  struct Held {
    Piece const* piece;
    std::int64_t offset = 0;  // in this shard

    std::int64_t end() const { return offset + (piece->end() - piece->offset); }
  };
  ParameterTable const& table() const { return *table_; }
  std::vector<Held> const& all() const { return held_; }
  /// The pieces of one parameter, ascending; none if the shard has none of it.
  std::span<Held const> find(std::string const& name) const;
  /// The same; a broken contract if there is none.
  std::span<Held const> operator[](std::string const& name) const;

  std::int64_t flat_size() const { return regions_.back().end; }
  std::int64_t matrix_size() const { return regions_[static_cast<std::size_t>(Region::fp32)].begin; }
  /// Where a region lies in this shard.
  FlatRange region(Region region) const { return regions_[static_cast<std::size_t>(region)]; }

  /// Where elements [range) of this shard lie in the table's flat space: runs that together are as long, in order.
  std::vector<FlatRange> global_runs(FlatRange range) const;

 private:
  ParameterTable const* table_;
  std::vector<Held> held_;
  std::array<FlatRange, num_regions> regions_ = {};
  std::unordered_map<std::string, std::pair<std::size_t, std::size_t>> by_name_;  // first and number of pieces
};

}  // namespace isotrain
