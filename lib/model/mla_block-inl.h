#pragma once

#include "kernels/attention.h"
#include "kernels/mla.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "lib/model/memory-inl.h"
#include "lib/model/mla_block.h"

namespace isotrain {

template <class Place, class T>
MlaBlock<Place, T>::Memory::Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options,
                                   PartSizes const& sizes, int layer) {
  std::int64_t const rows = sizes.rows, all_rows = sizes.all_rows;
  std::int64_t const d = config.hidden_size, rank_q = config.q_lora_rank, rank_kv = config.kv_lora_rank;
  std::int64_t const head_rows = all_rows * config.num_heads / sizes.tensor_ranks;
  std::int64_t const kv_dim = config.qk_nope_head_dim + config.v_head_dim;
  std::int64_t const latent_width = rank_q + rank_kv + config.qk_rope_head_dim;
  std::int64_t const gathered = sizes.split() ? all_rows : 0;
  Keeper keep(map, Scratch::attention, options, "layer " + std::to_string(layer) + " attention: ");
  bool const low_rank = rank_q > 0;
  rstd = keep.keep<float>("norm's rstd", rows, Recompute::selective);
  normed = keep.keep<T>("normed input", rows * d, Recompute::none);
  latent = keep.keep<T>("latents", rows * latent_width, Recompute::selective);
  q_rstd = keep.keep<float>("query latent's rstd", low_rank ? rows : 0, Recompute::selective);
  kv_rstd = keep.keep<float>("key latent's rstd", rows, Recompute::selective);
  q_latent = keep.keep<T>("normed query latent", rows * rank_q, Recompute::none);
  kv_latent = keep.keep<T>("normed key latent", rows * rank_kv, Recompute::none);
  key = keep.keep<T>("shared key", rows * config.qk_rope_head_dim, Recompute::selective);
  all_q_input = keep.keep<T>("queries' input of all tensor ranks", gathered * (low_rank ? rank_q : d), Recompute::none);
  all_kv_latent = keep.keep<T>("key latent of all tensor ranks", gathered * rank_kv, Recompute::none);
  all_key = keep.keep<T>("shared key of all tensor ranks", gathered * config.qk_rope_head_dim, Recompute::none);
  q = keep.keep<T>("queries", head_rows * config.query_dim(), low_rank ? Recompute::none : Recompute::selective);
  kv = keep.keep<T>("keys without position, values", head_rows * kv_dim, Recompute::none);
  k = keep.keep<T>("keys", head_rows * config.query_dim(), Recompute::none);
  o = keep.keep<T>("attention output", head_rows * config.v_head_dim, Recompute::selective);
  lse = keep.keep<float>("log-sum-exp", head_rows, Recompute::selective);
  d_output = keep.output_gradient<T>(sizes, d);
  d_o = keep.scratch<T>(head_rows * config.v_head_dim);
  d_q = keep.for_weights<T>("gradient of queries", head_rows * config.query_dim());
  d_k = keep.scratch<T>(head_rows * config.query_dim());
  d_kv = keep.for_weights<T>("gradient of keys and values", head_rows * kv_dim);
  d_latent = keep.for_weights<T>("gradient of latents", rows * latent_width);
  d_q_latent = keep.for_weights<T>("gradient of normed query latent", rows * rank_q);
  d_kv_latent = keep.for_weights<T>("gradient of normed key latent", rows * rank_kv);
  d_key = keep.scratch<T>(rows * config.qk_rope_head_dim);
  d_normed = keep.for_weights<T>("gradient of normed input", rows * d);
  sum = keep.scratch<float>(sum_elements<T>(rows * d));
}

template <class Place, class T>
MlaBlock<Place, T>::MlaBlock(Setup<Place, T> const& setup, int layer, Memory memory)
    : place_(setup.place),
      tensor_(setup.tensor),
      memory_(memory),
      rope_(setup.rope),
      config_(setup.config),
      heads_(setup.config.num_heads / setup.part.tensor_ranks()),
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
  output_ = find.sliced_input("self_attn.o_proj");
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
Matrix<T> MlaBlock<Place, T>::key_columns(std::span<T> latent, Pass const& pass) const {
  return rows_of(latent, pass, latent_width_)
      .slice_cols(config_.q_lora_rank + config_.kv_lora_rank, config_.qk_rope_head_dim);
}

