#pragma once

#include <span>

#include "kernels/accumulate.h"
#include "lib/base/matrix.h"
#include "lib/device/cpu.h"

/// Root-mean-square normalisation (Zhang and Sennrich, arXiv:1910.07467). Letters: N tokens, d width.
/// Rows contiguous (col_stride 1), any row stride. T is float or bfloat16; arithmetic in fp32.
/// Requires shapes that fit together; throws nothing else. Bits depend on neither threads nor strides nor other rows.
/// Row sums: 16 partial sums by index mod 16 (fused multiply-adds from +0), then a fixed tree (distance 8, 4, 2, 1).
namespace isotrain::kernels {

/// y = gain * (x * rstd), rstd = 1 / sqrt(mean(x^2) + epsilon), rounded once to T.
///   y, x (N,d) T;  rstd (N) fp32 out, kept for the backward pass;  gain (d) fp32
template <class T>
void rmsnorm_forward(Cpu const& at, Matrix<T> y, std::span<float> rstd, Matrix<T const> x, std::span<float const> gain,
                     float epsilon);

/// y = gain * (x * rstd) from a stored rstd: the recomputation of the forward pass, same bits.
template <class T>
void rmsnorm_apply(Cpu const& at, Matrix<T> y, std::span<float const> rstd, Matrix<T const> x,
                   std::span<float const> gain);

/// dx [+]= rstd * g - c * x with g = gain * dy and c = rstd^3 / d * sum_j g_j x_j: fma(-c, x, rstd * g), then added to
/// dx in fp32, rounded once to T.
///   dx (N,d) T; may alias dy when Accumulate::no
template <class T>
void rmsnorm_backward_input(Cpu const& at, Matrix<T> dx, Matrix<T const> dy, Matrix<T const> x,
                            std::span<float const> rstd, std::span<float const> gain,
                            Accumulate accumulate = Accumulate::no);

/// dgain (d) fp32 continued by one chain over the tokens given, in their order: dgain = fma(dy, x * rstd, dgain). So
/// the cut of tokens into calls is free.
template <class T>
void rmsnorm_backward_gain(Cpu const& at, std::span<float> dgain, Matrix<T const> dy, Matrix<T const> x,
                           std::span<float const> rstd);

}  // namespace isotrain::kernels
