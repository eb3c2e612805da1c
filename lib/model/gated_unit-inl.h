#pragma once

#include "kernels/swiglu.h"
#include "lib/model/gated_unit.h"
#include "lib/model/memory-inl.h"

namespace isotrain {

template <class Place, class T>
GatedUnit<Place, T>::Memory::Memory(Keeper& keep, std::int64_t rows, std::int64_t width) {
  gate_up = keep.keep<T>("gate and up", rows * 2 * width, Recompute::selective);
  hidden = keep.keep<T>("hidden values", rows * width, Recompute::none);
  d_hidden = keep.scratch<T>(rows * width);
}

template <class Place, class T>
GatedUnit<Place, T>::GatedUnit(Setup<Place, T> const& setup, int layer, std::string const& name, Memory memory)
    : memory_(memory) {
  LayerParameters<Place, T> const find(setup, layer);
  gate_up_ = find.stack({name + ".gate_proj", name + ".up_proj"});
  down_ = find.sliced_input(name + ".down_proj");
}

template <class Place, class T>
void GatedUnit<Place, T>::activate(Place const& at, Pass const& pass, Matrix<T const> x) {
  project<Place, T>(at, all_rows_of(memory_.gate_up, pass, 2 * width()), x, gate_up_);
  activate_again(at, pass);
}

template <class Place, class T>
void GatedUnit<Place, T>::activate_again(Place const& at, Pass const& pass) {
  auto const gate_up = all_rows_of(memory_.gate_up, pass, 2 * width());
  kernels::swiglu_forward<T>(at, all_rows_of(memory_.hidden, pass, width()), gate_up.slice_cols(0, width()),
                             gate_up.slice_cols(width(), width()));
}

template <class Place, class T>
std::vector<kernels::Product<T>> GatedUnit<Place, T>::output(Pass const& pass) const {
  return down_.products(all_rows_of(memory_.hidden, pass, width()));
}

template <class Place, class T>
std::vector<kernels::Product<T>> GatedUnit<Place, T>::backward_input(Place const& at, Pass const& pass,
                                                                     Matrix<T const> dy) {
  auto const d_hidden = all_rows_of(memory_.d_hidden, pass, width());
  down_.input_gradient(at, d_hidden, dy);
  auto const gate_up = all_rows_of(memory_.gate_up, pass, 2 * width());
  auto const gate = gate_up.slice_cols(0, width());
  auto const up = gate_up.slice_cols(width(), width());
  kernels::swiglu_backward<T>(at, gate, up, d_hidden, gate, up);
  return sliced_products<T>(gate_up, gate_up_);
}

template <class Place, class T>
void GatedUnit<Place, T>::backward_weight(Place const& at, Pass const& pass, Gradients const& gradients,
                                          Matrix<T const> dy, Matrix<T const> x) {
  down_.weight_gradient(at, gradients.sliced, dy, all_rows_of(memory_.hidden, pass, width()), pass.sequence);
  weight_gradient<Place, T>(at, gradients.sliced, gate_up_, all_rows_of(memory_.gate_up, pass, 2 * width()), x,
                            pass.sequence);
}

}  // namespace isotrain
