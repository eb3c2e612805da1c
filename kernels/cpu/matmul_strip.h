#pragma once

#include <cstdint>

namespace isotrain::kernels::gemm {

/// Vectors along K that are packed into one panel: rows of A, or columns of B.
template <class T>
struct Strip {
  T const* data = nullptr;
  std::int64_t count = 0;      // vectors in the strip
  std::int64_t available = 0;  // vectors from the first of the strip to the last of the matrix: may be read
  std::int64_t stride = 0;     // from vector to vector
  std::int64_t k_stride = 0;
};

}  // namespace isotrain::kernels::gemm
