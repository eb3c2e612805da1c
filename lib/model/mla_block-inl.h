#pragma once

#include "kernels/attention.h"
#include "kernels/mla.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "lib/model/memory-inl.h"
#include "lib/model/mla_block.h"

namespace isotrain {

template <class Place, class T>
MlaBlock<Place, T>::Memory::Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options, int layer) {
  std::int64_t const rows = options.micro_batch * options.sequence;
  std::int64_t const head_rows = rows * config.num_heads;
  std::int64_t const latent_width = config.q_lora_rank + config.kv_lora_rank + config.qk_rope_head_dim;
  Keeper keep(map, Scratch::attention, options.recompute, "layer " + std::to_string(layer) + " attention: ");
  bool const low_rank = config.q_lora_rank > 0;
  rstd = keep.keep<float>("norm's rstd", rows, Recompute::selective);
  normed = keep.keep<T>("normed input", rows * config.hidden_size, Recompute::none);
  latent = keep.keep<T>("latents", rows * latent_width, Recompute::selective);
  q_rstd = keep.keep<float>("query latent's rstd", low_rank ? rows : 0, Recompute::selective);
  kv_rstd = keep.keep<float>("key latent's rstd", rows, Recompute::selective);
  q_latent = keep.keep<T>("normed query latent", rows * config.q_lora_rank, Recompute::none);
  kv_latent = keep.keep<T>("normed key latent", rows * config.kv_lora_rank, Recompute::none);
  q = keep.keep<T>("queries", head_rows * config.query_dim(), low_rank ? Recompute::none : Recompute::selective);
  kv = keep.keep<T>("keys without position, values", head_rows * (config.qk_nope_head_dim + config.v_head_dim),
                    Recompute::none);
  k = keep.keep<T>("keys", head_rows * config.query_dim(), Recompute::none);
  o = keep.keep<T>("attention output", head_rows * config.v_head_dim, Recompute::selective);
  lse = keep.keep<float>("log-sum-exp", head_rows, Recompute::selective);
  d_o = keep.scratch<T>(head_rows * config.v_head_dim);
  d_q = keep.scratch<T>(head_rows * config.query_dim());
  d_k = keep.scratch<T>(head_rows * config.query_dim());
  d_kv = keep.scratch<T>(head_rows * (config.qk_nope_head_dim + config.v_head_dim));
  d_latent = keep.scratch<T>(rows * latent_width);
  d_q_latent = keep.scratch<T>(rows * config.q_lora_rank);
  d_kv_latent = keep.scratch<T>(rows * config.kv_lora_rank);
  d_normed = keep.scratch<T>(rows * config.hidden_size);
  sum = keep.scratch<float>(sum_elements<T>(rows * config.hidden_size));
}

template <class Place, class T>
MlaBlock<Place, T>::MlaBlock(Setup<Place, T> const& setup, int layer, Memory memory)
    : place_(setup.place),
      memory_(memory),
      rope_(setup.rope),
      config_(setup.config),
      latent_width_(setup.config.q_lora_rank + setup.config.kv_lora_rank + setup.config.qk_rope_head_dim),
      low_rank_queries_(setup.config.q_lora_rank > 0),
      recompute_(setup.options.recompute),
      slices_(setup.options.slices),
      epsilon_(static_cast<float>(setup.config.norm_epsilon)),
      latent_epsilon_(static_cast<float>(setup.config.latent_norm_epsilon)) {
  LayerParameters<Place, T> const find(setup, layer);
  norm_ = find.norm("input_layernorm");
  kv_norm_ = find.norm("self_attn.kv_a_layernorm");
  if (low_rank_queries_) {
    q_norm_ = find.norm("self_attn.q_a_layernorm");
    down_ = find.stack({"self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"});
    q_up_ = find.stack({"self_attn.q_b_proj"});
  } else {
    down_ = find.stack({"self_attn.kv_a_proj_with_mqa"});
    q_up_ = find.stack({"self_attn.q_proj"});
  }
  kv_up_ = find.stack({"self_attn.kv_b_proj"});
  output_ = find.linear("self_attn.o_proj");
}

