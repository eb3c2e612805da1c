#pragma once

#include "kernels/permutation.h"
#include "kernels/reduce.h"
#include "kernels/rmsnorm.h"
#include "kernels/swiglu.h"
#include "lib/model/gated_unit-inl.h"
#include "lib/model/memory-inl.h"
#include "lib/model/moe_block.h"

namespace isotrain {

template <class Place, class T>
MoeBlock<Place, T>::Memory::Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options, int layer) {
  std::int64_t const rows = options.micro_batch * options.sequence;
  std::int64_t const d = config.hidden_size;
  std::int64_t const m = config.moe_intermediate_size;
  std::int64_t const experts = config.num_experts;
  std::int64_t const picks = rows * config.router.top_k;
  Keeper keep(map, Scratch::ffn, options.recompute, "layer " + std::to_string(layer) + " experts: ");
  rstd = keep.keep<float>("norm's rstd", rows, Recompute::selective);
  normed = keep.keep<T>("normed input", rows * d, Recompute::none);
  score = keep.keep<float>("router scores", rows * experts, Recompute::selective);
  expert = keep.keep<std::int32_t>("chosen experts", picks, Recompute::selective);
  weight = keep.keep<float>("gate weights", picks, Recompute::selective);
  row = keep.keep<std::int32_t>("routed rows", picks, Recompute::selective);
  order = keep.keep<std::int32_t>("order of choices", picks, Recompute::selective);
  offsets =
      keep.keep<std::int64_t>("runs of experts and samples", experts * options.micro_batch + 1, Recompute::selective);
  expert_offsets = keep.keep<std::int64_t>("runs of experts", experts + 1, Recompute::selective);
  routed = keep.keep<T>("routed input", picks * d, Recompute::none);
  gate_up = keep.keep<T>("gate and up", picks * 2 * m, Recompute::selective);
  hidden = keep.keep<T>("hidden values", picks * m, Recompute::none);
  output = keep.keep<T>("experts' outputs", picks * d, Recompute::none);
  if (config.num_shared_experts > 0) {
    shared = {keep, rows, config.shared_width()};
    shared_output = keep.scratch<T>(rows * d);
  }
  bool const adjacent = d * m % block_elements == 0;
  logits = keep.scratch<float>(rows * experts);
  d_hidden = keep.scratch<T>(picks * m);
  d_routed = keep.scratch<T>(picks * d);
  part = keep.scratch<float>(adjacent ? 0 : sum_elements<T>(picks * d));
  other_part = keep.scratch<float>(adjacent ? 0 : picks * d);
  d_weight = keep.scratch<float>(picks);
  d_score = keep.scratch<float>(rows * experts);
  d_normed = keep.scratch<T>(rows * d);
  normed_fp32 = keep.scratch<float>(sum_elements<T>(rows * d));
  sum = keep.scratch<float>(sum_elements<T>(rows * d));
  balance_loss = keep.scratch<double>(options.micro_batch);
}

template <class Place, class T>
MoeBlock<Place, T>::MoeBlock(Setup<Place, T> const& setup, int layer, Memory memory, std::span<float const> bias,
                             std::span<std::int64_t> loads)
    : place_(setup.place),
      memory_(memory),
      width_(setup.config.hidden_size),
      expert_width_(setup.config.moe_intermediate_size),
      recompute_(setup.options.recompute),
      slices_(setup.options.slices),
      epsilon_(static_cast<float>(setup.config.norm_epsilon)),
      shape_(setup.config.router),
      balance_(setup.options.balance),
      bias_(bias),
      loads_(loads),
      has_shared_(setup.config.num_shared_experts > 0) {
  LayerParameters<Place, T> const find(setup, layer);
  norm_ = find.norm("post_attention_layernorm");
  Parameter const& gate = find.parameter("mlp.gate");
  gate_ = {setup.weights.vector(gate), shape_.experts, width_};
  gate_offset_ = gate.offset;
  std::vector<Linear<T>> gates, ups, both, downs;
  for (int e = 0; e < shape_.experts; ++e) {
    std::string const name = "mlp.experts." + std::to_string(e);
    Stack<T> const stack = find.stack({name + ".gate_proj", name + ".up_proj"});
    gates.push_back(stack.parts()[0]);
    ups.push_back(stack.parts()[1]);
    both.push_back(stack.merged().front());
    downs.push_back(find.linear(name + ".down_proj"));
  }
  adjacent_ = both.front().out == 2 * expert_width_;
  if (adjacent_) {
    gate_up_ = ExpertWeights<T>(both);
  } else {
    gate_part_ = ExpertWeights<T>(gates);
    up_part_ = ExpertWeights<T>(ups);
  }
  down_ = ExpertWeights<T>(downs);
  if (has_shared_) shared_ = GatedUnit<Place, T>(setup, layer, "mlp.shared_experts", memory.shared);
}

