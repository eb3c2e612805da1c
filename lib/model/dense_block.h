#pragma once

#include <span>
#include <vector>

#include "lib/model/block.h"
#include "lib/model/buffer_map.h"
#include "lib/model/gated_unit.h"
#include "lib/model/tensor_group.h"

namespace isotrain {

/// A dense feed-forward half of a layer. Letters: n own rows, N all rows, d hidden size.
template <class Place, class T>
class DenseBlock final : public Block<Place, T> {
 public:
  struct Memory {
    std::span<float> rstd;    // (n)
    std::span<T> normed;      // (n,d)
    std::span<T> all_normed;  // (N,d), where tokens are split
    std::span<T> d_output;    // (N,d), where tokens are split or gradients of weights deferred
    std::span<T> d_normed;    // (n,d)
    typename GatedUnit<Place, T>::Memory unit;

    Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options, PartSizes const& sizes, int layer);
  };

  DenseBlock(Setup<Place, T> const& setup, int layer, Memory memory);

  void forward(Pass const& pass, Matrix<T> y, Matrix<T const> x) override;
  void recompute(Pass const& pass, Matrix<T const> x) override;
  void backward_input(Pass const& pass, Matrix<T const> dy, Matrix<T const> x) override;
  void backward_weight(Pass const& pass, Gradients const& gradients, Matrix<T const> x) override;
  void backward_residual(Pass const& pass, Matrix<T> dx, Matrix<T const> x) override;
  std::vector<Activation<T>> activations(Pass const& pass) const override;

 private:
  void activate(Pass const& pass, Matrix<T const> x);

  Place place_;
  TensorGroup<Place> const& tensor_;
  Memory memory_;
  std::int64_t width_;
  Recompute recompute_;
  float epsilon_;
  Norm norm_;
  GatedUnit<Place, T> unit_;
  Matrix<T const> all_normed_;
  Matrix<T const> d_output_;
};

}  // namespace isotrain
