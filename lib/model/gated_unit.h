#pragma once

#include <span>
#include <string>

#include "lib/model/block.h"
#include "lib/model/buffer_map.h"
#include "lib/model/linear.h"

namespace isotrain {

class Keeper;

/// y = (silu(x W_gate^T) * (x W_up^T)) W_down^T (Shazeer, arXiv:2002.05202): a dense feed-forward layer, or shared
/// experts. Its width f is a sliced dimension. Letters: N rows, d hidden size.
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
  /// y = [residual +] hidden W_down^T.
  void output(Place const& at, Pass const& pass, Matrix<T> y, Matrix<T const> residual = {});
  /// The term of the input's gradient, ready for input_gradient.
  Term<T> backward_input(Place const& at, Pass const& pass, Matrix<T const> dy);
  void backward_weight(Place const& at, Pass const& pass, std::span<float> gradients, Matrix<T const> dy,
                       Matrix<T const> x);

  Memory const& memory() const { return memory_; }
  std::int64_t width() const { return down_.in; }

 private:
  Memory memory_;
  int slices_ = 1;
  Stack<T> gate_up_;
  Linear<T> down_;
};

}  // namespace isotrain