template <class Place, class T>
Heads<T> MlaBlock<Place, T>::queries(std::span<T> q, std::int64_t rows) const {
  std::int64_t const dim = config_.query_dim();
  return {q.data(), rows, heads_, dim, heads_ * dim, dim};
}
template <class Place, class T>
Heads<T> MlaBlock<Place, T>::keys_without_position(std::span<T> kv, std::int64_t rows) const {
  std::int64_t const stride = config_.qk_nope_head_dim + config_.v_head_dim;
  return {kv.data(), rows, heads_, config_.qk_nope_head_dim, heads_ * stride, stride};
}
template <class Place, class T>
Heads<T> MlaBlock<Place, T>::values(std::span<T> kv, std::int64_t rows) const {
  std::int64_t const stride = config_.qk_nope_head_dim + config_.v_head_dim;
  return {kv.data() + config_.qk_nope_head_dim, rows, heads_, config_.v_head_dim, heads_ * stride, stride};
}
template <class Place, class T>
Heads<T> MlaBlock<Place, T>::outputs(std::span<T> o, std::int64_t rows) const {
  return {o.data(), rows, heads_, config_.v_head_dim, output_.in(), config_.v_head_dim};
}

template <class Place, class T>
void MlaBlock<Place, T>::rotate(Heads<T> x, std::span<std::int32_t const> positions, kernels::Rotation rotation) {
  kernels::rope<T>(place_, x, rope_.table, positions, kernels::RopePairs::interleaved, rotation);
}

template <class Place, class T>
void MlaBlock<Place, T>::make_latents(Pass const& pass, Matrix<T const> x) {
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
  auto const key = rows_of(memory_.key, pass, config_.qk_rope_head_dim);
  copy_rows<T>(key, key_columns(memory_.latent, pass));
  rotate(single_head(key), pass.positions, kernels::Rotation::forward);
}

template <class Place, class T>
void MlaBlock<Place, T>::gather_latents(Pass const& pass) {
  auto const q_input = low_rank_queries_ ? rows_of(memory_.q_latent, pass, config_.q_lora_rank)
                                         : rows_of(memory_.normed, pass, config_.hidden_size);
  all_q_input_ = tensor_.template gather<T>(pass, memory_.all_q_input, q_input);
  all_kv_latent_ =
      tensor_.template gather<T>(pass, memory_.all_kv_latent, rows_of(memory_.kv_latent, pass, config_.kv_lora_rank));
  all_key_ = tensor_.template gather<T>(pass, memory_.all_key, rows_of(memory_.key, pass, config_.qk_rope_head_dim));
}

template <class Place, class T>
void MlaBlock<Place, T>::project_queries(Pass const& pass) {
  project<Place, T>(place_, all_rows_of(memory_.q, pass, q_up_.out()), all_q_input_, q_up_);
  rotate(queries(memory_.q, pass.all_rows()).slice_dim(config_.qk_nope_head_dim, config_.qk_rope_head_dim),
         pass.all_positions, kernels::Rotation::forward);
}

template <class Place, class T>
void MlaBlock<Place, T>::project_keys(Pass const& pass) {
  auto const rows = pass.all_rows();
  project<Place, T>(place_, all_rows_of(memory_.kv, pass, kv_up_.out()), all_kv_latent_, kv_up_);
  kernels::mla_assemble_keys<T>(place_, queries(memory_.k, rows), keys_without_position(memory_.kv, rows), all_key_);
}

template <class Place, class T>
void MlaBlock<Place, T>::project_inputs(Pass const& pass, Matrix<T const> x) {
  make_latents(pass, x);
  gather_latents(pass);
  project_queries(pass);
  project_keys(pass);
}

template <class Place, class T>
void MlaBlock<Place, T>::project_output(Pass const& pass, Matrix<T> y, Matrix<T const> x) {
  tensor_.template sum_slices<T, T>(place_, pass, y, output_.products(all_rows_of(memory_.o, pass, output_.in())), x);
}

template <class Place, class T>
void MlaBlock<Place, T>::forward(Pass const& pass, Matrix<T> y, Matrix<T const> x) {
  project_inputs(pass, x);
  auto const rows = pass.all_rows();
  kernels::attention_forward<T>(place_, outputs(memory_.o, rows), used_of(memory_.lse, rows * heads_),
                                queries(memory_.q, rows), queries(memory_.k, rows), values(memory_.kv, rows),
                                {pass.samples, pass.sequence, rope_.softmax_scale});
  project_output(pass, y, x);
}

