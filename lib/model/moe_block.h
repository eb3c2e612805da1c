#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kernels/router.h"
#include "lib/model/block.h"
#include "lib/model/buffer_map.h"
#include "lib/model/expert_weights.h"
#include "lib/model/gated_unit.h"
#include "lib/model/tensor_group.h"
#include "lib/parallel/expert_exchange.h"

namespace isotrain {

/// A mixture of experts (DeepSeek-V2, arXiv:2405.04434, 2.2; DeepSeek-V3, arXiv:2412.19437, 2.1.2): routed experts,
/// shared experts, no token is dropped. Every rank routes its own tokens; where experts are shared out over a group,
/// the routed rows travel to their owners and back. The gradient of the normed input sums router and shared experts in
/// fp32, is rounded to T, and then takes the routed experts by ascending id. Letters: n own rows, N all rows, d hidden
/// size, E routed experts, K per token, R = n*K routed rows, R' rows that this rank's experts received, m width of an
/// expert.
template <class Place, class T>
class MoeBlock final : public Block<Place, T> {
 public:
  struct Memory {
    std::span<float> rstd;                   // (n)
    std::span<T> normed;                     // (n,d)
    std::span<T> all_normed;                 // (N,d), where tokens are split
    std::span<float> logits;                 // (n,E); in the backward pass their gradient
    std::span<float> score;                  // (n,E)
    std::span<std::int32_t> expert;          // (n,K)
    std::span<float> weight;                 // (n,K)
    std::span<std::int32_t> row, order;      // (n,K)
    std::span<std::int64_t> offsets;         // (E*samples+1)
    std::span<std::int64_t> expert_offsets;  // (E+1)
    std::span<T> routed;                     // (R,d)
    std::span<T> output;                     // (R,d); in the backward pass overwritten by its gradient
    std::span<T> received;                   // (R',d), where experts are shared out, as the next ones
    std::span<T> received_output;            // (R',d)
    std::span<T> d_received_output;          // (R',d)
    std::span<T> d_received;                 // (R',d)
    std::span<T> transit;                    // (R',d)
    std::span<T> gate_up;                    // (R',2m); in the backward pass overwritten by its gradient
    std::span<T> hidden;                     // (R',m)
    std::span<T> shared_output;              // (n,d)
    typename GatedUnit<Place, T>::Memory shared;
    std::span<T> d_output;               // (N,d), where tokens are split or gradients of weights deferred
    std::span<T> d_hidden;               // (R',m)
    std::span<T> d_routed;               // (R,d)
    std::span<float> part, other_part;   // (R',d), only where an expert's gate and up are not adjacent
    std::span<float> d_weight;           // (n,K)
    std::span<float> all_score;          // (N,E), where tokens are split, as the next one
    std::span<std::int32_t> all_expert;  // (N,K)
    std::span<float> d_score;            // (N,E)
    std::span<T> d_normed;               // (n,d)
    std::span<float> normed_fp32;        // (n,d), bf16 only
    std::span<float> sum;                // (n,d), bf16 only
    std::span<double> balance_loss;      // (samples)

    Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options, PartSizes const& sizes, int layer);
  };

  /// bias (E) moves the choice of experts (empty: none); loads (E) are counted.
  MoeBlock(Setup<Place, T> const& setup, int layer, Memory memory, std::span<float const> bias,
           std::span<std::int64_t> loads);

  void forward(Pass const& pass, Matrix<T> y, Matrix<T const> x) override;
  void recompute(Pass const& pass, Matrix<T const> x) override;
  void backward_input(Pass const& pass, Matrix<T const> dy, Matrix<T const> x) override;
  void backward_weight(Pass const& pass, Gradients const& gradients, Matrix<T const> x) override;
  void backward_residual(Pass const& pass, Matrix<T> dx, Matrix<T const> x) override;
  std::vector<Activation<T>> activations(Pass const& pass) const override;

 private:
  /// What this rank's experts got: rows by (expert, source, sample, position), and what became of them.
  struct Received {
    explicit Received(Memory const& memory, bool grouped);
    GrowingRows<T> input, output, d_output, d_input, transit, gate_up, hidden, d_hidden;
    GrowingRows<float> part, other_part;
  };

  template <class U>
  Matrix<U> routed_rows(std::span<U> memory, Pass const& pass, std::int64_t width) const {
    return {memory.data(), pass.rows() * shape_.top_k, width};
  }
  template <class U>
  Matrix<U> choices(std::span<U> memory, Pass const& pass) const {
    return rows_of(memory, pass, shape_.top_k);
  }
  std::int64_t num_received(Pass const& pass) const;
  std::span<std::int64_t const> expert_offsets() const;
  /// The normed input in fp32, which the router works in.
  Matrix<float const> router_input(Pass const& pass);
  void route(Pass const& pass);
  void send(Pass const& pass);
  void activate_experts(Pass const& pass);
  void activate_experts_again(Pass const& pass);
  void apply_experts(Pass const& pass);
  void activate(Pass const& pass, Matrix<T const> x);
  void backward_experts(Pass const& pass);
  void backward_balance(Pass const& pass, Matrix<float>& d_score);
  void backward_router(Pass const& pass);

  Place place_;
  TensorGroup<Place> const& tensor_;
  ExpertExchange const& exchange_;
  Memory memory_;
  Received received_;
  bool grouped_;                // experts are shared out
  std::optional<Route> route_;  // then
  std::int64_t width_;
  std::int64_t expert_width_;
  Recompute recompute_;
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
  Matrix<T const> all_normed_;
  Matrix<T const> d_output_;
};

}  // namespace isotrain
