#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "lib/model/block.h"
#include "lib/model/buffer_map.h"
#include "lib/model/linear-inl.h"

/// Small things that all blocks share.
namespace isotrain {

/// Gives a block memory for what it computes in the forward pass: its own where the options keep it for the backward
/// pass, else scratch.
class Keeper {
 public:
  Keeper(BufferMap& map, Scratch region, Recompute recompute, std::string prefix)
      : map_(map), region_(region), recompute_(recompute), prefix_(std::move(prefix)) {
    map_.rewind(region);
  }

  /// `last`: the most recomputation at which it is still kept.
  template <class U>
  std::span<U> keep(char const* name, std::int64_t count, Recompute last) {
    return recompute_ <= last ? map_.own<U>("activations", prefix_ + name, count) : scratch<U>(count);
  }
  template <class U>
  std::span<U> scratch(std::int64_t count) {
    return map_.scratch<U>(region_, count);
  }

 private:
  BufferMap& map_;
  Scratch region_;
  Recompute recompute_;
  std::string prefix_;
};

/// fp32 sums that fp32 models form in place.
template <class T>
std::int64_t sum_elements(std::int64_t count) {
  return std::is_same_v<T, float> ? 0 : count;
}

/// The rows of a micro-batch in memory for the largest one.
template <class U>
Matrix<U> rows_of(std::span<U> memory, Pass const& pass, std::int64_t width) {
  return {memory.data(), pass.rows(), width};
}
template <class U>
std::span<U> column(std::span<U> memory, Pass const& pass) {
  return memory.first(static_cast<std::size_t>(pass.rows()));
}
template <class U>
std::span<U const> used(std::span<U> memory, Pass const& pass, std::int64_t width) {
  return memory.first(static_cast<std::size_t>(pass.rows() * width));
}

template <class U>
std::span<U> used_of(std::span<U> memory, std::int64_t count) {
  return memory.first(static_cast<std::size_t>(count));
}
template <class U>
Heads<U> single_head(Matrix<U> x) {
  return {x.data, x.rows, 1, x.cols, x.row_stride, x.cols};
}

inline std::string layer_prefix(int layer) {
  return "model.layers." + std::to_string(layer) + ".";
}

/// Finds the parameters of one layer by the short names of Hugging Face.
template <class Place, class T>
class LayerParameters {
 public:
  LayerParameters(Setup<Place, T> const& setup, int layer) : setup_(setup), prefix_(layer_prefix(layer)) {}

  Parameter const& parameter(std::string const& name) const { return setup_.parameters[prefix_ + name + ".weight"]; }
  Linear<T> linear(std::string const& name) const {
    return find_linear<T>(setup_.parameters, setup_.weights, prefix_ + name + ".weight");
  }
  Stack<T> stack(std::vector<std::string> const& names) const {
    std::vector<Linear<T>> parts;
    for (auto const& name : names) parts.push_back(linear(name));
    return Stack<T>(parts);
  }
  Norm norm(std::string const& name) const {
    return find_norm<T>(setup_.parameters, setup_.weights, prefix_ + name + ".weight");
  }

 private:
  Setup<Place, T> const& setup_;
  std::string prefix_;
};

}  // namespace isotrain
