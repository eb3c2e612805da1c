#pragma once

namespace isotrain::benchmarks {

/// Fused fp32 multiply-adds that one core reaches in registers, in GFLOP/s (an FMA is two operations): what the
/// hardware allows, with the instruction set that the kernels use. The best of several tries of a few milliseconds.
double fma_peak();

}  // namespace isotrain::benchmarks