template <class Place, class T>
void MlaBlock<Place, T>::recompute(Pass const& pass, Matrix<T const> x) {
  if (recompute_ == Recompute::none) return;
  kernels::rmsnorm_apply<T>(place_, rows_of(memory_.normed, pass, config_.hidden_size), column(memory_.rstd, pass), x,
                            norm_.gain);
  kernels::rmsnorm_apply<T>(place_, rows_of(memory_.kv_latent, pass, config_.kv_lora_rank),
                            column(memory_.kv_rstd, pass), kv_columns(memory_.latent, pass), kv_norm_.gain);
  if (low_rank_queries_) {
    kernels::rmsnorm_apply<T>(place_, rows_of(memory_.q_latent, pass, config_.q_lora_rank),
                              column(memory_.q_rstd, pass), q_columns(memory_.latent, pass), q_norm_.gain);
  }
  gather_latents(pass);
  project_keys(pass);
  if (low_rank_queries_) project_queries(pass);
}

/// The gradient of the shared key is a sum over all heads, rounded once, then turned back.
template <class Place, class T>
void MlaBlock<Place, T>::split_key_gradients(Pass const& pass) {
  auto const rows = pass.all_rows();
  auto const d_nope = keys_without_position(memory_.d_kv, rows);
  auto const d_k = queries(memory_.d_k, rows);
  auto const d_key = rows_of(memory_.d_key, pass, config_.qk_rope_head_dim);
  if (tensor_.alone()) {
    kernels::mla_split_key_gradients<T>(place_, d_nope, d_key, d_k, slices_);
  } else {
    std::int64_t const per_slice = config_.num_heads / slices_;
    auto const partials = tensor_.partials(pass, config_.qk_rope_head_dim);
    for (auto const& partial : partials) {
      auto const first = partial.slices.begin * per_slice, count = partial.slices.size() * per_slice;
      kernels::mla_split_key_gradients_partial<T>(place_, d_nope.slice_heads(first, count), partial.sum,
                                                  d_k.slice_heads(first, count),
                                                  static_cast<int>(partial.slices.size()));
    }
    tensor_.template meet<T>(place_, pass, d_key, partials);
  }
  rotate(single_head(d_key), pass.positions, kernels::Rotation::inverse);
  copy_rows<T>(key_columns(memory_.d_latent, pass), d_key);
}

template <class Place, class T>
void MlaBlock<Place, T>::backward_input(Pass const& pass, Matrix<T const> dy, Matrix<T const>) {
  auto const rows = pass.all_rows();
  d_output_ = gather_or_copy<Place, T>(tensor_, pass, memory_.d_output, dy);
  output_.input_gradient(place_, all_rows_of(memory_.d_o, pass, output_.in()), d_output_);
  kernels::attention_backward<T>(place_, queries(memory_.d_q, rows), queries(memory_.d_k, rows),
                                 values(memory_.d_kv, rows), outputs(memory_.d_o, rows), outputs(memory_.o, rows),
                                 used_of(memory_.lse, rows * heads_), queries(memory_.q, rows),
                                 queries(memory_.k, rows), values(memory_.kv, rows),
                                 {pass.samples, pass.sequence, rope_.softmax_scale});
  rotate(queries(memory_.d_q, rows).slice_dim(config_.qk_nope_head_dim, config_.qk_rope_head_dim), pass.all_positions,
         kernels::Rotation::inverse);
  split_key_gradients(pass);

  auto const d_kv_latent = rows_of(memory_.d_kv_latent, pass, config_.kv_lora_rank);
  tensor_.template sum_slices<T, T>(place_, pass, d_kv_latent,
                                    sliced_products<T>(all_rows_of(memory_.d_kv, pass, kv_up_.out()), kv_up_));
  kernels::rmsnorm_backward_input<T>(place_, kv_columns(memory_.d_latent, pass), d_kv_latent,
                                     kv_columns(memory_.latent, pass), column(memory_.kv_rstd, pass), kv_norm_.gain);
  auto const d_normed = rows_of(memory_.d_normed, pass, config_.hidden_size);
  auto const sum = rows_of(memory_.sum, pass, config_.hidden_size);
  auto const d_latent = rows_of(memory_.d_latent, pass, latent_width_);
  auto const from_queries = sliced_products<T>(all_rows_of(memory_.d_q, pass, q_up_.out()), q_up_);
  if (low_rank_queries_) {
    auto const d_q_latent = rows_of(memory_.d_q_latent, pass, config_.q_lora_rank);
    tensor_.template sum_slices<T, T>(place_, pass, d_q_latent, from_queries);
    kernels::rmsnorm_backward_input<T>(place_, q_columns(memory_.d_latent, pass), d_q_latent,
                                       q_columns(memory_.latent, pass), column(memory_.q_rstd, pass), q_norm_.gain);
    input_gradient<Place, T>(place_, d_normed, sum, Start::zero, d_latent, down_);
  } else {
    tensor_.template sum_slices<T, float>(place_, pass, sum_target(d_normed, sum), from_queries);
    input_gradient<Place, T>(place_, d_normed, sum, Start::sum, d_latent, down_);
  }
}

