#pragma once

#include <cstdint>
#include <span>

#include "lib/base/matrix.h"
#include "lib/device/cpu.h"

namespace isotrain::kernels {

/// A token whose row is not in the table given: nothing is done for it.
inline constexpr std::int32_t absent_token = -1;

/// y[n] = table[token[n]], where that is not absent_token; y (N,d) T, table (V,d) T, rows contiguous; 0 <= token < V or
/// absent. T is float or bfloat16. V may be 0.
template <class T>
void embedding_forward(Cpu const& at, Matrix<T> y, Matrix<T const> table, std::span<std::int32_t const> token);

/// dtable[token[n]] += dy[n] in ascending n for each row of the table, absent tokens skipped: one chain of fp32 adds
/// per row, so neither threads nor the cut into micro-batches matter. dtable (V,d) fp32, dy (N,d) T.
template <class T>
void embedding_backward(Cpu const& at, Matrix<float> dtable, Matrix<T const> dy, std::span<std::int32_t const> token);

}  // namespace isotrain::kernels