template <class Place, class T>
Matrix<T> MlaBlock<Place, T>::q_columns(std::span<T> latent, Pass const& pass) const {
  return rows_of(latent, pass, latent_width_).slice_cols(0, config_.q_lora_rank);
}
template <class Place, class T>
Matrix<T> MlaBlock<Place, T>::kv_columns(std::span<T> latent, Pass const& pass) const {
  return rows_of(latent, pass, latent_width_).slice_cols(config_.q_lora_rank, config_.kv_lora_rank);
}
template <class Place, class T>
Matrix<T> MlaBlock<Place, T>::shared_key(std::span<T> latent, Pass const& pass) const {
  return rows_of(latent, pass, latent_width_)
      .slice_cols(config_.q_lora_rank + config_.kv_lora_rank, config_.qk_rope_head_dim);
}

template <class Place, class T>
Heads<T> MlaBlock<Place, T>::queries(std::span<T> q, std::int64_t rows) const {
  std::int64_t const dim = config_.query_dim();
  return {q.data(), rows, config_.num_heads, dim, config_.num_heads * dim, dim};
}
template <class Place, class T>
Heads<T> MlaBlock<Place, T>::keys_without_position(std::span<T> kv, std::int64_t rows) const {
  std::int64_t const stride = config_.qk_nope_head_dim + config_.v_head_dim;
  return {kv.data(), rows, config_.num_heads, config_.qk_nope_head_dim, config_.num_heads * stride, stride};
}
template <class Place, class T>
Heads<T> MlaBlock<Place, T>::values(std::span<T> kv, std::int64_t rows) const {
  std::int64_t const stride = config_.qk_nope_head_dim + config_.v_head_dim;
  return {kv.data() + config_.qk_nope_head_dim, rows,  config_.num_heads, config_.v_head_dim,
          config_.num_heads * stride,           stride};
}
template <class Place, class T>
Heads<T> MlaBlock<Place, T>::outputs(std::span<T> o, std::int64_t rows) const {
  return {o.data(), rows, config_.num_heads, config_.v_head_dim, output_.in, config_.v_head_dim};
}

template <class Place, class T>
void MlaBlock<Place, T>::rotate(Heads<T> x, Pass const& pass, kernels::Rotation rotation) {
  kernels::rope<T>(place_, x, rope_.table, pass.positions, kernels::RopePairs::interleaved, rotation);
}

template <class Place, class T>
void MlaBlock<Place, T>::project_queries(Pass const& pass) {
  Matrix<T const> input = rows_of(memory_.normed, pass, config_.hidden_size);
  if (low_rank_queries_) input = rows_of(memory_.q_latent, pass, config_.q_lora_rank);
  project<Place, T>(place_, rows_of(memory_.q, pass, q_up_.out()), input, q_up_);
  rotate(queries(memory_.q, pass.rows()).slice_dim(config_.qk_nope_head_dim, config_.qk_rope_head_dim), pass,
         kernels::Rotation::forward);
}

template <class Place, class T>
void MlaBlock<Place, T>::project_keys(Pass const& pass) {
  project<Place, T>(place_, rows_of(memory_.kv, pass, kv_up_.out()),
                    rows_of(memory_.kv_latent, pass, config_.kv_lora_rank), kv_up_);
  kernels::mla_assemble_keys<T>(place_, queries(memory_.k, pass.rows()), keys_without_position(memory_.kv, pass.rows()),
                                shared_key(memory_.latent, pass));
}

template <class Place, class T>
void MlaBlock<Place, T>::project_inputs(Pass const& pass, Matrix<T const> x) {
  auto const normed = rows_of(memory_.normed, pass, config_.hidden_size);
  kernels::rmsnorm_forward<T>(place_, normed, column(memory_.rstd, pass), x, norm_.gain, epsilon_);
  project<Place, T>(place_, rows_of(memory_.latent, pass, latent_width_), normed, down_);
  if (low_rank_queries_) {
    kernels::rmsnorm_forward<T>(place_, rows_of(memory_.q_latent, pass, config_.q_lora_rank),
                                column(memory_.q_rstd, pass), q_columns(memory_.latent, pass), q_norm_.gain,
                                latent_epsilon_);
  }
  kernels::rmsnorm_forward<T>(place_, rows_of(memory_.kv_latent, pass, config_.kv_lora_rank),
                              column(memory_.kv_rstd, pass), kv_columns(memory_.latent, pass), kv_norm_.gain,
                              latent_epsilon_);
  rotate(single_head(shared_key(memory_.latent, pass)), pass, kernels::Rotation::forward);
  project_queries(pass);
  project_keys(pass);
}