template <class Place, class T>
Matrix<float const> MoeBlock<Place, T>::router_input(Pass const& pass) {
  if constexpr (std::is_same_v<T, float>) {
    return rows_of(memory_.normed, pass, width_);
  } else {
    kernels::convert(place_, used_of(memory_.normed_fp32, pass.rows() * width_), used(memory_.normed, pass, width_));
    return rows_of(memory_.normed_fp32, pass, width_);
  }
}

template <class Place, class T>
void MoeBlock<Place, T>::route(Pass const& pass) {
  auto const logits = rows_of(memory_.logits, pass, shape_.experts);
  kernels::matmul<float, float>(place_, logits, router_input(pass), gate_.transposed());
  kernels::router_forward(place_, rows_of(memory_.score, pass, shape_.experts), choices(memory_.expert, pass),
                          choices(memory_.weight, pass), logits, bias_, shape_);
  if (pass.count_loads) kernels::router_count(loads_, choices(memory_.expert, pass));
  auto const runs = used_of(memory_.offsets, std::int64_t{shape_.experts} * pass.samples + 1);
  kernels::permutation_sort(runs, choices(memory_.row, pass), choices(memory_.order, pass),
                            choices(memory_.expert, pass), shape_.experts, pass.sequence);
  for (std::int64_t e = 0; e <= shape_.experts; ++e) {
    memory_.expert_offsets[static_cast<std::size_t>(e)] = runs[static_cast<std::size_t>(e * pass.samples)];
  }
}

template <class Place, class T>
void MoeBlock<Place, T>::gather(Pass const& pass) {
  kernels::permutation_gather<T>(place_, routed_rows(memory_.routed, pass, width_),
                                 rows_of(memory_.normed, pass, width_), choices(memory_.row, pass));
}

template <class Place, class T>
void MoeBlock<Place, T>::activate_experts(Pass const& pass) {
  auto const routed = routed_rows(memory_.routed, pass, width_);
  auto const gate_up = routed_rows(memory_.gate_up, pass, 2 * expert_width_);
  if (adjacent_) {
    kernels::grouped_matmul<T, T>(place_, gate_up, routed, gate_up_.weights(), memory_.expert_offsets);
  } else {
    kernels::grouped_matmul<T, T>(place_, gate_up.slice_cols(0, expert_width_), routed, gate_part_.weights(),
                                  memory_.expert_offsets);
    kernels::grouped_matmul<T, T>(place_, gate_up.slice_cols(expert_width_, expert_width_), routed, up_part_.weights(),
                                  memory_.expert_offsets);
  }
  activate_experts_again(pass);
}

template <class Place, class T>
void MoeBlock<Place, T>::activate_experts_again(Pass const& pass) {
  auto const gate_up = routed_rows(memory_.gate_up, pass, 2 * expert_width_);
  kernels::swiglu_forward<T>(place_, routed_rows(memory_.hidden, pass, expert_width_),
                             gate_up.slice_cols(0, expert_width_), gate_up.slice_cols(expert_width_, expert_width_));
}

template <class Place, class T>
void MoeBlock<Place, T>::apply_experts(Pass const& pass) {
  kernels::grouped_matmul<T, T>(place_, routed_rows(memory_.output, pass, width_),
                                routed_rows(memory_.hidden, pass, expert_width_), down_.weights(),
                                memory_.expert_offsets);
}

