#pragma once

#include <span>
#include <string>
#include <vector>

#include "lib/model/block.h"
#include "lib/model/buffer_map.h"
#include "lib/model/linear.h"
#include "lib/model/tensor_group.h"

namespace isotrain {

/// Attention with grouped queries (Ainslie et al., arXiv:2305.13245) as in Llama; plain multi-head attention where
/// every query head has its own key head. The gradient of the normed input sums in each slice queries, keys, values, in
/// this order. Letters: n own rows, N all rows, d hidden size; of this rank H query heads, G key heads; D head size.
template <class Place, class T>
class GqaBlock final : public AttentionBlock<Place, T> {
 public:
  struct Memory {
    std::span<float> rstd;    // (n)
    std::span<T> normed;      // (n,d)
    std::span<T> all_normed;  // (N,d), where tokens are split
    std::span<T> qkv;         // (N,(H+2G)D), queries and keys rotated
    std::span<T> o;           // (N,H D)
    std::span<float> lse;     // (samples,H,T)
    std::span<T> d_output;    // (N,d), where tokens are split or gradients of weights deferred
    std::span<T> d_o;         // (N,H D)
    std::span<T> d_qkv;       // (N,(H+2G)D)
    std::span<T> d_normed;    // (n,d)

    Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options, PartSizes const& sizes, int layer);
  };

  GqaBlock(Setup<Place, T> const& setup, int layer, Memory memory);

  void forward(Pass const& pass, Matrix<T> y, Matrix<T const> x) override;
  void recompute(Pass const& pass, Matrix<T const> x) override;
  void backward_input(Pass const& pass, Matrix<T const> dy, Matrix<T const> x) override;
  void backward_weight(Pass const& pass, Gradients const& gradients, Matrix<T const> x) override;
  void backward_residual(Pass const& pass, Matrix<T> dx, Matrix<T const> x) override;
  std::vector<Activation<T>> activations(Pass const& pass) const override;
  void decode(Pass const& pass, Matrix<T> y, Matrix<T const> x, KeyValueCache<T> cache) override;

 private:
  /// `count` heads of (N,(H+2G)D) from head `first`.
  Heads<T> heads(std::span<T> qkv, std::int64_t rows, int first, int count) const;
  void project_inputs(Pass const& pass, Matrix<T const> x);
  void project_output(Pass const& pass, Matrix<T> y, Matrix<T const> x);

  Place place_;
  TensorGroup<Place> const& tensor_;
  Memory memory_;
  RopeTable rope_;
  std::int64_t width_;
  int heads_;
  int kv_heads_;
  int head_dim_;
  Recompute recompute_;
  float epsilon_;
  Norm norm_;
  Stack<T> qkv_;
  SlicedInput<T> output_;
  Matrix<T const> all_normed_;
  Matrix<T const> d_output_;
};

}  // namespace isotrain