template <class Place, class T>
void MlaBlock<Place, T>::project_output(Matrix<T> y, Matrix<T const> x) {
  kernels::matmul<T, T>(place_, y, Matrix<T const>(memory_.o.data(), x.rows, output_.in), output_.matrix().transposed(),
                        kernels::Accumulate::no, {.slices = slices_}, x);
}

template <class Place, class T>
void MlaBlock<Place, T>::forward(Pass const& pass, Matrix<T> y, Matrix<T const> x) {
  project_inputs(pass, x);
  auto const rows = pass.rows();
  kernels::attention_forward<T>(place_, outputs(memory_.o, rows), used_of(memory_.lse, rows * config_.num_heads),
                                queries(memory_.q, rows), queries(memory_.k, rows), values(memory_.kv, rows),
                                {pass.samples, pass.sequence, rope_.softmax_scale});
  project_output(y, x);
}

template <class Place, class T>
void MlaBlock<Place, T>::recompute(Pass const& pass, Matrix<T const> x) {
  if (recompute_ == Recompute::none) return;
  kernels::rmsnorm_apply<T>(place_, rows_of(memory_.normed, pass, config_.hidden_size), column(memory_.rstd, pass), x,
                            norm_.gain);
  kernels::rmsnorm_apply<T>(place_, rows_of(memory_.kv_latent, pass, config_.kv_lora_rank),
                            column(memory_.kv_rstd, pass), kv_columns(memory_.latent, pass), kv_norm_.gain);
  project_keys(pass);
  if (!low_rank_queries_) return;
  kernels::rmsnorm_apply<T>(place_, rows_of(memory_.q_latent, pass, config_.q_lora_rank), column(memory_.q_rstd, pass),
                            q_columns(memory_.latent, pass), q_norm_.gain);
  project_queries(pass);
}

template <class Place, class T>
void MlaBlock<Place, T>::backward_input(Pass const& pass, Matrix<T const> dy, Matrix<T const>) {
  auto const rows = pass.rows();
  kernels::matmul<T, T>(place_, rows_of(memory_.d_o, pass, output_.in), dy, output_.matrix());
  kernels::attention_backward<T>(place_, queries(memory_.d_q, rows), queries(memory_.d_k, rows),
                                 values(memory_.d_kv, rows), outputs(memory_.d_o, rows), outputs(memory_.o, rows),
                                 used_of(memory_.lse, rows * config_.num_heads), queries(memory_.q, rows),
                                 queries(memory_.k, rows), values(memory_.kv, rows),
                                 {pass.samples, pass.sequence, rope_.softmax_scale});
  rotate(queries(memory_.d_q, rows).slice_dim(config_.qk_nope_head_dim, config_.qk_rope_head_dim), pass,
         kernels::Rotation::inverse);
  auto const d_shared_key = shared_key(memory_.d_latent, pass);
  kernels::mla_split_key_gradients<T>(place_, keys_without_position(memory_.d_kv, rows), d_shared_key,
                                      queries(memory_.d_k, rows), slices_);
  rotate(single_head(d_shared_key), pass, kernels::Rotation::inverse);

  auto const d_kv_latent = rows_of(memory_.d_kv_latent, pass, config_.kv_lora_rank);
  input_gradient<Place, T>(place_, d_kv_latent, {}, SumFrom::zero,
                           {{rows_of(memory_.d_kv, pass, kv_up_.out()), &kv_up_, slices_}});
  kernels::rmsnorm_backward_input<T>(place_, kv_columns(memory_.d_latent, pass), d_kv_latent,
                                     kv_columns(memory_.latent, pass), column(memory_.kv_rstd, pass), kv_norm_.gain);
  auto const d_normed = rows_of(memory_.d_normed, pass, config_.hidden_size);
  auto const sum = rows_of(memory_.sum, pass, config_.hidden_size);
  Term<T> const from_queries{rows_of(memory_.d_q, pass, q_up_.out()), &q_up_, slices_};
  Term<T> const from_latent{rows_of(memory_.d_latent, pass, latent_width_), &down_, 1};
  if (low_rank_queries_) {
    auto const d_q_latent = rows_of(memory_.d_q_latent, pass, config_.q_lora_rank);
    input_gradient<Place, T>(place_, d_q_latent, {}, SumFrom::zero, {from_queries});
    kernels::rmsnorm_backward_input<T>(place_, q_columns(memory_.d_latent, pass), d_q_latent,
                                       q_columns(memory_.latent, pass), column(memory_.q_rstd, pass), q_norm_.gain);
    input_gradient<Place, T>(place_, d_normed, sum, SumFrom::zero, {from_latent});
  } else {
    input_gradient<Place, T>(place_, d_normed, sum, SumFrom::zero, {from_queries, from_latent});
  }
}

