#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "lib/base/matrix.h"
#include "lib/model/parameter_index.h"

/// Weight matrices [out, in] and the three products of each: y = x W^T, dx = dy W, dW += dy^T x.
namespace isotrain {

/// One matrix, and where its gradient is in the flat space.
template <class T>
struct Linear {
  T const* weight = nullptr;
  std::int64_t offset = 0;
  std::int64_t out = 0;
  std::int64_t in = 0;

  Matrix<T const> matrix() const { return {weight, out, in}; }
  Matrix<float> gradient(std::span<float> gradients) const { return {gradients.data() + offset, out, in}; }
};

template <class T>
Linear<T> find_linear(ParameterIndex const& parameters, Weights<T> const& weights, std::string const& name) {
  auto const& p = parameters[name];
  return {weights.matrix(p), p.offset, p.shape[0], p.shape[1]};
}

/// The gain of a norm.
struct Norm {
  std::span<float const> gain;
  std::int64_t offset = 0;

  std::span<float> gradient(std::span<float> gradients) const {
    return gradients.subspan(static_cast<std::size_t>(offset), gain.size());
  }
};

template <class T>
Norm find_norm(ParameterIndex const& parameters, Weights<T> const& weights, std::string const& name) {
  auto const& p = parameters[name];
  return {{weights.vector(p), static_cast<std::size_t>(p.shape[0])}, p.offset};
}

/// Matrices of one input, their outputs side by side. Those that follow each other in the flat space without a gap are
/// multiplied as one: larger products, the same bits.
template <class T>
class Stack {
 public:
  Stack() = default;
  explicit Stack(std::vector<Linear<T>> parts);

  std::vector<Linear<T>> const& parts() const { return parts_; }
  std::vector<Linear<T>> const& merged() const { return merged_; }
  std::int64_t out() const;

 private:
  std::vector<Linear<T>> parts_;
  std::vector<Linear<T>> merged_;
};

/// y (N,out) = x (N,in) W^T.
template <class Place, class T>
void project(Place const& at, Matrix<T> y, Matrix<T const> x, Stack<T> const& stack);

/// dW += dy^T x for each matrix; sums restart every `sequence` rows (bf16).
template <class Place, class T>
void weight_gradient(Place const& at, std::span<float> gradients, Stack<T> const& stack, Matrix<T const> dy,
                     Matrix<T const> x, std::int64_t sequence);

/// One term of an input gradient: dy (N,out) times the matrices.
template <class T>
struct Term {
  Matrix<T const> dy;
  Stack<T> const* stack = nullptr;
  int slices = 1;  // the outputs are a sliced dimension
};

/// Whether a sum begins with what is there.
enum class SumFrom { zero, there };

/// Where input_gradient sums: dx itself in fp32, else `sum`, which is fp32 of the same shape.
inline Matrix<float> sum_target(Matrix<float> dx, Matrix<float>) {
  return dx;
}
inline Matrix<float> sum_target(Matrix<bfloat16>, Matrix<float> sum) {
  return sum;
}

/// dx (N,in) = round([what is in sum_target] + all terms), in the order given. A term without slices continues the
/// chain over the columns of dy; one with slices is a Tree of its own for each matrix, added in fp32.
template <class Place, class T>
void input_gradient(Place const& at, Matrix<T> dx, Matrix<float> sum, SumFrom from,
                    std::initializer_list<Term<T>> terms);

}  // namespace isotrain
