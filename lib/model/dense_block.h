#pragma once

#include <span>
#include <vector>

#include "lib/model/block.h"
#include "lib/model/buffer_map.h"
#include "lib/model/gated_unit.h"

namespace isotrain {

/// A dense feed-forward half of a layer. Letters: N rows, d hidden size.
template <class Place, class T>
class DenseBlock final : public Block<Place, T> {
 public:
  struct Memory {
    std::span<float> rstd;  // (N)
    std::span<T> normed;    // (N,d)
    std::span<T> d_normed;  // (N,d)
    std::span<float> sum;   // (N,d), bf16 only
    typename GatedUnit<Place, T>::Memory unit;

    Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options, int layer);
  };

  DenseBlock(Setup<Place, T> const& setup, int layer, Memory memory);

  void forward(Pass const& pass, Matrix<T> y, Matrix<T const> x) override;
  void recompute(Pass const& pass, Matrix<T const> x) override;
  void backward_input(Pass const& pass, Matrix<T const> dy, Matrix<T const> x) override;
  void backward_weight(Pass const& pass, std::span<float> gradients, Matrix<T const> dy, Matrix<T const> x) override;
  void backward_residual(Pass const& pass, Matrix<T> dx, Matrix<T const> x) override;
  std::vector<Activation<T>> activations(Pass const& pass) const override;

 private:
  void activate(Pass const& pass, Matrix<T const> x);

  Place place_;
  Memory memory_;
  std::int64_t width_;
  Recompute recompute_;
  int slices_;
  float epsilon_;
  Norm norm_;
  GatedUnit<Place, T> unit_;
};

}  // namespace isotrain
