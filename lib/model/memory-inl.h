#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "kernels/embedding.h"
#include "kernels/rmsnorm.h"
#include "lib/base/token_split.h"
#include "lib/model/block.h"
#include "lib/model/buffer_map.h"
#include "lib/model/linear-inl.h"
#include "lib/model/tensor_group.h"

/// Small things that all blocks share.
namespace isotrain {

/// Gives a block memory for what it computes in the forward pass: its own where the options keep it for the backward
/// pass, else scratch.
class Keeper {
 public:
  Keeper(BufferMap& map, Scratch region, ModelOptions const& options, std::string prefix)
      : map_(map), region_(region), options_(options), prefix_(std::move(prefix)) {
    map_.rewind(region);
  }

  /// `last`: the most recomputation at which it is still kept.
  template <class U>
  std::span<U> keep(char const* name, std::int64_t count, Recompute last) {
    return options_.recompute <= last || options_.deferred_weights ? own<U>(name, count) : scratch<U>(count);
  }
  /// What the backward pass leaves for the gradients of the weights.
  template <class U>
  std::span<U> for_weights(char const* name, std::int64_t count) {
    return options_.deferred_weights ? own<U>(name, count) : scratch<U>(count);
  }
  /// The gradient of a block's output, of all rows: where tokens are split, or where it has to last.
  template <class U>
  std::span<U> output_gradient(PartSizes const& sizes, std::int64_t width) {
    bool const needed = sizes.split() || options_.deferred_weights;
    return for_weights<U>("gradient of output", needed ? sizes.all_rows * width : 0);
  }
  template <class U>
  std::span<U> scratch(std::int64_t count) {
    return map_.scratch<U>(region_, count);
  }

 private:
  template <class U>
  std::span<U> own(char const* name, std::int64_t count) {
    return map_.own<U>("activations", prefix_ + name, count);
  }

  BufferMap& map_;
  Scratch region_;
  ModelOptions const& options_;
  std::string prefix_;
};

/// fp32 sums that fp32 models form in place.
template <class T>
std::int64_t sum_elements(std::int64_t count) {
  return std::is_same_v<T, float> ? 0 : count;
}

/// This rank's rows of a micro-batch, in memory for the largest one; all rows.
template <class U>
Matrix<U> rows_of(std::span<U> memory, Pass const& pass, std::int64_t width) {
  return {memory.data(), pass.rows(), width};
}
template <class U>
Matrix<U> all_rows_of(std::span<U> memory, Pass const& pass, std::int64_t width) {
  return {memory.data(), pass.all_rows(), width};
}
template <class U>
std::span<U> column(std::span<U> memory, Pass const& pass) {
  return memory.first(static_cast<std::size_t>(pass.rows()));
}
template <class U>
std::span<U const> used(Matrix<U> rows) {
  return {rows.data, static_cast<std::size_t>(rows.rows * rows.cols)};
}

template <class U>
std::span<U> used_of(std::span<U> memory, std::int64_t count) {
  return memory.first(static_cast<std::size_t>(count));
}
template <class U>
Heads<U> single_head(Matrix<U> x) {
  return {x.data, x.rows, 1, x.cols, x.row_stride, x.cols};
}

/// to = from, of one shape.
template <class U>
void copy_rows(Matrix<U> to, Matrix<U const> from) {
  for (std::int64_t row = 0; row < from.rows; ++row) std::copy_n(from.row(row), from.cols, to.row(row));
}

inline std::string layer_prefix(int layer) {
  return "model.layers." + std::to_string(layer) + ".";
}

/// All rows of the gradient of a block's output: gathered where tokens are split, copied into `memory` where there is
/// some, else as they are.
template <class Place, class T>
Matrix<T const> gather_or_copy(TensorGroup<Place> const& tensor, Pass const& pass, std::span<T> memory,
                               Matrix<T const> dy) {
  if (!tensor.alone()) return tensor.template gather<T>(pass, memory, dy);
  if (memory.empty()) return dy;
  std::copy_n(dy.data, dy.rows * dy.cols, memory.data());
  return {memory.data(), dy.rows, dy.cols};
}

/// Calls body(slice, first row, rows) for the runs of tokens of each own token slice and sample, samples ascending in a
/// slice: sums over the tokens of a replicated parameter's gradient are kept apart by slice.
template <class Body>
void for_each_token_run(TokenSplit const& split, Pass const& pass, Body body) {
  for (int slice = 0; slice < split.num_slices(); ++slice) {
    IndexRange const run = split.slice(slice);
    if (run.size() == 0) continue;
    for (int sample = 0; sample < pass.samples; ++sample) {
      body(static_cast<std::size_t>(slice), sample * pass.own + run.begin, run.size());
    }
  }
}

/// dgain += the gradient of a norm's gain, by token slices.
template <class Place, class T>
void gain_gradient(Place const& at, TokenSplit const& split, Pass const& pass, Gradients const& gradients,
                   Norm const& norm, Matrix<T const> dy, Matrix<T const> x, std::span<float const> rstd) {
  for_each_token_run(split, pass, [&](std::size_t slice, std::int64_t first, std::int64_t count) {
    kernels::rmsnorm_backward_gain<T>(at, norm.gradient(gradients.replicated[slice]), dy.slice_rows(first, count),
                                      x.slice_rows(first, count),
                                      rstd.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
  });
}

/// Calls body(matrix, first row of the vocabulary) for what this rank has of it.
template <class T, class Body>
void for_each_vocabulary_part(Stack<T> const& embedding, std::int64_t first_row, Body body) {
  for (auto const& part : embedding.merged()) {
    body(part, first_row);
    first_row += part.out;
  }
}

/// The row of a token in the part [first_row, first_row + rows) of the vocabulary.
inline std::int32_t row_of_token(std::int32_t token, std::int64_t first_row, std::int64_t rows) {
  bool const here = token >= first_row && token < first_row + rows;
  return here ? static_cast<std::int32_t>(token - first_row) : kernels::absent_token;
}

/// Finds the parameters of one layer by the short names of Hugging Face.
template <class Place, class T>
class LayerParameters {
 public:
  LayerParameters(Setup<Place, T> const& setup, int layer) : setup_(setup), prefix_(layer_prefix(layer)) {}

  std::vector<Linear<T>> linear(std::string const& name) const {
    return find_linear<T>(setup_.shard, setup_.weights, full(name));
  }
  Stack<T> stack(std::vector<std::string> const& names) const {
    std::vector<std::vector<Linear<T>>> matrices;
    for (auto const& name : names) matrices.push_back(linear(name));
    return Stack<T>(matrices);
  }
  SlicedInput<T> sliced_input(std::string const& name) const { return SlicedInput<T>(linear(name)); }
  Norm norm(std::string const& name) const { return find_norm<T>(setup_.shard, setup_.weights, full(name)); }
  std::string full(std::string const& name) const { return prefix_ + name + ".weight"; }

 private:
  Setup<Place, T> const& setup_;
  std::string prefix_;
};

}  // namespace isotrain
