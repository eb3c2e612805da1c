#pragma once

#include <cstddef>

namespace isotrain::kernels::gemm {

/// Memory of the calling thread for packed panels and partial sums: aligned to 64 bytes, kept between calls, so that a
/// step allocates nothing once it has run. Contents are undefined. Each purpose has its own.
enum class Purpose { panels_a, panels_b, partial_sums };
void* workspace(Purpose purpose, std::size_t bytes);

}  // namespace isotrain::kernels::gemm
