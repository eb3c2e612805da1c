#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "lib/base/matrix.h"
#include "lib/model/gradients.h"
#include "lib/tensor/shard.h"

/// Weight matrices [out, in] and the three products of each: y = x W^T, dx = dy W, dW += dy^T x. Of a matrix that is
/// cut into slices a rank has some, each dense in memory.
namespace isotrain {

/// A matrix, or one slice of it, and where its gradient is added.
template <class T>
struct Linear {
  T const* weight = nullptr;
  std::int64_t offset = 0;  // in its region of the shard
  std::int64_t out = 0;
  std::int64_t in = 0;

  Matrix<T const> matrix() const { return {weight, out, in}; }
  Matrix<float> gradient(std::span<float> region) const { return {region.data() + offset, out, in}; }
};

/// The pieces of a parameter that the shard has, ascending.
template <class T>
std::vector<Linear<T>> find_linear(Shard const& shard, Weights<T> const& weights, std::string const& name);

/// The gain of a norm.
struct Norm {
  std::span<float const> gain;
  std::int64_t offset = 0;  // in its region of the shard

  std::span<float> gradient(std::span<float> region) const {
    return region.subspan(static_cast<std::size_t>(offset), gain.size());
  }
};

template <class T>
Norm find_norm(Shard const& shard, Weights<T> const& weights, std::string const& name);

/// Matrices of one input, their outputs side by side: first all pieces of the first matrix, then those of the next.
/// Pieces that follow each other in memory without a gap are multiplied as one: larger products, the same bits.
template <class T>
class Stack {
 public:
  Stack() = default;
  /// Each matrix has as many pieces.
  explicit Stack(std::vector<std::vector<Linear<T>>> const& matrices);

  std::vector<Linear<T>> const& pieces() const { return pieces_; }
  std::vector<Linear<T>> const& merged() const { return merged_; }
  int slices() const { return slices_; }  // pieces of each matrix
  std::int64_t out() const;

 private:
  int slices_ = 1;
  std::vector<Linear<T>> pieces_;
  std::vector<Linear<T>> merged_;
};

/// y (N,out) = x (N,in) W^T.
template <class Place, class T, class Out>
void project(Place const& at, Matrix<Out> y, Matrix<T const> x, Stack<T> const& stack);

/// dW += dy^T x for each matrix; sums restart every `leaf` rows (bf16).
template <class Place, class T>
void weight_gradient(Place const& at, std::span<float> region, Stack<T> const& stack, Matrix<T const> dy,
                     Matrix<T const> x, std::int64_t leaf);

/// dx (N,in) = dy W of matrices without slices: one chain over the columns of dy, which continues from `sum` if
/// `start` says so. `sum` is fp32 (N,in), of dx itself in an fp32 model; where neither is needed it may be empty.
enum class Start { zero, sum };
template <class Place, class T>
void input_gradient(Place const& at, Matrix<T> dx, Matrix<float> sum, Start start, Matrix<T const> dy,
                    Stack<T> const& stack);

/// The products of slices `slices` of the stack's slices, whose sum is dy W: in each slice one chain through the
/// matrices. For kernels::matmul_sliced.
template <class T>
std::vector<kernels::Product<T>> sliced_products(Matrix<T const> dy, Stack<T> const& stack);

/// A matrix whose input is the sliced dimension: y = x W^T is a sum over slices.
template <class T>
class SlicedInput {
 public:
  SlicedInput() = default;
  explicit SlicedInput(std::vector<Linear<T>> pieces) : pieces_(std::move(pieces)) {}

  std::int64_t in() const;
  /// x (N,in): the products whose sum is y.
  std::vector<kernels::Product<T>> products(Matrix<T const> x) const;
  /// dx (N,in) = dy (N,out) W.
  template <class Place>
  void input_gradient(Place const& at, Matrix<T> dx, Matrix<T const> dy) const;
  /// dW += dy^T x; sums restart every `leaf` rows (bf16).
  template <class Place>
  void weight_gradient(Place const& at, std::span<float> region, Matrix<T const> dy, Matrix<T const> x,
                       std::int64_t leaf) const;

 private:
  std::vector<Linear<T>> pieces_;
};

}  // namespace isotrain