template <class Place, class T>
void MlaBlock<Place, T>::backward_weight(Pass const& pass, Gradients const& gradients, Matrix<T const> x) {
  if (pass.samples == 0) return;
  output_.weight_gradient(place_, gradients.sliced, d_output_, all_rows_of(memory_.o, pass, output_.in()),
                          pass.sequence);
  weight_gradient<Place, T>(place_, gradients.sliced, kv_up_, all_rows_of(memory_.d_kv, pass, kv_up_.out()),
                            all_kv_latent_, pass.sequence);
  weight_gradient<Place, T>(place_, gradients.sliced, q_up_, all_rows_of(memory_.d_q, pass, q_up_.out()), all_q_input_,
                            pass.sequence);

  auto const& split = tensor_.split();
  auto const normed = rows_of(memory_.normed, pass, config_.hidden_size);
  auto const d_latent = rows_of(memory_.d_latent, pass, latent_width_);
  for_each_token_run(split, pass, [&](std::size_t slice, std::int64_t first, std::int64_t count) {
    weight_gradient<Place, T>(place_, gradients.replicated[slice], down_, d_latent.slice_rows(first, count),
                              normed.slice_rows(first, count), count);
  });
  if (low_rank_queries_) {
    gain_gradient<Place, T>(place_, split, pass, gradients, q_norm_,
                            rows_of(memory_.d_q_latent, pass, config_.q_lora_rank), q_columns(memory_.latent, pass),
                            column(memory_.q_rstd, pass));
  }
  gain_gradient<Place, T>(place_, split, pass, gradients, kv_norm_,
                          rows_of(memory_.d_kv_latent, pass, config_.kv_lora_rank), kv_columns(memory_.latent, pass),
                          column(memory_.kv_rstd, pass));
  gain_gradient<Place, T>(place_, split, pass, gradients, norm_, rows_of(memory_.d_normed, pass, config_.hidden_size),
                          x, column(memory_.rstd, pass));
}

template <class Place, class T>
void MlaBlock<Place, T>::backward_residual(Pass const& pass, Matrix<T> dx, Matrix<T const> x) {
  kernels::rmsnorm_backward_input<T>(place_, dx, rows_of(memory_.d_normed, pass, config_.hidden_size), x,
                                     column(memory_.rstd, pass), norm_.gain, kernels::Accumulate::yes);
}

template <class Place, class T>
std::vector<Activation<T>> MlaBlock<Place, T>::activations(Pass const& pass) const {
  return {{"normed input of attention", used(rows_of(memory_.normed, pass, config_.hidden_size))},
          {"latents of queries, keys and values", used(rows_of(memory_.latent, pass, latent_width_))},
          {"queries", used(all_rows_of(memory_.q, pass, q_up_.out()))},
          {"keys and values", used(all_rows_of(memory_.kv, pass, kv_up_.out()))},
          {"attention output", used(all_rows_of(memory_.o, pass, output_.in()))}};
}

template <class Place, class T>
void MlaBlock<Place, T>::decode(Pass const& pass, Matrix<T> y, Matrix<T const> x, KeyValueCache<T> cache) {
  project_inputs(pass, x);
  auto const position = pass.positions[0];
  cache.append(position, queries(memory_.k, 1), values(memory_.kv, 1));
  kernels::attention_decode<T>(place_, outputs(memory_.o, 1), queries(memory_.q, 1),
                               cache.first(cache.keys, position + 1), cache.first(cache.values, position + 1),
                               rope_.softmax_scale);
  project_output(pass, y, x);
}

}  // namespace isotrain
