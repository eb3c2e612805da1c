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
MoeBlock<Place, T>::Memory::Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options,
                                   PartSizes const& sizes, int layer) {
  std::int64_t const rows = sizes.rows, all_rows = sizes.all_rows;
  std::int64_t const picks = sizes.routed_rows, arrivals = sizes.received_rows;
  std::int64_t const d = config.hidden_size;
  std::int64_t const m = config.moe_intermediate_size;
  std::int64_t const experts = config.num_experts;
  std::int64_t const exchanged = sizes.grouped ? arrivals * d : 0;
  Keeper keep(map, Scratch::ffn, options, "layer " + std::to_string(layer) + " experts: ");
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
  if (sizes.grouped) {
    routed = keep.scratch<T>(picks * d);
  } else {
    routed = keep.keep<T>("routed input", picks * d, Recompute::none);
  }
  received = keep.keep<T>("received input", exchanged, Recompute::none);
  gate_up = keep.keep<T>("gate and up", arrivals * 2 * m, Recompute::selective);
  hidden = keep.keep<T>("hidden values", arrivals * m, Recompute::none);
  output = keep.keep<T>("experts' outputs", picks * d, Recompute::none);
  if (config.num_shared_experts > 0) {
    all_normed = keep.keep<T>("normed input of all tensor ranks", sizes.split() ? all_rows * d : 0, Recompute::none);
    shared = {keep, all_rows, config.shared_width() / sizes.tensor_ranks};
    shared_output = keep.scratch<T>(rows * d);
    d_output = keep.output_gradient<T>(sizes, d);
  }
  bool const adjacent = d * m % block_elements == 0;
  logits = keep.for_weights<float>("router logits", rows * experts);
  received_output = keep.scratch<T>(exchanged);
  d_received_output = keep.for_weights<T>("gradient of received output", exchanged);
  d_received = keep.scratch<T>(exchanged);
  transit = keep.scratch<T>(exchanged);
  d_hidden = keep.scratch<T>(arrivals * m);
  d_routed = keep.scratch<T>(picks * d);
  part = keep.scratch<float>(adjacent ? 0 : sum_elements<T>(arrivals * d));
  other_part = keep.scratch<float>(adjacent ? 0 : arrivals * d);
  d_weight = keep.scratch<float>(picks);
  all_score = keep.scratch<float>(sizes.split() ? all_rows * experts : 0);
  all_expert = keep.scratch<std::int32_t>(sizes.split() ? all_rows * config.router.top_k : 0);
  d_score = keep.scratch<float>(all_rows * experts);
  d_normed = keep.for_weights<T>("gradient of normed input", rows * d);
  normed_fp32 = keep.scratch<float>(sum_elements<T>(rows * d));
  sum = keep.scratch<float>(sum_elements<T>(rows * d));
  balance_loss = keep.scratch<double>(options.micro_batch);
}

template <class Place, class T>
MoeBlock<Place, T>::Received::Received(Memory const& m, bool grouped)
    : input(grouped ? m.received : m.routed),
      output(grouped ? m.received_output : m.output),
      d_output(grouped ? m.d_received_output : m.output),
      d_input(grouped ? m.d_received : m.d_routed),
      transit(m.transit),
      gate_up(m.gate_up),
      hidden(m.hidden),
      d_hidden(m.d_hidden),
      part(m.part),
      other_part(m.other_part) {}

