#pragma once

#include "kernels/attention.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "lib/model/gqa_block.h"
#include "lib/model/linear-inl.h"
#include "lib/model/memory-inl.h"

namespace isotrain {

template <class Place, class T>
GqaBlock<Place, T>::Memory::Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options, int layer) {
  std::int64_t const rows = options.micro_batch * options.sequence;
  std::int64_t const q_width = std::int64_t{config.num_heads} * config.head_dim;
  std::int64_t const qkv_width = q_width + 2 * std::int64_t{config.num_kv_heads} * config.head_dim;
  Keeper keep(map, Scratch::attention, options.recompute, "layer " + std::to_string(layer) + " attention: ");
  rstd = keep.keep<float>("norm's rstd", rows, Recompute::selective);
  normed = keep.keep<T>("normed input", rows * config.hidden_size, Recompute::none);
  qkv = keep.keep<T>("queries, keys, values", rows * qkv_width, Recompute::selective);
  o = keep.keep<T>("attention output", rows * q_width, Recompute::selective);
  lse = keep.keep<float>("log-sum-exp", rows * config.num_heads, Recompute::selective);
  d_o = keep.scratch<T>(rows * q_width);
  d_qkv = keep.scratch<T>(rows * qkv_width);
  d_normed = keep.scratch<T>(rows * config.hidden_size);
  sum = keep.scratch<float>(sum_elements<T>(rows * config.hidden_size));
}

