#pragma once

#include "kernels/rmsnorm.h"
#include "lib/model/dense_block.h"
#include "lib/model/gated_unit-inl.h"
#include "lib/model/memory-inl.h"

namespace isotrain {

template <class Place, class T>
DenseBlock<Place, T>::Memory::Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options,
                                     PartSizes const& sizes, int layer) {
  std::int64_t const d = config.hidden_size;
  Keeper keep(map, Scratch::ffn, options, "layer " + std::to_string(layer) + " feed-forward: ");
  rstd = keep.keep<float>("norm's rstd", sizes.rows, Recompute::selective);
  normed = keep.keep<T>("normed input", sizes.rows * d, Recompute::none);
  all_normed =
      keep.keep<T>("normed input of all tensor ranks", sizes.split() ? sizes.all_rows * d : 0, Recompute::none);
  unit = {keep, sizes.all_rows, config.intermediate_size / sizes.tensor_ranks};
  d_output = keep.output_gradient<T>(sizes, d);
  d_normed = keep.for_weights<T>("gradient of normed input", sizes.rows * d);
}

template <class Place, class T>
DenseBlock<Place, T>::DenseBlock(Setup<Place, T> const& setup, int layer, Memory memory)
    : place_(setup.place),
      tensor_(setup.tensor),
      memory_(memory),
      width_(setup.config.hidden_size),
      recompute_(setup.options.recompute),
      epsilon_(static_cast<float>(setup.config.norm_epsilon)),
      norm_(LayerParameters<Place, T>(setup, layer).norm("post_attention_layernorm")),
      unit_(setup, layer, "mlp", memory.unit) {}

template <class Place, class T>
void DenseBlock<Place, T>::activate(Pass const& pass, Matrix<T const> x) {
  auto const normed = rows_of(memory_.normed, pass, width_);
  kernels::rmsnorm_forward<T>(place_, normed, column(memory_.rstd, pass), x, norm_.gain, epsilon_);
  all_normed_ = tensor_.template gather<T>(pass, memory_.all_normed, normed);
  unit_.activate(place_, pass, all_normed_);
}

template <class Place, class T>
void DenseBlock<Place, T>::forward(Pass const& pass, Matrix<T> y, Matrix<T const> x) {
  activate(pass, x);
  tensor_.template sum_slices<T, T>(place_, pass, y, unit_.output(pass), x);
}

template <class Place, class T>
void DenseBlock<Place, T>::recompute(Pass const& pass, Matrix<T const> x) {
  if (recompute_ == Recompute::full) activate(pass, x);
  if (recompute_ != Recompute::selective) return;
  auto const normed = rows_of(memory_.normed, pass, width_);
  kernels::rmsnorm_apply<T>(place_, normed, column(memory_.rstd, pass), x, norm_.gain);
  all_normed_ = tensor_.template gather<T>(pass, memory_.all_normed, normed);
  unit_.activate_again(place_, pass);
}

template <class Place, class T>
void DenseBlock<Place, T>::backward_input(Pass const& pass, Matrix<T const> dy, Matrix<T const>) {
  d_output_ = gather_or_copy<Place, T>(tensor_, pass, memory_.d_output, dy);
  auto const products = unit_.backward_input(place_, pass, d_output_);
  tensor_.template sum_slices<T, T>(place_, pass, rows_of(memory_.d_normed, pass, width_), products);
}

template <class Place, class T>
void DenseBlock<Place, T>::backward_weight(Pass const& pass, Gradients const& gradients, Matrix<T const> x) {
  if (pass.samples == 0) return;
  unit_.backward_weight(place_, pass, gradients, d_output_, all_normed_);
  gain_gradient<Place, T>(place_, tensor_.split(), pass, gradients, norm_, rows_of(memory_.d_normed, pass, width_), x,
                          column(memory_.rstd, pass));
}

template <class Place, class T>
void DenseBlock<Place, T>::backward_residual(Pass const& pass, Matrix<T> dx, Matrix<T const> x) {
  kernels::rmsnorm_backward_input<T>(place_, dx, rows_of(memory_.d_normed, pass, width_), x, column(memory_.rstd, pass),
                                     norm_.gain, kernels::Accumulate::yes);
}

template <class Place, class T>
std::vector<Activation<T>> DenseBlock<Place, T>::activations(Pass const& pass) const {
  auto const width = unit_.width();
  return {{"normed input of feed-forward", used(rows_of(memory_.normed, pass, width_))},
          {"gate and up", used(all_rows_of(unit_.memory().gate_up, pass, 2 * width))},
          {"hidden values of feed-forward", used(all_rows_of(unit_.memory().hidden, pass, width))}};
}

}  // namespace isotrain