template <class Place, class T>
MoeBlock<Place, T>::MoeBlock(Setup<Place, T> const& setup, int layer, Memory memory, std::span<float const> bias,
                             std::span<std::int64_t> loads)
    : place_(setup.place),
      tensor_(setup.tensor),
      exchange_(setup.experts),
      memory_(memory),
      received_(memory, setup.part.expert_ranks() > 1),
      grouped_(setup.part.expert_ranks() > 1),
      width_(setup.config.hidden_size),
      expert_width_(setup.config.moe_intermediate_size),
      recompute_(setup.options.recompute),
      epsilon_(static_cast<float>(setup.config.norm_epsilon)),
      shape_(setup.config.router),
      balance_(setup.options.balance),
      bias_(bias),
      loads_(loads),
      has_shared_(setup.config.num_shared_experts > 0) {
  LayerParameters<Place, T> const find(setup, layer);
  norm_ = find.norm("post_attention_layernorm");
  auto const& gate = setup.shard[find.full("mlp.gate")].front();
  gate_ = {setup.weights.vector(gate.offset), shape_.experts, width_};
  gate_offset_ = gradient_offset(setup.shard, gate);
  std::vector<Linear<T>> gates, ups, both, downs;
  IndexRange const experts = exchange_.experts();
  adjacent_ = width_ * expert_width_ % block_elements == 0;
  for (auto e = experts.begin; e < experts.end; ++e) {
    std::string const name = "mlp.experts." + std::to_string(e);
    Stack<T> const stack = find.stack({name + ".gate_proj", name + ".up_proj"});
    gates.push_back(stack.pieces()[0]);
    ups.push_back(stack.pieces()[1]);
    both.push_back(stack.merged().front());
    downs.push_back(find.linear(name + ".down_proj").front());
  }
  int const sources = exchange_.sources();
  if (adjacent_) {
    gate_up_ = ExpertWeights<T>(both, sources);
  } else {
    gate_part_ = ExpertWeights<T>(gates, sources);
    up_part_ = ExpertWeights<T>(ups, sources);
  }
  down_ = ExpertWeights<T>(downs, sources);
  if (has_shared_) shared_ = GatedUnit<Place, T>(setup, layer, "mlp.shared_experts", memory.shared);
}

template <class Place, class T>
std::int64_t MoeBlock<Place, T>::num_received(Pass const& pass) const {
  return grouped_ ? route_->received_rows() : pass.rows() * shape_.top_k;
}

template <class Place, class T>
std::span<std::int64_t const> MoeBlock<Place, T>::expert_offsets() const {
  return grouped_ ? route_->expert_offsets() : memory_.expert_offsets;
}

