#pragma once

#include "lib/base/matrix.h"
#include "lib/device/cpu.h"

/// Gated SiLU unit (Shazeer, arXiv:2002.05202). Rows contiguous, any row stride. T is float or bfloat16; arithmetic in
/// fp32.
namespace isotrain::kernels {

/// y = (gate * s) * up with s = sigmoid(gate) = 1 / (1 + exp(-gate)), rounded once to T; all (N,f) T. y may alias an
/// input. As in other implementations, gate = -infinity gives NaN.
template <class T>
void swiglu_forward(Cpu const& at, Matrix<T> y, Matrix<T const> gate, Matrix<T const> up);

/// dup = dy * (gate * s); dgate = ((dy * up) * s) * fma(gate, 1 - s, 1), s = sigmoid(gate); each rounded once to T.
/// Outputs may alias any input, dgate and dup not each other.
template <class T>
void swiglu_backward(Cpu const& at, Matrix<T> dgate, Matrix<T> dup, Matrix<T const> dy, Matrix<T const> gate,
                     Matrix<T const> up);

}  // namespace isotrain::kernels
