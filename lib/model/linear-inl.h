#pragma once

#include <type_traits>

#include "kernels/reduce.h"
#include "lib/model/linear.h"

namespace isotrain {

template <class T>
Stack<T>::Stack(std::vector<Linear<T>> parts) : parts_(std::move(parts)) {
  for (auto const& part : parts_) {
    expects(part.in == parts_.front().in, "matrices with the same input");
    if (!merged_.empty() && part.offset == merged_.back().offset + merged_.back().out * part.in) {
      merged_.back().out += part.out;
    } else {
      merged_.push_back(part);
    }
  }
}

template <class T>
std::int64_t Stack<T>::out() const {
  std::int64_t out = 0;
  for (auto const& part : parts_) out += part.out;
  return out;
}

template <class Place, class T>
void project(Place const& at, Matrix<T> y, Matrix<T const> x, Stack<T> const& stack) {
  std::int64_t column = 0;
  for (auto const& part : stack.merged()) {
    kernels::matmul<T, T>(at, y.slice_cols(column, part.out), x, part.matrix().transposed());
    column += part.out;
  }
}

template <class Place, class T>
void weight_gradient(Place const& at, std::span<float> gradients, Stack<T> const& stack, Matrix<T const> dy,
                     Matrix<T const> x, std::int64_t sequence) {
  std::int64_t column = 0;
  for (auto const& part : stack.merged()) {
    kernels::matmul<T, float>(at, part.gradient(gradients), dy.slice_cols(column, part.out).transposed(), x,
                              kernels::Accumulate::yes, {.slices = 1, .leaf = sequence});
    column += part.out;
  }
}

template <class Place, class T>
void input_gradient(Place const& at, Matrix<T> dx, Matrix<float> sum, SumFrom from,
                    std::initializer_list<Term<T>> terms) {
  using kernels::Accumulate;
  auto const pieces = [](Term<T> const& term) -> auto const& {
    return term.slices == 1 ? term.stack->merged() : term.stack->parts();
  };
  if (terms.size() == 1 && pieces(*terms.begin()).size() == 1 && from == SumFrom::zero) {
    auto const& term = *terms.begin();
    kernels::matmul<T, T>(at, dx, term.dy, pieces(term).front().matrix(), Accumulate::no, {.slices = term.slices});
    return;
  }
  Matrix<float> const target = sum_target(dx, sum);
  bool started = from == SumFrom::there;
  for (auto const& term : terms) {
    std::int64_t column = 0;
    for (auto const& part : pieces(term)) {
      auto const dy = term.dy.slice_cols(column, part.out);
      bool const chain = started && term.slices == 1;
      Matrix<float const> const before = started && !chain ? Matrix<float const>(target) : Matrix<float const>();
      kernels::matmul<T, float>(at, target, dy, part.matrix(), chain ? Accumulate::yes : Accumulate::no,
                                {.slices = term.slices}, before);
      column += part.out;
      started = true;
    }
  }
  if constexpr (!std::is_same_v<T, float>) {
    auto const count = static_cast<std::size_t>(dx.rows * dx.cols);
    kernels::convert(at, std::span<T>(dx.data, count), std::span<float const>(sum.data, count));
  }
}

}  // namespace isotrain
