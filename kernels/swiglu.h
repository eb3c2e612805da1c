#pragma once

#include "lib/base/matrix.h"
#include "lib/device/cpu.h"

/// Gated SiLU unit (Shazeer, arXiv:2002.05202). Rows contiguous. T is float or bfloat16; arithmetic in fp32.
namespace isotrain::kernels {

/// y = gate / (1 + exp(-gate)) * up; all (N,f) T.
template <class T>
void swiglu_forward(Cpu const& at, Matrix<T> y, Matrix<T const> gate, Matrix<T const> up);

/// dup = dy * silu(gate); dgate = dy * up * s * (1 + gate * (1 - s)), s = sigmoid(gate). Outputs may alias gate and up.
template <class T>
void swiglu_backward(Cpu const& at, Matrix<T> dgate, Matrix<T> dup, Matrix<T const> dy, Matrix<T const> gate,
                     Matrix<T const> up);

}  // namespace isotrain::kernels