template <class Place, class T>
void MoeBlock<Place, T>::activate(Pass const& pass, Matrix<T const> x) {
  auto const normed = rows_of(memory_.normed, pass, width_);
  kernels::rmsnorm_forward<T>(place_, normed, column(memory_.rstd, pass), x, norm_.gain, epsilon_);
  route(pass);
  gather(pass);
  activate_experts(pass);
  apply_experts(pass);
  if (has_shared_) shared_.activate(place_, pass, normed);
}

template <class Place, class T>
void MoeBlock<Place, T>::forward(Pass const& pass, Matrix<T> y, Matrix<T const> x) {
  activate(pass, x);
  Matrix<T> shared_output;
  if (has_shared_) {
    shared_output = rows_of(memory_.shared_output, pass, width_);
    shared_.output(place_, pass, shared_output);
  }
  kernels::permutation_combine<T>(place_, y, x, shared_output, routed_rows(memory_.output, pass, width_),
                                  choices(memory_.weight, pass), choices(memory_.row, pass),
                                  choices(memory_.order, pass));
}

template <class Place, class T>
void MoeBlock<Place, T>::recompute(Pass const& pass, Matrix<T const> x) {
  if (recompute_ == Recompute::full) activate(pass, x);
  if (recompute_ != Recompute::selective) return;
  kernels::rmsnorm_apply<T>(place_, rows_of(memory_.normed, pass, width_), column(memory_.rstd, pass), x, norm_.gain);
  gather(pass);
  activate_experts_again(pass);
  apply_experts(pass);
  if (has_shared_) shared_.activate_again(place_, pass);
}

template <class Place, class T>
void MoeBlock<Place, T>::backward_experts(Pass const& pass) {
  auto const d_output = routed_rows(memory_.output, pass, width_);
  auto const d_hidden = routed_rows(memory_.d_hidden, pass, expert_width_);
  kernels::grouped_matmul_input<T, T>(place_, d_hidden, d_output, down_.weights(), memory_.expert_offsets);
  auto const gate_up = routed_rows(memory_.gate_up, pass, 2 * expert_width_);
  auto const gate = gate_up.slice_cols(0, expert_width_);
  auto const up = gate_up.slice_cols(expert_width_, expert_width_);
  kernels::swiglu_backward<T>(place_, gate, up, d_hidden, gate, up);

  auto const d_routed = routed_rows(memory_.d_routed, pass, width_);
  if (adjacent_) {
    kernels::grouped_matmul_input<T, T>(place_, d_routed, gate_up, gate_up_.weights(), memory_.expert_offsets);
    return;
  }
  auto const part = sum_target(d_routed, routed_rows(memory_.part, pass, width_));
  auto const other = routed_rows(memory_.other_part, pass, width_);
  kernels::grouped_matmul_input<T, float>(place_, part, gate, gate_part_.weights(), memory_.expert_offsets);
  kernels::grouped_matmul_input<T, float>(place_, other, up, up_part_.weights(), memory_.expert_offsets);
  auto const count = static_cast<std::size_t>(d_routed.rows * d_routed.cols);
  kernels::add(place_, std::span(part.data, count), std::span<float const>(other.data, count));
  if constexpr (!std::is_same_v<T, float>) {
    kernels::convert(place_, std::span(d_routed.data, count), std::span<float const>(part.data, count));
  }
}

template <class Place, class T>
void MoeBlock<Place, T>::backward_router(Pass const& pass) {
  bool const balanced = balance_.expert_alpha != 0 || balance_.device_alpha != 0 || balance_.comm_alpha != 0;
  auto const score = rows_of(memory_.score, pass, shape_.experts);
  Matrix<float> d_score;
  if (balanced) {
    d_score = rows_of(memory_.d_score, pass, shape_.experts);
    auto const loss = used_of(memory_.balance_loss, pass.samples);
    kernels::balance_loss(place_, loss, d_score, score, choices(memory_.expert, pass), shape_, balance_, pass.sequence,
                          pass.sequence_scale);
    for (std::size_t s = 0; s < pass.balance_loss.size(); ++s) pass.balance_loss[s] += loss[s];
  }
  kernels::router_backward(place_, rows_of(memory_.logits, pass, shape_.experts), choices(memory_.d_weight, pass),
                           d_score, score, choices(memory_.expert, pass), choices(memory_.weight, pass), shape_);
}

