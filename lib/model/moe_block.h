#pragma once

#include <span>
#include <vector>

#include "kernels/router.h"
#include "lib/model/block.h"
#include "lib/model/buffer_map.h"
#include "lib/model/expert_weights.h"
#include "lib/model/gated_unit.h"

namespace isotrain {

/// A mixture of experts (DeepSeek-V2, arXiv:2405.04434, 2.2; DeepSeek-V3, arXiv:2412.19437, 2.1.2): routed experts,
/// shared experts, no token is dropped. The gradient of the normed input sums router and shared experts in fp32, is
/// rounded to T, and then takes the routed experts by ascending id. Letters: N rows, d hidden size, E routed experts, K
/// per token, R = N*K routed rows, m width of an expert.
template <class Place, class T>
class MoeBlock final : public Block<Place, T> {
 public:
  struct Memory {
    std::span<float> rstd;                   // (N)
    std::span<T> normed;                     // (N,d)
    std::span<float> logits;                 // (N,E); in the backward pass their gradient
    std::span<float> score;                  // (N,E)
    std::span<std::int32_t> expert;          // (N,K)
    std::span<float> weight;                 // (N,K)
    std::span<std::int32_t> row, order;      // (N,K)
    std::span<std::int64_t> offsets;         // (E*samples+1)
    std::span<std::int64_t> expert_offsets;  // (E+1)
    std::span<T> routed;                     // (R,d)
    std::span<T> gate_up;                    // (R,2m); in the backward pass overwritten by its gradient
    std::span<T> hidden;                     // (R,m)
    std::span<T> output;                     // (R,d); in the backward pass overwritten by its gradient
    std::span<T> shared_output;              // (N,d)
    typename GatedUnit<Place, T>::Memory shared;
    std::span<T> d_hidden;              // (R,m)
    std::span<T> d_routed;              // (R,d)
    std::span<float> part, other_part;  // (R,d), only where an expert's gate and up are not adjacent
    std::span<float> d_weight;          // (N,K)
    std::span<float> d_score;           // (N,E)
    std::span<T> d_normed;              // (N,d)
    std::span<float> normed_fp32;       // (N,d), bf16 only
    std::span<float> sum;               // (N,d), bf16 only
    std::span<double> balance_loss;     // (samples)

    Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options, int layer);
  };

  /// bias (E) moves the choice of experts (empty: none); loads (E) are counted.
  MoeBlock(Setup<Place, T> const& setup, int layer, Memory memory, std::span<float const> bias,
           std::span<std::int64_t> loads);

  void forward(Pass const& pass, Matrix<T> y, Matrix<T const> x) override;
  void recompute(Pass const& pass, Matrix<T const> x) override;
  void backward_input(Pass const& pass, Matrix<T const> dy, Matrix<T const> x) override;
  void backward_weight(Pass const& pass, std::span<float> gradients, Matrix<T const> dy, Matrix<T const> x) override;
  void backward_residual(Pass const& pass, Matrix<T> dx, Matrix<T const> x) override;
  std::vector<Activation<T>> activations(Pass const& pass) const override;

 private:
  template <class U>
  Matrix<U> routed_rows(std::span<U> memory, Pass const& pass, std::int64_t width) const {
    return {memory.data(), pass.rows() * shape_.top_k, width};
  }
  template <class U>
  Matrix<U> choices(std::span<U> memory, Pass const& pass) const {
    return rows_of(memory, pass, shape_.top_k);
  }
  /// The normed input in fp32, which the router works in.
  Matrix<float const> router_input(Pass const& pass);
  void route(Pass const& pass);
  void gather(Pass const& pass);
  void activate_experts(Pass const& pass);
  void activate_experts_again(Pass const& pass);
  void apply_experts(Pass const& pass);
  void activate(Pass const& pass, Matrix<T const> x);
  void backward_experts(Pass const& pass);
  void backward_router(Pass const& pass);

  Place place_;
  Memory memory_;
  std::int64_t width_;
  std::int64_t expert_width_;
  Recompute recompute_;
  int slices_;
  float epsilon_;
  kernels::RouterShape shape_;
  kernels::BalanceLoss balance_;
  std::span<float const> bias_;
  std::span<std::int64_t> loads_;
  Norm norm_;
  Matrix<float const> gate_;  // (E,d)
  std::int64_t gate_offset_;
  bool adjacent_;                         // an expert's gate and up are one matrix
  ExpertWeights<T> gate_up_;              // (2m,d), if adjacent
  ExpertWeights<T> gate_part_, up_part_;  // (m,d), if not
  ExpertWeights<T> down_;
  bool has_shared_;
  GatedUnit<Place, T> shared_;
};

}  // namespace isotrain
