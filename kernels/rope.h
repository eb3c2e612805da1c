#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/matrix.h"
#include "lib/device/cpu.h"

/// Rotary position embedding (Su et al., arXiv:2104.09864).
namespace isotrain::kernels {

/// Which two elements form a pair: (2j, 2j+1) in DeepSeek-V2/V3, (j, j + dim/2) in Llama.
enum class RopePairs { interleaved, half_split };
/// The backward pass rotates by the negative angle.
enum class Rotation { forward, inverse };

/// Rotates every head of x in place; row r of x is at position `positions[r]`.
///   x          heads of width dim (even) T; only these dims are touched
///   table      (positions, dim/2, 2) fp32: cosine and sine, times any table multiplier; kernels/rope_table.h makes it
///   positions  (x.rows) each inside the table
/// y0 = fma(-x1, sin, x0 * cos), y1 = fma(x0, sin, x1 * cos) in fp32, rounded once to T; for Rotation::inverse with
/// -sin. T is float or bfloat16. Bits depend on neither threads nor strides nor on RopePairs.
template <class T>
void rope(Cpu const& at, Heads<T> x, std::span<float const> table, std::span<std::int32_t const> positions,
          RopePairs pairs, Rotation rotation);

}  // namespace isotrain::kernels