template <class Place, class T>
void MlaBlock<Place, T>::backward_weight(Pass const& pass, std::span<float> gradients, Matrix<T const> dy,
                                         Matrix<T const> x) {
  auto const normed = rows_of(memory_.normed, pass, config_.hidden_size);
  auto const q_latent = rows_of(memory_.q_latent, pass, config_.q_lora_rank);
  kernels::matmul<T, float>(place_, output_.gradient(gradients), dy.transposed(), rows_of(memory_.o, pass, output_.in),
                            kernels::Accumulate::yes, {.slices = 1, .leaf = pass.sequence});
  weight_gradient<Place, T>(place_, gradients, kv_up_, rows_of(memory_.d_kv, pass, kv_up_.out()),
                            rows_of(memory_.kv_latent, pass, config_.kv_lora_rank), pass.sequence);
  weight_gradient<Place, T>(place_, gradients, q_up_, rows_of(memory_.d_q, pass, q_up_.out()),
                            low_rank_queries_ ? q_latent : normed, pass.sequence);
  weight_gradient<Place, T>(place_, gradients, down_, rows_of(memory_.d_latent, pass, latent_width_), normed,
                            pass.sequence);
  if (low_rank_queries_) {
    kernels::rmsnorm_backward_gain<T>(
        place_, q_norm_.gradient(gradients), rows_of(memory_.d_q_latent, pass, config_.q_lora_rank),
        q_columns(memory_.latent, pass), column(memory_.q_rstd, pass), pass.sequence, slices_);
  }
  kernels::rmsnorm_backward_gain<T>(
      place_, kv_norm_.gradient(gradients), rows_of(memory_.d_kv_latent, pass, config_.kv_lora_rank),
      kv_columns(memory_.latent, pass), column(memory_.kv_rstd, pass), pass.sequence, slices_);
  kernels::rmsnorm_backward_gain<T>(place_, norm_.gradient(gradients),
                                    rows_of(memory_.d_normed, pass, config_.hidden_size), x, column(memory_.rstd, pass),
                                    pass.sequence, slices_);
}

template <class Place, class T>
void MlaBlock<Place, T>::backward_residual(Pass const& pass, Matrix<T> dx, Matrix<T const> x) {
  kernels::rmsnorm_backward_input<T>(place_, dx, rows_of(memory_.d_normed, pass, config_.hidden_size), x,
                                     column(memory_.rstd, pass), norm_.gain, kernels::Accumulate::yes);
}

template <class Place, class T>
std::vector<Activation<T>> MlaBlock<Place, T>::activations(Pass const& pass) const {
  return {{"normed input of attention", used(memory_.normed, pass, config_.hidden_size)},
          {"latents of queries, keys and values", used(memory_.latent, pass, latent_width_)},
          {"queries", used(memory_.q, pass, q_up_.out())},
          {"keys and values", used(memory_.kv, pass, kv_up_.out())},
          {"attention output", used(memory_.o, pass, output_.in)}};
}

template <class Place, class T>
void MlaBlock<Place, T>::decode(Pass const& pass, Matrix<T> y, Matrix<T const> x, KeyValueCache<T> cache) {
  project_inputs(pass, x);
  auto const position = pass.positions[0];
  cache.append(position, queries(memory_.k, 1), values(memory_.kv, 1));
  kernels::attention_decode<T>(place_, outputs(memory_.o, 1), queries(memory_.q, 1),
                               cache.first(cache.keys, position + 1), cache.first(cache.values, position + 1),
                               rope_.softmax_scale);
  project_output(y, x);
}

}  // namespace isotrain