template <class Place, class T>
void MoeBlock<Place, T>::backward_input(Pass const& pass, Matrix<T const> dy, Matrix<T const>) {
  auto const output = routed_rows(memory_.output, pass, width_);
  kernels::permutation_combine_backward<T>(place_, output, choices(memory_.d_weight, pass), dy, output,
                                           choices(memory_.weight, pass), choices(memory_.row, pass));
  backward_experts(pass);
  backward_router(pass);

  // router, then shared experts, in fp32; rounded; then the routed experts
  auto const d_normed = rows_of(memory_.d_normed, pass, width_);
  auto const sum = rows_of(memory_.sum, pass, width_);
  kernels::matmul<float, float>(place_, sum_target(d_normed, sum), rows_of(memory_.logits, pass, shape_.experts),
                                gate_);
  if (has_shared_) {
    auto const from_shared = shared_.backward_input(place_, pass, dy);
    input_gradient<Place, T>(place_, d_normed, sum, SumFrom::there, {from_shared});
  } else {
    input_gradient<Place, T>(place_, d_normed, sum, SumFrom::there, {});
  }
  kernels::permutation_gather_backward<T>(place_, d_normed, routed_rows(memory_.d_routed, pass, width_),
                                          choices(memory_.row, pass), choices(memory_.order, pass),
                                          kernels::Accumulate::yes);
}

template <class Place, class T>
void MoeBlock<Place, T>::backward_weight(Pass const& pass, std::span<float> gradients, Matrix<T const> dy,
                                         Matrix<T const> x) {
  auto const runs = used_of(memory_.offsets, std::int64_t{shape_.experts} * pass.samples + 1);
  auto const normed = rows_of(memory_.normed, pass, width_);
  auto const routed = routed_rows(memory_.routed, pass, width_);
  auto const gate_up = routed_rows(memory_.gate_up, pass, 2 * expert_width_);
  kernels::grouped_matmul_weight<T>(place_, down_.gradients(gradients), routed_rows(memory_.output, pass, width_),
                                    routed_rows(memory_.hidden, pass, expert_width_), runs, pass.samples);
  if (adjacent_) {
    kernels::grouped_matmul_weight<T>(place_, gate_up_.gradients(gradients), gate_up, routed, runs, pass.samples);
  } else {
    kernels::grouped_matmul_weight<T>(place_, gate_part_.gradients(gradients), gate_up.slice_cols(0, expert_width_),
                                      routed, runs, pass.samples);
    kernels::grouped_matmul_weight<T>(place_, up_part_.gradients(gradients),
                                      gate_up.slice_cols(expert_width_, expert_width_), routed, runs, pass.samples);
  }
  if (has_shared_) shared_.backward_weight(place_, pass, gradients, dy, normed);
  kernels::matmul<float, float>(place_, {gradients.data() + gate_offset_, shape_.experts, width_},
                                rows_of(memory_.logits, pass, shape_.experts).transposed(), router_input(pass),
                                kernels::Accumulate::yes);
  kernels::rmsnorm_backward_gain<T>(place_, norm_.gradient(gradients), rows_of(memory_.d_normed, pass, width_), x,
                                    column(memory_.rstd, pass), pass.sequence, slices_);
}

template <class Place, class T>
void MoeBlock<Place, T>::backward_residual(Pass const& pass, Matrix<T> dx, Matrix<T const> x) {
  kernels::rmsnorm_backward_input<T>(place_, dx, rows_of(memory_.d_normed, pass, width_), x, column(memory_.rstd, pass),
                                     norm_.gain, kernels::Accumulate::yes);
}

template <class Place, class T>
std::vector<Activation<T>> MoeBlock<Place, T>::activations(Pass const& pass) const {
  auto const picks = pass.rows() * shape_.top_k;
  std::vector<Activation<T>> list{{"normed input of experts", used(memory_.normed, pass, width_)},
                                  {"experts' gate and up", used_of(memory_.gate_up, picks * 2 * expert_width_)},
                                  {"experts' outputs", used_of(memory_.output, picks * width_)}};
  if (has_shared_) list.push_back({"shared experts' output", used(memory_.shared_output, pass, width_)});
  return list;
}

}  // namespace isotrain
