#pragma once

#include "kernels/attention.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "lib/model/gqa_block.h"
#include "lib/model/linear-inl.h"
#include "lib/model/memory-inl.h"

namespace isotrain {

template <class Place, class T>
GqaBlock<Place, T>::Memory::Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options,
                                   PartSizes const& sizes, int layer) {
  std::int64_t const d = config.hidden_size;
  std::int64_t const heads = config.num_heads / sizes.tensor_ranks;
  std::int64_t const kv_heads = config.num_kv_heads / sizes.tensor_ranks;
  std::int64_t const q_elements = sizes.all_rows * heads * config.head_dim;
  std::int64_t const qkv_elements = q_elements + 2 * sizes.all_rows * kv_heads * config.head_dim;
  Keeper keep(map, Scratch::attention, options, "layer " + std::to_string(layer) + " attention: ");
  rstd = keep.keep<float>("norm's rstd", sizes.rows, Recompute::selective);
  normed = keep.keep<T>("normed input", sizes.rows * d, Recompute::none);
  all_normed =
      keep.keep<T>("normed input of all tensor ranks", sizes.split() ? sizes.all_rows * d : 0, Recompute::none);
  qkv = keep.keep<T>("queries, keys, values", qkv_elements, Recompute::selective);
  o = keep.keep<T>("attention output", q_elements, Recompute::selective);
  lse = keep.keep<float>("log-sum-exp", sizes.all_rows * heads, Recompute::selective);
  d_output = keep.output_gradient<T>(sizes, d);
  d_o = keep.scratch<T>(q_elements);
  d_qkv = keep.for_weights<T>("gradient of queries, keys, values", qkv_elements);
  d_normed = keep.for_weights<T>("gradient of normed input", sizes.rows * d);
}

