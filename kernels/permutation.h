#pragma once

#include <cstdint>
#include <span>

#include "kernels/accumulate.h"
#include "lib/base/matrix.h"
#include "lib/device/cpu.h"

/// Moves tokens to their experts and back. Letters: N tokens (samples of sample_rows), E experts, K different ones per
/// token; R = N*K routed rows, d width. Rows contiguous, any row stride. T is float or bfloat16. Routed rows are sorted
/// by (expert, sample, position).
namespace isotrain::kernels {

/// Counting sort.
///   row (N,K) int32 out       routed row of choice k of token n
///   offsets (E*samples+1) out routed rows of (expert, sample) are [offsets[e*samples+s], offsets[e*samples+s+1])
///   order (N,K) int32 out     the choices of a token by ascending expert id: order[n,0] is the k whose expert id is
///   lowest
void permutation_sort(std::span<std::int64_t> offsets, Matrix<std::int32_t> row, Matrix<std::int32_t> order,
                      Matrix<std::int32_t const> expert, int experts, std::int64_t sample_rows);

/// routed[row[n,k]] = x[n].  routed (R,d), x (N,d) T
template <class T>
void permutation_gather(Cpu const& at, Matrix<T> routed, Matrix<T const> x, Matrix<std::int32_t const> row);

/// dx[n] [+]= sum over k by ascending expert of drouted[row[n,k]]: a chain of fp32 adds from +0, then + dx, rounded
/// once to T.
template <class T>
void permutation_gather_backward(Cpu const& at, Matrix<T> dx, Matrix<T const> drouted, Matrix<std::int32_t const> row,
                                 Matrix<std::int32_t const> order, Accumulate accumulate);

/// y[n] = residual[n] + (shared[n] + sum over k by ascending expert of weight[n,k] * routed[row[n,k]]), products
/// rounded before they are added, in fp32, rounded once to T. shared may be empty (the sum then starts from +0). y may
/// alias residual or shared.
template <class T>
void permutation_combine(Cpu const& at, Matrix<T> y, Matrix<T const> residual, Matrix<T const> shared,
                         Matrix<T const> routed, Matrix<float const> weight, Matrix<std::int32_t const> row,
                         Matrix<std::int32_t const> order);

/// drouted[row[n,k]] = weight[n,k] * dy[n]; dweight[n,k] = <dy[n], routed[row[n,k]]> (row sum as in rmsnorm.h).
/// drouted may alias routed.
template <class T>
void permutation_combine_backward(Cpu const& at, Matrix<T> drouted, Matrix<float> dweight, Matrix<T const> dy,
                                  Matrix<T const> routed, Matrix<float const> weight, Matrix<std::int32_t const> row);

}  // namespace isotrain::kernels
