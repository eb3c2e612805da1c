#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/rope.h"
#include "lib/model/block.h"
#include "lib/model/buffer_map.h"
#include "lib/model/linear.h"

namespace isotrain {

/// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1), with or without the queries' low rank.
/// The gradient of the normed input sums queries' latent, keys' and values' latent, shared key; without low rank,
/// queries come first. Letters: N rows, d hidden size, h heads, rq and rkv latent widths, dn, dr, dv head widths
/// without position, with position, of values; dq = dn + dr.
template <class Place, class T>
class MlaBlock final : public AttentionBlock<Place, T> {
 public:
  struct Memory {
    std::span<float> rstd;     // (N)
    std::span<T> normed;       // (N,d)
    std::span<T> latent;       // (N,[rq+]rkv+dr): queries' latent, keys' and values' latent, rotated shared key
    std::span<float> q_rstd;   // (N)
    std::span<float> kv_rstd;  // (N)
    std::span<T> q_latent;     // (N,rq) normed
    std::span<T> kv_latent;    // (N,rkv) normed
    std::span<T> q;            // (N,h,dq), rotated
    std::span<T> kv;           // (N,h,dn+dv)
    std::span<T> k;            // (N,h,dq)
    std::span<T> o;            // (N,h,dv)
    std::span<float> lse;      // (samples,h,T)
    std::span<T> d_o, d_q, d_k, d_kv, d_latent, d_q_latent, d_kv_latent, d_normed;  // as those without d_
    std::span<float> sum;                                                           // (N,d), bf16 only

    Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options, int layer);
  };

  MlaBlock(Setup<Place, T> const& setup, int layer, Memory memory);

  void forward(Pass const& pass, Matrix<T> y, Matrix<T const> x) override;
  void recompute(Pass const& pass, Matrix<T const> x) override;
  void backward_input(Pass const& pass, Matrix<T const> dy, Matrix<T const> x) override;
  void backward_weight(Pass const& pass, std::span<float> gradients, Matrix<T const> dy, Matrix<T const> x) override;
  void backward_residual(Pass const& pass, Matrix<T> dx, Matrix<T const> x) override;
  std::vector<Activation<T>> activations(Pass const& pass) const override;
  void decode(Pass const& pass, Matrix<T> y, Matrix<T const> x, KeyValueCache<T> cache) override;

 private:
  /// The three runs of columns of `latent` and its gradient.
  Matrix<T> q_columns(std::span<T> latent, Pass const& pass) const;
  Matrix<T> kv_columns(std::span<T> latent, Pass const& pass) const;
  Matrix<T> shared_key(std::span<T> latent, Pass const& pass) const;
  /// Views per head.
  Heads<T> queries(std::span<T> q, std::int64_t rows) const;
  Heads<T> keys_without_position(std::span<T> kv, std::int64_t rows) const;
  Heads<T> values(std::span<T> kv, std::int64_t rows) const;
  Heads<T> outputs(std::span<T> o, std::int64_t rows) const;

  void rotate(Heads<T> x, Pass const& pass, kernels::Rotation rotation);
  void project_inputs(Pass const& pass, Matrix<T const> x);
  void project_queries(Pass const& pass);
  void project_keys(Pass const& pass);
  void project_output(Matrix<T> y, Matrix<T const> x);

  Place place_;
  Memory memory_;
  RopeTable rope_;
  ModelConfig const& config_;
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
  Linear<T> output_;
};

}  // namespace isotrain
