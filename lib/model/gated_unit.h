#pragma once

#include <span>
#include <string>
#include <vector>

#include "lib/model/block.h"
#include "lib/model/buffer_map.h"
#include "lib/model/linear.h"

namespace isotrain {

class Keeper;

/// y = (silu(x W_gate^T) * (x W_up^T)) W_down^T (Shazeer, arXiv:2002.05202): a dense feed-forward layer, or shared
/// experts. Its width is a sliced dimension; f is what this rank has of it. All rows of the tensor group are at hand,
/// and what comes out is summed over slices by the caller. Letters: N rows, d hidden size.
template <class Place, class T>
class GatedUnit {
 public:
  struct Memory {
    std::span<T> gate_up;   // (N,2f); in the backward pass overwritten by its gradient
    std::span<T> hidden;    // (N,f)
    std::span<T> d_hidden;  // (N,f)

    Memory() = default;
    Memory(Keeper& keep, std::int64_t rows, std::int64_t width);
  };

  GatedUnit() = default;
  /// `name`: "mlp" or "mlp.shared_experts".
  GatedUnit(Setup<Place, T> const& setup, int layer, std::string const& name, Memory memory);

  /// Up to the hidden values.
  void activate(Place const& at, Pass const& pass, Matrix<T const> x);
  /// The hidden values again from what `activate` left in gate_up.
  void activate_again(Place const& at, Pass const& pass);
  /// The products whose sum over slices is y.
  std::vector<kernels::Product<T>> output(Pass const& pass) const;
  /// The products whose sum over slices is the input's gradient: in each slice gate, then up.
  std::vector<kernels::Product<T>> backward_input(Place const& at, Pass const& pass, Matrix<T const> dy);
  void backward_weight(Place const& at, Pass const& pass, Gradients const& gradients, Matrix<T const> dy,
                       Matrix<T const> x);

  Memory const& memory() const { return memory_; }
  std::int64_t width() const { return down_.in(); }

 private:
  Memory memory_;
  Stack<T> gate_up_;
  SlicedInput<T> down_;
};

}  // namespace isotrain