template <class Place, class T>
Matrix<float const> MoeBlock<Place, T>::router_input(Pass const& pass) {
  auto const normed = rows_of(memory_.normed, pass, width_);
  if constexpr (std::is_same_v<T, float>) {
    return normed;
  } else {
    kernels::convert(place_, used_of(memory_.normed_fp32, pass.rows() * width_), used(normed));
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
  if (pass.own > 0) {
    kernels::permutation_sort(runs, choices(memory_.row, pass), choices(memory_.order, pass),
                              choices(memory_.expert, pass), shape_.experts, pass.own);
  } else {
    // The sequence is too short for this tensor rank, but the samples are there.
    std::ranges::fill(runs, 0);
  }
  for (std::int64_t e = 0; e <= shape_.experts; ++e) {
    memory_.expert_offsets[static_cast<std::size_t>(e)] = runs[static_cast<std::size_t>(e * pass.samples)];
  }
  if (grouped_) route_ = exchange_.route(runs, pass.samples);
}

template <class Place, class T>
void MoeBlock<Place, T>::send(Pass const& pass) {
  auto const routed = routed_rows(memory_.routed, pass, width_);
  kernels::permutation_gather<T>(place_, routed, rows_of(memory_.normed, pass, width_), choices(memory_.row, pass));
  if (!grouped_) return;
  exchange_.template dispatch<T>(place_, *route_, received_.input.rows(num_received(pass), width_), routed,
                                 received_.transit.elements(route_->workspace_rows() * width_));
}

template <class Place, class T>
void MoeBlock<Place, T>::activate_experts(Pass const& pass) {
  auto const rows = num_received(pass);
  auto const input = received_.input.rows(rows, width_);
  auto const gate_up = received_.gate_up.rows(rows, 2 * expert_width_);
  if (adjacent_) {
    kernels::grouped_matmul<T, T>(place_, gate_up, input, gate_up_.weights(), expert_offsets());
  } else {
    kernels::grouped_matmul<T, T>(place_, gate_up.slice_cols(0, expert_width_), input, gate_part_.weights(),
                                  expert_offsets());
    kernels::grouped_matmul<T, T>(place_, gate_up.slice_cols(expert_width_, expert_width_), input, up_part_.weights(),
                                  expert_offsets());
  }
  activate_experts_again(pass);
}

template <class Place, class T>
void MoeBlock<Place, T>::activate_experts_again(Pass const& pass) {
  auto const rows = num_received(pass);
  auto const gate_up = received_.gate_up.rows(rows, 2 * expert_width_);
  kernels::swiglu_forward<T>(place_, received_.hidden.rows(rows, expert_width_), gate_up.slice_cols(0, expert_width_),
                             gate_up.slice_cols(expert_width_, expert_width_));
}

template <class Place, class T>
void MoeBlock<Place, T>::apply_experts(Pass const& pass) {
  auto const rows = num_received(pass);
  auto const output = received_.output.rows(rows, width_);
  kernels::grouped_matmul<T, T>(place_, output, received_.hidden.rows(rows, expert_width_), down_.weights(),
                                expert_offsets());
  if (!grouped_) return;
  exchange_.template collect<T>(place_, *route_, routed_rows(memory_.output, pass, width_), output,
                                received_.transit.elements(route_->workspace_rows() * width_));
}

template <class Place, class T>
void MoeBlock<Place, T>::activate(Pass const& pass, Matrix<T const> x) {
  auto const normed = rows_of(memory_.normed, pass, width_);
  kernels::rmsnorm_forward<T>(place_, normed, column(memory_.rstd, pass), x, norm_.gain, epsilon_);
  route(pass);
  send(pass);
  activate_experts(pass);
  apply_experts(pass);
  if (!has_shared_) return;
  all_normed_ = tensor_.template gather<T>(pass, memory_.all_normed, normed);
  shared_.activate(place_, pass, all_normed_);
}

template <class Place, class T>
void MoeBlock<Place, T>::forward(Pass const& pass, Matrix<T> y, Matrix<T const> x) {
  activate(pass, x);
  Matrix<T> shared_output;
  if (has_shared_) {
    shared_output = rows_of(memory_.shared_output, pass, width_);
    tensor_.template sum_slices<T, T>(place_, pass, shared_output, shared_.output(pass));
  }
  kernels::permutation_combine<T>(place_, y, x, shared_output, routed_rows(memory_.output, pass, width_),
                                  choices(memory_.weight, pass), choices(memory_.row, pass),
                                  choices(memory_.order, pass));
}

template <class Place, class T>
void MoeBlock<Place, T>::recompute(Pass const& pass, Matrix<T const> x) {
  if (recompute_ == Recompute::full) activate(pass, x);
  if (recompute_ != Recompute::selective) return;
  auto const normed = rows_of(memory_.normed, pass, width_);
  kernels::rmsnorm_apply<T>(place_, normed, column(memory_.rstd, pass), x, norm_.gain);
  send(pass);
  activate_experts_again(pass);
  apply_experts(pass);
  if (!has_shared_) return;
  all_normed_ = tensor_.template gather<T>(pass, memory_.all_normed, normed);
  shared_.activate_again(place_, pass);
}

template <class Place, class T>
void MoeBlock<Place, T>::backward_experts(Pass const& pass) {
  auto const rows = num_received(pass);
  auto const d_output = received_.d_output.rows(rows, width_);
  auto const d_hidden = received_.d_hidden.rows(rows, expert_width_);
  kernels::grouped_matmul_input<T, T>(place_, d_hidden, d_output, down_.weights(), expert_offsets());
  auto const gate_up = received_.gate_up.rows(rows, 2 * expert_width_);
  auto const gate = gate_up.slice_cols(0, expert_width_);
  auto const up = gate_up.slice_cols(expert_width_, expert_width_);
  kernels::swiglu_backward<T>(place_, gate, up, d_hidden, gate, up);

  auto const d_input = received_.d_input.rows(rows, width_);
  if (adjacent_) {
    kernels::grouped_matmul_input<T, T>(place_, d_input, gate_up, gate_up_.weights(), expert_offsets());
    return;
  }
  Matrix<float> part;
  if constexpr (std::is_same_v<T, float>) {
    part = d_input;
  } else {
    part = received_.part.rows(rows, width_);
  }
  auto const other = received_.other_part.rows(rows, width_);
  kernels::grouped_matmul_input<T, float>(place_, part, gate, gate_part_.weights(), expert_offsets());
  kernels::grouped_matmul_input<T, float>(place_, other, up, up_part_.weights(), expert_offsets());
  auto const count = static_cast<std::size_t>(rows * width_);
  kernels::add(place_, std::span(part.data, count), std::span<float const>(other.data, count));
  round_sum<Place, T>(place_, d_input, part);
}

/// The balancing losses look at whole samples: every tensor rank works them out from the scores of all.
template <class Place, class T>
void MoeBlock<Place, T>::backward_balance(Pass const& pass, Matrix<float>& d_score) {
  auto const score =
      tensor_.template gather<float>(pass, memory_.all_score, rows_of(memory_.score, pass, shape_.experts));
  auto const expert = tensor_.template gather<std::int32_t>(pass, memory_.all_expert, choices(memory_.expert, pass));
  auto const all = all_rows_of(memory_.d_score, pass, shape_.experts);
  auto const loss = used_of(memory_.balance_loss, pass.samples);
  kernels::balance_loss(place_, loss, all, score, expert, shape_, balance_, pass.sequence, pass.sequence_scale);
  if (!pass.balance_loss.empty()) std::copy(loss.begin(), loss.end(), pass.balance_loss.begin());
  d_score = rows_of(memory_.d_score, pass, shape_.experts);
  std::int64_t const first = tensor_.split().positions().begin;
  for (int sample = 0; sample < pass.samples && !tensor_.alone(); ++sample) {
    Matrix<float const> const own = all.slice_rows(sample * pass.sequence + first, pass.own);
    std::copy_n(own.data, own.rows * own.cols, d_score.row(sample * pass.own));
  }
}

template <class Place, class T>
void MoeBlock<Place, T>::backward_router(Pass const& pass) {
  bool const balanced = balance_.expert_alpha != 0 || balance_.device_alpha != 0 || balance_.comm_alpha != 0;
  Matrix<float> d_score;
  if (balanced) backward_balance(pass, d_score);
  kernels::router_backward(place_, rows_of(memory_.logits, pass, shape_.experts), choices(memory_.d_weight, pass),
                           d_score, rows_of(memory_.score, pass, shape_.experts), choices(memory_.expert, pass),
                           choices(memory_.weight, pass), shape_);
}

template <class Place, class T>
void MoeBlock<Place, T>::backward_input(Pass const& pass, Matrix<T const> dy, Matrix<T const>) {
  auto const output = routed_rows(memory_.output, pass, width_);
  kernels::permutation_combine_backward<T>(place_, output, choices(memory_.d_weight, pass), dy, output,
                                           choices(memory_.weight, pass), choices(memory_.row, pass));
  auto const d_routed = routed_rows(memory_.d_routed, pass, width_);
  if (grouped_) {
    auto const rows = num_received(pass);
    auto const transit = received_.transit.elements(route_->workspace_rows() * width_);
    exchange_.template dispatch<T>(place_, *route_, received_.d_output.rows(rows, width_), output, transit);
    backward_experts(pass);
    exchange_.template collect<T>(place_, *route_, d_routed, received_.d_input.rows(rows, width_), transit);
  } else {
    backward_experts(pass);
  }
  backward_router(pass);

  // router, then shared experts, in fp32; rounded; then the routed experts
  auto const d_normed = rows_of(memory_.d_normed, pass, width_);
  auto const sum = sum_target(d_normed, rows_of(memory_.sum, pass, width_));
  kernels::matmul<float, float>(place_, sum, rows_of(memory_.logits, pass, shape_.experts), gate_);
  if (has_shared_) {
    d_output_ = gather_or_copy<Place, T>(tensor_, pass, memory_.d_output, dy);
    auto const products = shared_.backward_input(place_, pass, d_output_);
    tensor_.template sum_slices<T, float>(place_, pass, sum, products, sum);
  }
  round_sum<Place, T>(place_, d_normed, sum);
  kernels::permutation_gather_backward<T>(place_, d_normed, d_routed, choices(memory_.row, pass),
                                          choices(memory_.order, pass), kernels::Accumulate::yes);
}

template <class Place, class T>
void MoeBlock<Place, T>::backward_weight(Pass const& pass, Gradients const& gradients, Matrix<T const> x) {
  auto const rows = num_received(pass);
  int const samples = grouped_ ? route_->samples() : pass.samples;
  std::span<std::int64_t const> const runs =
      grouped_ ? route_->offsets() : used_of(memory_.offsets, std::int64_t{shape_.experts} * pass.samples + 1);
  auto const input = received_.input.rows(rows, width_);
  auto const gate_up = received_.gate_up.rows(rows, 2 * expert_width_);
  if (rows > 0) {
    kernels::grouped_matmul_weight<T>(place_, down_.gradients(gradients.experts), received_.d_output.rows(rows, width_),
                                      received_.hidden.rows(rows, expert_width_), runs, samples);
    if (adjacent_) {
      kernels::grouped_matmul_weight<T>(place_, gate_up_.gradients(gradients.experts), gate_up, input, runs, samples);
    } else {
      kernels::grouped_matmul_weight<T>(place_, gate_part_.gradients(gradients.experts),
                                        gate_up.slice_cols(0, expert_width_), input, runs, samples);
      kernels::grouped_matmul_weight<T>(place_, up_part_.gradients(gradients.experts),
                                        gate_up.slice_cols(expert_width_, expert_width_), input, runs, samples);
    }
  }
  if (pass.samples == 0) return;
  if (has_shared_) shared_.backward_weight(place_, pass, gradients, d_output_, all_normed_);

  auto const d_logits = rows_of(memory_.logits, pass, shape_.experts);
  auto const normed = router_input(pass);
  for_each_token_run(tensor_.split(), pass, [&](std::size_t slice, std::int64_t first, std::int64_t count) {
    kernels::matmul<float, float>(place_, {gradients.replicated[slice].data() + gate_offset_, shape_.experts, width_},
                                  Matrix<float const>(d_logits.slice_rows(first, count)).transposed(),
                                  normed.slice_rows(first, count), kernels::Accumulate::yes);
  });
  gain_gradient<Place, T>(place_, tensor_.split(), pass, gradients, norm_, rows_of(memory_.d_normed, pass, width_), x,
                          column(memory_.rstd, pass));
}

template <class Place, class T>
void MoeBlock<Place, T>::backward_residual(Pass const& pass, Matrix<T> dx, Matrix<T const> x) {
  kernels::rmsnorm_backward_input<T>(place_, dx, rows_of(memory_.d_normed, pass, width_), x, column(memory_.rstd, pass),
                                     norm_.gain, kernels::Accumulate::yes);
}

template <class Place, class T>
std::vector<Activation<T>> MoeBlock<Place, T>::activations(Pass const& pass) const {
  std::vector<Activation<T>> list{{"normed input of experts", used(rows_of(memory_.normed, pass, width_))},
                                  {"experts' outputs", used(routed_rows(memory_.output, pass, width_))}};
  if (has_shared_) list.push_back({"shared experts' output", used(rows_of(memory_.shared_output, pass, width_))});
  return list;
}

}  // namespace isotrain
