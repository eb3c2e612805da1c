#pragma once

#include "kernels/rmsnorm.h"
#include "lib/model/dense_block.h"
#include "lib/model/gated_unit-inl.h"
#include "lib/model/memory-inl.h"

namespace isotrain {

template <class Place, class T>
DenseBlock<Place, T>::Memory::Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options,
                                     int layer) {
  std::int64_t const rows = options.micro_batch * options.sequence;
  Keeper keep(map, Scratch::ffn, options.recompute, "layer " + std::to_string(layer) + " feed-forward: ");
  rstd = keep.keep<float>("norm's rstd", rows, Recompute::selective);
  normed = keep.keep<T>("normed input", rows * config.hidden_size, Recompute::none);
  unit = {keep, rows, config.intermediate_size};
  d_normed = keep.scratch<T>(rows * config.hidden_size);
  sum = keep.scratch<float>(sum_elements<T>(rows * config.hidden_size));
}

template <class Place, class T>
DenseBlock<Place, T>::DenseBlock(Setup<Place, T> const& setup, int layer, Memory memory)
    : place_(setup.place),
      memory_(memory),
      width_(setup.config.hidden_size),
      recompute_(setup.options.recompute),
      slices_(setup.options.slices),
      epsilon_(static_cast<float>(setup.config.norm_epsilon)),
      norm_(LayerParameters<Place, T>(setup, layer).norm("post_attention_layernorm")),
      unit_(setup, layer, "mlp", memory.unit) {}

template <class Place, class T>
void DenseBlock<Place, T>::activate(Pass const& pass, Matrix<T const> x) {
  auto const normed = rows_of(memory_.normed, pass, width_);
  kernels::rmsnorm_forward<T>(place_, normed, column(memory_.rstd, pass), x, norm_.gain, epsilon_);
  unit_.activate(place_, pass, normed);
}

template <class Place, class T>
void DenseBlock<Place, T>::forward(Pass const& pass, Matrix<T> y, Matrix<T const> x) {
  activate(pass, x);
  unit_.output(place_, pass, y, x);
}

template <class Place, class T>
void DenseBlock<Place, T>::recompute(Pass const& pass, Matrix<T const> x) {
  if (recompute_ == Recompute::full) activate(pass, x);
  if (recompute_ != Recompute::selective) return;
  kernels::rmsnorm_apply<T>(place_, rows_of(memory_.normed, pass, width_), column(memory_.rstd, pass), x, norm_.gain);
  unit_.activate_again(place_, pass);
}

template <class Place, class T>
void DenseBlock<Place, T>::backward_input(Pass const& pass, Matrix<T const> dy, Matrix<T const>) {
  auto const from_unit = unit_.backward_input(place_, pass, dy);
  input_gradient<Place, T>(place_, rows_of(memory_.d_normed, pass, width_), rows_of(memory_.sum, pass, width_),
                           SumFrom::zero, {from_unit});
}

template <class Place, class T>
void DenseBlock<Place, T>::backward_weight(Pass const& pass, std::span<float> gradients, Matrix<T const> dy,
                                           Matrix<T const> x) {
  unit_.backward_weight(place_, pass, gradients, dy, rows_of(memory_.normed, pass, width_));
  kernels::rmsnorm_backward_gain<T>(place_, norm_.gradient(gradients), rows_of(memory_.d_normed, pass, width_), x,
                                    column(memory_.rstd, pass), pass.sequence, slices_);
}

template <class Place, class T>
void DenseBlock<Place, T>::backward_residual(Pass const& pass, Matrix<T> dx, Matrix<T const> x) {
  kernels::rmsnorm_backward_input<T>(place_, dx, rows_of(memory_.d_normed, pass, width_), x, column(memory_.rstd, pass),
                                     norm_.gain, kernels::Accumulate::yes);
}

template <class Place, class T>
std::vector<Activation<T>> DenseBlock<Place, T>::activations(Pass const& pass) const {
  return {{"normed input of feed-forward", used(memory_.normed, pass, width_)},
          {"gate and up", used(unit_.memory().gate_up, pass, 2 * unit_.width())},
          {"hidden values of feed-forward", used(unit_.memory().hidden, pass, unit_.width())}};
}

}  // namespace isotrain
