#pragma once

#include "kernels/cpu/matmul_plan.h"
#include "lib/base/bfloat16.h"
#include "lib/device/cpu.h"

namespace isotrain::kernels::gemm {

/// The register tile of products of T now: a good unit for cutting rows and columns.
template <class T>
TileShape tile_shape(Bf16Class bf16);

/// Rows `rows` and columns `cols` of a sum, in the calling thread, which is in the contract's floating-point mode.
template <class T, class Out>
void multiply_part(Sum<T, Out> const& sum, Range rows, Range cols, Bf16Class bf16);

}  // namespace isotrain::kernels::gemm