template <class Place, class T>
GqaBlock<Place, T>::GqaBlock(Setup<Place, T> const& setup, int layer, Memory memory)
    : place_(setup.place),
      memory_(memory),
      rope_(setup.rope),
      width_(setup.config.hidden_size),
      heads_(setup.config.num_heads),
      kv_heads_(setup.config.num_kv_heads),
      head_dim_(setup.config.head_dim),
      recompute_(setup.options.recompute),
      slices_(setup.options.slices),
      epsilon_(static_cast<float>(setup.config.norm_epsilon)) {
  LayerParameters<Place, T> const find(setup, layer);
  norm_ = find.norm("input_layernorm");
  qkv_ = find.stack({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"});
  output_ = find.linear("self_attn.o_proj");
}

template <class Place, class T>
Heads<T> GqaBlock<Place, T>::heads(std::span<T> qkv, std::int64_t rows, int first, int count) const {
  return {qkv.data() + std::int64_t{first} * head_dim_,     rows,     count, head_dim_,
          std::int64_t{heads_ + 2 * kv_heads_} * head_dim_, head_dim_};
}

template <class Place, class T>
void GqaBlock<Place, T>::project_inputs(Pass const& pass, Matrix<T const> x) {
  auto const normed = rows_of(memory_.normed, pass, width_);
  kernels::rmsnorm_forward<T>(place_, normed, column(memory_.rstd, pass), x, norm_.gain, epsilon_);
  project<Place, T>(place_, rows_of(memory_.qkv, pass, qkv_.out()), normed, qkv_);
  kernels::rope<T>(place_, heads(memory_.qkv, pass.rows(), 0, heads_ + kv_heads_), rope_.table, pass.positions,
                   kernels::RopePairs::half_split, kernels::Rotation::forward);
}

template <class Place, class T>
void GqaBlock<Place, T>::project_output(Matrix<T> y, Matrix<T const> x) {
  kernels::matmul<T, T>(place_, y, Matrix<T const>(memory_.o.data(), x.rows, output_.in), output_.matrix().transposed(),
                        kernels::Accumulate::no, {.slices = slices_}, x);
}

template <class Place, class T>
void GqaBlock<Place, T>::forward(Pass const& pass, Matrix<T> y, Matrix<T const> x) {
  project_inputs(pass, x);
  auto const rows = pass.rows();
  kernels::attention_forward<T>(
      place_, {memory_.o.data(), rows, heads_, head_dim_, output_.in, head_dim_}, used_of(memory_.lse, rows * heads_),
      heads(memory_.qkv, rows, 0, heads_), heads(memory_.qkv, rows, heads_, kv_heads_),
      heads(memory_.qkv, rows, heads_ + kv_heads_, kv_heads_), {pass.samples, pass.sequence, rope_.softmax_scale});
  project_output(y, x);
}

template <class Place, class T>
void GqaBlock<Place, T>::recompute(Pass const& pass, Matrix<T const> x) {
  if (recompute_ == Recompute::none) return;
  kernels::rmsnorm_apply<T>(place_, rows_of(memory_.normed, pass, width_), column(memory_.rstd, pass), x, norm_.gain);
}

template <class Place, class T>
void GqaBlock<Place, T>::backward_input(Pass const& pass, Matrix<T const> dy, Matrix<T const>) {
  auto const rows = pass.rows();
  kernels::matmul<T, T>(place_, rows_of(memory_.d_o, pass, output_.in), dy, output_.matrix());
  Heads<T const> const o{memory_.o.data(), rows, heads_, head_dim_, output_.in, head_dim_};
  Heads<T const> const d_o{memory_.d_o.data(), rows, heads_, head_dim_, output_.in, head_dim_};
  kernels::attention_backward<T>(
      place_, heads(memory_.d_qkv, rows, 0, heads_), heads(memory_.d_qkv, rows, heads_, kv_heads_),
      heads(memory_.d_qkv, rows, heads_ + kv_heads_, kv_heads_), d_o, o, used_of(memory_.lse, rows * heads_),
      heads(memory_.qkv, rows, 0, heads_), heads(memory_.qkv, rows, heads_, kv_heads_),
      heads(memory_.qkv, rows, heads_ + kv_heads_, kv_heads_), {pass.samples, pass.sequence, rope_.softmax_scale});
  kernels::rope<T>(place_, heads(memory_.d_qkv, rows, 0, heads_ + kv_heads_), rope_.table, pass.positions,
                   kernels::RopePairs::half_split, kernels::Rotation::inverse);
  input_gradient<Place, T>(place_, rows_of(memory_.d_normed, pass, width_), rows_of(memory_.sum, pass, width_),
                           SumFrom::zero, {{rows_of(memory_.d_qkv, pass, qkv_.out()), &qkv_, slices_}});
}

template <class Place, class T>
void GqaBlock<Place, T>::backward_weight(Pass const& pass, std::span<float> gradients, Matrix<T const> dy,
                                         Matrix<T const> x) {
  kernels::matmul<T, float>(place_, output_.gradient(gradients), dy.transposed(), rows_of(memory_.o, pass, output_.in),
                            kernels::Accumulate::yes, {.slices = 1, .leaf = pass.sequence});
  weight_gradient<Place, T>(place_, gradients, qkv_, rows_of(memory_.d_qkv, pass, qkv_.out()),
                            rows_of(memory_.normed, pass, width_), pass.sequence);
  kernels::rmsnorm_backward_gain<T>(place_, norm_.gradient(gradients), rows_of(memory_.d_normed, pass, width_), x,
                                    column(memory_.rstd, pass), pass.sequence, slices_);
}

template <class Place, class T>
void GqaBlock<Place, T>::backward_residual(Pass const& pass, Matrix<T> dx, Matrix<T const> x) {
  kernels::rmsnorm_backward_input<T>(place_, dx, rows_of(memory_.d_normed, pass, width_), x, column(memory_.rstd, pass),
                                     norm_.gain, kernels::Accumulate::yes);
}

template <class Place, class T>
std::vector<Activation<T>> GqaBlock<Place, T>::activations(Pass const& pass) const {
  return {{"normed input of attention", used(memory_.normed, pass, width_)},
          {"queries, keys and values", used(memory_.qkv, pass, qkv_.out())},
          {"attention output", used(memory_.o, pass, output_.in)}};
}

template <class Place, class T>
void GqaBlock<Place, T>::decode(Pass const& pass, Matrix<T> y, Matrix<T const> x, KeyValueCache<T> cache) {
  project_inputs(pass, x);
  auto const position = pass.positions[0];
  cache.append(position, heads(memory_.qkv, 1, heads_, kv_heads_),
               heads(memory_.qkv, 1, heads_ + kv_heads_, kv_heads_));
  kernels::attention_decode<T>(place_, {memory_.o.data(), 1, heads_, head_dim_, output_.in, head_dim_},
                               heads(memory_.qkv, 1, 0, heads_), cache.first(cache.keys, position + 1),
                               cache.first(cache.values, position + 1), rope_.softmax_scale);
  project_output(y, x);
}

}  // namespace isotrain