template <class Place, class T>
GqaBlock<Place, T>::GqaBlock(Setup<Place, T> const& setup, int layer, Memory memory)
    : place_(setup.place),
      tensor_(setup.tensor),
      memory_(memory),
      rope_(setup.rope),
      width_(setup.config.hidden_size),
      heads_(setup.config.num_heads / setup.part.tensor_ranks()),
      kv_heads_(setup.config.num_kv_heads / setup.part.tensor_ranks()),
      head_dim_(setup.config.head_dim),
      recompute_(setup.options.recompute),
      epsilon_(static_cast<float>(setup.config.norm_epsilon)) {
  LayerParameters<Place, T> const find(setup, layer);
  norm_ = find.norm("input_layernorm");
  qkv_ = find.stack({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"});
  output_ = find.sliced_input("self_attn.o_proj");
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
  all_normed_ = tensor_.template gather<T>(pass, memory_.all_normed, normed);
  project<Place, T>(place_, all_rows_of(memory_.qkv, pass, qkv_.out()), all_normed_, qkv_);
  kernels::rope<T>(place_, heads(memory_.qkv, pass.all_rows(), 0, heads_ + kv_heads_), rope_.table, pass.all_positions,
                   kernels::RopePairs::half_split, kernels::Rotation::forward);
}

template <class Place, class T>
void GqaBlock<Place, T>::project_output(Pass const& pass, Matrix<T> y, Matrix<T const> x) {
  tensor_.template sum_slices<T, T>(place_, pass, y, output_.products(all_rows_of(memory_.o, pass, output_.in())), x);
}

template <class Place, class T>
void GqaBlock<Place, T>::forward(Pass const& pass, Matrix<T> y, Matrix<T const> x) {
  project_inputs(pass, x);
  auto const rows = pass.all_rows();
  kernels::attention_forward<T>(
      place_, {memory_.o.data(), rows, heads_, head_dim_, output_.in(), head_dim_}, used_of(memory_.lse, rows * heads_),
      heads(memory_.qkv, rows, 0, heads_), heads(memory_.qkv, rows, heads_, kv_heads_),
      heads(memory_.qkv, rows, heads_ + kv_heads_, kv_heads_), {pass.samples, pass.sequence, rope_.softmax_scale});
  project_output(pass, y, x);
}

template <class Place, class T>
void GqaBlock<Place, T>::recompute(Pass const& pass, Matrix<T const> x) {
  if (recompute_ == Recompute::none) return;
  auto const normed = rows_of(memory_.normed, pass, width_);
  kernels::rmsnorm_apply<T>(place_, normed, column(memory_.rstd, pass), x, norm_.gain);
  all_normed_ = tensor_.template gather<T>(pass, memory_.all_normed, normed);
}

template <class Place, class T>
void GqaBlock<Place, T>::backward_input(Pass const& pass, Matrix<T const> dy, Matrix<T const>) {
  auto const rows = pass.all_rows();
  d_output_ = gather_or_copy<Place, T>(tensor_, pass, memory_.d_output, dy);
  output_.input_gradient(place_, all_rows_of(memory_.d_o, pass, output_.in()), d_output_);
  Heads<T const> const o{memory_.o.data(), rows, heads_, head_dim_, output_.in(), head_dim_};
  Heads<T const> const d_o{memory_.d_o.data(), rows, heads_, head_dim_, output_.in(), head_dim_};
  kernels::attention_backward<T>(
      place_, heads(memory_.d_qkv, rows, 0, heads_), heads(memory_.d_qkv, rows, heads_, kv_heads_),
      heads(memory_.d_qkv, rows, heads_ + kv_heads_, kv_heads_), d_o, o, used_of(memory_.lse, rows * heads_),
      heads(memory_.qkv, rows, 0, heads_), heads(memory_.qkv, rows, heads_, kv_heads_),
      heads(memory_.qkv, rows, heads_ + kv_heads_, kv_heads_), {pass.samples, pass.sequence, rope_.softmax_scale});
  kernels::rope<T>(place_, heads(memory_.d_qkv, rows, 0, heads_ + kv_heads_), rope_.table, pass.all_positions,
                   kernels::RopePairs::half_split, kernels::Rotation::inverse);
  tensor_.template sum_slices<T, T>(place_, pass, rows_of(memory_.d_normed, pass, width_),
                                    sliced_products<T>(all_rows_of(memory_.d_qkv, pass, qkv_.out()), qkv_));
}

template <class Place, class T>
void GqaBlock<Place, T>::backward_weight(Pass const& pass, Gradients const& gradients, Matrix<T const> x) {
  if (pass.samples == 0) return;
  output_.weight_gradient(place_, gradients.sliced, d_output_, all_rows_of(memory_.o, pass, output_.in()),
                          pass.sequence);
  weight_gradient<Place, T>(place_, gradients.sliced, qkv_, all_rows_of(memory_.d_qkv, pass, qkv_.out()), all_normed_,
                            pass.sequence);
  gain_gradient<Place, T>(place_, tensor_.split(), pass, gradients, norm_, rows_of(memory_.d_normed, pass, width_), x,
                          column(memory_.rstd, pass));
}

template <class Place, class T>
void GqaBlock<Place, T>::backward_residual(Pass const& pass, Matrix<T> dx, Matrix<T const> x) {
  kernels::rmsnorm_backward_input<T>(place_, dx, rows_of(memory_.d_normed, pass, width_), x, column(memory_.rstd, pass),
                                     norm_.gain, kernels::Accumulate::yes);
}

template <class Place, class T>
std::vector<Activation<T>> GqaBlock<Place, T>::activations(Pass const& pass) const {
  return {{"normed input of attention", used(rows_of(memory_.normed, pass, width_))},
          {"queries, keys and values", used(all_rows_of(memory_.qkv, pass, qkv_.out()))},
          {"attention output", used(all_rows_of(memory_.o, pass, output_.in()))}};
}

template <class Place, class T>
void GqaBlock<Place, T>::decode(Pass const& pass, Matrix<T> y, Matrix<T const> x, KeyValueCache<T> cache) {
  project_inputs(pass, x);
  auto const position = pass.positions[0];
  cache.append(position, heads(memory_.qkv, 1, heads_, kv_heads_),
               heads(memory_.qkv, 1, heads_ + kv_heads_, kv_heads_));
  kernels::attention_decode<T>(place_, {memory_.o.data(), 1, heads_, head_dim_, output_.in(), head_dim_},
                               heads(memory_.qkv, 1, 0, heads_), cache.first(cache.keys, position + 1),
                               cache.first(cache.values, position + 1), rope_.softmax_scale);
  project_output(pass, y, x);
}

}  // namespace isotrain
