#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/matrix.h"
#include "lib/model/config.h"
#include "lib/model/gradients.h"
#include "lib/model/options.h"
#include "lib/model/part.h"

namespace isotrain {

/// What the blocks need to know of one micro-batch. Rows are tokens, sample-major: n of this rank, N of all ranks of
/// the tensor-parallel group.
struct Pass {
  int samples = 0;
  std::int64_t sequence = 0;                         // positions of a sample
  std::int64_t own = 0;                              // of them of this rank
  std::span<std::int32_t const> positions = {};      // (n)
  std::span<std::int32_t const> all_positions = {};  // (N)
  bool count_loads = false;                          // forward: add to the experts' load counters
  float sequence_scale = 0;                          // LossScale::sequence
  std::span<double> balance_loss = {};               // (samples) out of backward_input, of this layer; may be empty

  std::int64_t rows() const { return samples * own; }
  std::int64_t all_rows() const { return samples * sequence; }
};

/// Cosines and sines of every position.
struct RopeTable {
  std::span<float const> table;
  float softmax_scale = 1;
};

class ExpertExchange;
template <class Place>
class TensorGroup;

/// What every block is made from.
template <class Place, class T>
struct Setup {
  Place place;
  ModelConfig const& config;
  ModelOptions const& options;
  ModelPart const& part;
  Shard const& shard;
  Weights<T> weights;
  RopeTable rope;
  TensorGroup<Place> const& tensor;
  ExpertExchange const& experts;
};

template <class T>
struct Activation {
  std::string name;
  std::span<T const> values;
};

/// Half a layer: y = x + f(norm(x)). Called in this order for a micro-batch, with one and the same Pass:
///   forward; [others]; recompute; backward_input; backward_weight; backward_residual
/// A second block of the same kind may not run between recompute and backward_residual. With
/// ModelOptions::deferred_weights, backward_weight may come any time later. All ranks of the groups make the same
/// calls, with as many samples on each tensor rank, 0 included.
///   x, y (n,d) input and output;  dy (n,d) gradient of the output
template <class Place, class T>
class Block {
 public:
  Block() = default;
  Block(Block const&) = delete;
  Block& operator=(Block const&) = delete;
  virtual ~Block() = default;

  virtual void forward(Pass const& pass, Matrix<T> y, Matrix<T const> x) = 0;
  /// Brings back what the options did not keep of the forward pass.
  virtual void recompute(Pass const& pass, Matrix<T const> x) = 0;
  /// From dy down to the gradient of norm(x); both stay in the block.
  virtual void backward_input(Pass const& pass, Matrix<T const> dy, Matrix<T const> x) = 0;
  /// Adds the gradients of the block's parameters.
  virtual void backward_weight(Pass const& pass, Gradients const& gradients, Matrix<T const> x) = 0;
  /// dx = dy + the gradient through the norm; `dx` holds dy and is updated in place.
  virtual void backward_residual(Pass const& pass, Matrix<T> dx, Matrix<T const> x) = 0;
  /// What the last forward computed, in order, for the search for NaN. Valid until the next block of the same kind
  /// runs.
  virtual std::vector<Activation<T>> activations(Pass const& pass) const = 0;
};

/// Keys and values of the earlier tokens of one sequence. A view: rows are the positions there is room for.
template <class T>
struct KeyValueCache {
  Heads<T> keys;
  Heads<T> values;

  void append(std::int64_t position, Heads<T const> key, Heads<T const> value) const {
    copy_row(keys, position, key);
    copy_row(values, position, value);
  }
  static Heads<T const> first(Heads<T> cached, std::int64_t positions) {
    return {cached.data, positions, cached.heads, cached.dim, cached.row_stride, cached.head_stride};
  }

 private:
  static void copy_row(Heads<T> to, std::int64_t row, Heads<T const> from) {
    for (std::int64_t head = 0; head < from.heads; ++head) std::copy_n(from.at(0, head), from.dim, to.at(row, head));
  }
};

template <class Place, class T>
class AttentionBlock : public Block<Place, T> {
 public:
  /// One new token, pass.positions[0], of a sequence whose earlier keys and values are in the cache; adds its own.
  virtual void decode(Pass const& pass, Matrix<T> y, Matrix<T const> x, KeyValueCache<T> cache) = 0;
};

}  // namespace isotrain
