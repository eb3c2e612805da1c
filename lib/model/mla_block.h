#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/rope.h"
#include "lib/model/block.h"
#include "lib/model/buffer_map.h"
#include "lib/model/linear.h"
#include "lib/model/tensor_group.h"

namespace isotrain {

/// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1), with or without the queries' low rank.
/// Latents are computed from own rows and then gathered: they are narrow, and their matrices are not cut into slices.
/// The gradient of the normed input sums queries' latent, keys' and values' latent, shared key; without low rank,
/// queries come first, summed over slices. Letters: n own rows, N all rows, d hidden size, h heads of this rank, rq and
/// rkv latent widths, dn, dr, dv head widths without position, with position, of values; dq = dn + dr.
template <class Place, class T>
class MlaBlock final : public AttentionBlock<Place, T> {
 public:
  struct Memory {
    std::span<float> rstd;       // (n)
    std::span<T> normed;         // (n,d)
    std::span<T> latent;         // (n,[rq+]rkv+dr): queries' latent, keys' and values' latent, shared key
    std::span<float> q_rstd;     // (n)
    std::span<float> kv_rstd;    // (n)
    std::span<T> q_latent;       // (n,rq) normed
    std::span<T> kv_latent;      // (n,rkv) normed
    std::span<T> key;            // (n,dr) shared key, rotated
    std::span<T> all_q_input;    // (N,rq) or, without low rank, (N,d); where tokens are split, as the next two
    std::span<T> all_kv_latent;  // (N,rkv)
    std::span<T> all_key;        // (N,dr)
    std::span<T> q;              // (N,h,dq), rotated
    std::span<T> kv;             // (N,h,dn+dv)
    std::span<T> k;              // (N,h,dq)
    std::span<T> o;              // (N,h,dv)
    std::span<float> lse;        // (samples,h,T)
    std::span<T> d_output;       // (N,d), where tokens are split or gradients of weights deferred
    std::span<T> d_o, d_q, d_k, d_kv, d_latent, d_q_latent, d_kv_latent, d_key, d_normed;  // as those without d_
    std::span<float> sum;                                                                  // (n,d), bf16 only

    Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options, PartSizes const& sizes, int layer);
  };

  MlaBlock(Setup<Place, T> const& setup, int layer, Memory memory);

  void forward(Pass const& pass, Matrix<T> y, Matrix<T const> x) override;
  void recompute(Pass const& pass, Matrix<T const> x) override;
  void backward_input(Pass const& pass, Matrix<T const> dy, Matrix<T const> x) override;
  void backward_weight(Pass const& pass, Gradients const& gradients, Matrix<T const> x) override;
  void backward_residual(Pass const& pass, Matrix<T> dx, Matrix<T const> x) override;
  std::vector<Activation<T>> activations(Pass const& pass) const override;
  void decode(Pass const& pass, Matrix<T> y, Matrix<T const> x, KeyValueCache<T> cache) override;

 private:
  /// The three runs of columns of `latent` and its gradient.
  Matrix<T> q_columns(std::span<T> latent, Pass const& pass) const;
  Matrix<T> kv_columns(std::span<T> latent, Pass const& pass) const;
  Matrix<T> key_columns(std::span<T> latent, Pass const& pass) const;
  /// Views per head.
  Heads<T> queries(std::span<T> q, std::int64_t rows) const;
  Heads<T> keys_without_position(std::span<T> kv, std::int64_t rows) const;
  Heads<T> values(std::span<T> kv, std::int64_t rows) const;
  Heads<T> outputs(std::span<T> o, std::int64_t rows) const;

  void rotate(Heads<T> x, std::span<std::int32_t const> positions, kernels::Rotation rotation);
  void make_latents(Pass const& pass, Matrix<T const> x);
  void gather_latents(Pass const& pass);
  void split_key_gradients(Pass const& pass);
  void project_inputs(Pass const& pass, Matrix<T const> x);
  void project_queries(Pass const& pass);
  void project_keys(Pass const& pass);
  void project_output(Pass const& pass, Matrix<T> y, Matrix<T const> x);

  Place place_;
  TensorGroup<Place> const& tensor_;
  Memory memory_;
  RopeTable rope_;
  ModelConfig const& config_;
  std::int64_t heads_;
  std::int64_t latent_width_;
  bool low_rank_queries_;
  Recompute recompute_;
  int slices_;
  float epsilon_;
  float latent_epsilon_;
  Norm norm_, q_norm_, kv_norm_;
  Stack<T> down_;  // from the input to `latent`
  Stack<T> q_up_;  // to the queries, from their latent or, without one, from the input
  Stack<T> kv_up_;
  SlicedInput<T> output_;
  Matrix<T const> all_q_input_, all_kv_latent_, all_key_;
  Matrix<T const> d_output_;
};

}  // namespace isotrain
