#pragma once

#include <type_traits>

#include "kernels/reduce.h"
#include "lib/model/linear.h"

namespace isotrain {

/// Offsets of gradients count from the start of the buffer that Gradients has for the region.
inline std::int64_t gradient_offset(Shard const& shard, Shard::Held const& held) {
  Region const region = shard.table().parameter(*held.piece).region();
  return held.offset - shard.region(region == Region::fp32 ? Region::replicated : region).begin;
}

template <class T>
std::vector<Linear<T>> find_linear(Shard const& shard, Weights<T> const& weights, std::string const& name) {
  std::vector<Linear<T>> pieces;
  for (auto const& held : shard[name]) {
    pieces.push_back(
        {weights.matrix(held.offset), gradient_offset(shard, held), held.piece->rows, held.piece->columns});
  }
  return pieces;
}

template <class T>
Norm find_norm(Shard const& shard, Weights<T> const& weights, std::string const& name) {
  auto const& held = shard[name].front();
  return {{weights.vector(held.offset), static_cast<std::size_t>(held.piece->rows)}, gradient_offset(shard, held)};
}

template <class T>
Stack<T>::Stack(std::vector<std::vector<Linear<T>>> const& matrices)
    : slices_(static_cast<int>(matrices.front().size())) {
  for (auto const& matrix : matrices) {
    expects(static_cast<int>(matrix.size()) == slices_, "matrices with as many pieces");
    for (auto const& piece : matrix) {
      expects(piece.in == matrices.front().front().in, "matrices with the same input");
      pieces_.push_back(piece);
      if (!merged_.empty() && piece.offset == merged_.back().offset + merged_.back().out * piece.in) {
        merged_.back().out += piece.out;
      } else {
        merged_.push_back(piece);
      }
    }
  }
}

template <class T>
std::int64_t Stack<T>::out() const {
  std::int64_t out = 0;
  for (auto const& piece : pieces_) out += piece.out;
  return out;
}

template <class Place, class T, class Out>
void project(Place const& at, Matrix<Out> y, Matrix<T const> x, Stack<T> const& stack) {
  std::int64_t column = 0;
  for (auto const& part : stack.merged()) {
    kernels::matmul<T, Out>(at, y.slice_cols(column, part.out), x, part.matrix().transposed());
    column += part.out;
  }
}

template <class Place, class T>
void weight_gradient(Place const& at, std::span<float> region, Stack<T> const& stack, Matrix<T const> dy,
                     Matrix<T const> x, std::int64_t leaf) {
  std::int64_t column = 0;
  for (auto const& part : stack.merged()) {
    kernels::matmul<T, float>(at, part.gradient(region), dy.slice_cols(column, part.out).transposed(), x,
                              kernels::Accumulate::yes, {.leaf = leaf});
    column += part.out;
  }
}

/// Where a sum is formed: dx itself in fp32, else `sum`.
inline Matrix<float> sum_target(Matrix<float> dx, Matrix<float>) {
  return dx;
}
inline Matrix<float> sum_target(Matrix<bfloat16>, Matrix<float> sum) {
  return sum;
}

/// dx = round(sum), where they are not one.
template <class Place, class T>
void round_sum(Place const& at, Matrix<T> dx, Matrix<float> sum) {
  if constexpr (!std::is_same_v<T, float>) {
    auto const count = static_cast<std::size_t>(dx.rows * dx.cols);
    kernels::convert(at, std::span<T>(dx.data, count), std::span<float const>(sum.data, count));
  }
}

template <class Place, class T>
void input_gradient(Place const& at, Matrix<T> dx, Matrix<float> sum, Start start, Matrix<T const> dy,
                    Stack<T> const& stack) {
  auto const& parts = stack.merged();
  if (parts.size() == 1 && start == Start::zero) {
    kernels::matmul<T, T>(at, dx, dy, parts.front().matrix());
    return;
  }
  Matrix<float> const target = sum_target(dx, sum);
  bool started = start == Start::sum;
  std::int64_t column = 0;
  for (auto const& part : parts) {
    kernels::matmul<T, float>(at, target, dy.slice_cols(column, part.out), part.matrix(),
                              started ? kernels::Accumulate::yes : kernels::Accumulate::no);
    column += part.out;
    started = true;
  }
  round_sum<Place, T>(at, dx, sum);
}

template <class T>
std::vector<kernels::Product<T>> sliced_products(Matrix<T const> dy, Stack<T> const& stack) {
  auto const slices = static_cast<std::size_t>(stack.slices());
  std::size_t const matrices = stack.pieces().size() / slices;
  std::vector<kernels::Product<T>> products(stack.pieces().size());
  std::int64_t column = 0;
  for (std::size_t i = 0; i < products.size(); ++i) {
    auto const& piece = stack.pieces()[i];
    products[i % slices * matrices + i / slices] = {dy.slice_cols(column, piece.out), piece.matrix()};
    column += piece.out;
  }
  return products;
}

template <class T>
std::int64_t SlicedInput<T>::in() const {
  std::int64_t in = 0;
  for (auto const& piece : pieces_) in += piece.in;
  return in;
}

template <class T>
std::vector<kernels::Product<T>> SlicedInput<T>::products(Matrix<T const> x) const {
  std::vector<kernels::Product<T>> products;
  std::int64_t column = 0;
  for (auto const& piece : pieces_) {
    products.push_back({x.slice_cols(column, piece.in), piece.matrix().transposed()});
    column += piece.in;
  }
  return products;
}

template <class T>
template <class Place>
void SlicedInput<T>::input_gradient(Place const& at, Matrix<T> dx, Matrix<T const> dy) const {
  std::int64_t column = 0;
  for (auto const& piece : pieces_) {
    kernels::matmul<T, T>(at, dx.slice_cols(column, piece.in), dy, piece.matrix());
    column += piece.in;
  }
}

template <class T>
template <class Place>
void SlicedInput<T>::weight_gradient(Place const& at, std::span<float> region, Matrix<T const> dy, Matrix<T const> x,
                                     std::int64_t leaf) const {
  std::int64_t column = 0;
  for (auto const& piece : pieces_) {
    kernels::matmul<T, float>(at, piece.gradient(region), dy.transposed(), x.slice_cols(column, piece.in),
                              kernels::Accumulate::yes, {.leaf = leaf});
    column += piece.in;
  }
}

}  // namespace isotrain
