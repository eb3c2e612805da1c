#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/accumulate.h"
#include "kernels/cpu/matmul_amx.h"
#include "lib/base/bfloat16.h"
#include "lib/base/matrix.h"

/// What both passes of attention do with matmul_amx.h. To be used only where amx_usable() (lib/device/amx.h) holds.
namespace isotrain::kernels::attention_amx {

using gemm::amx::multiply;
using gemm::amx::TileConfiguration;

inline constexpr std::int64_t edge = 2 * gemm::amx::tile;  // rows and columns of a product, and steps of K in a block
static_assert(edge == gemm::amx::block);

/// Rounded up to whole products.
inline std::int64_t padded(std::int64_t count) {
  return (count + edge - 1) / edge * edge;
}

/// Vectors along K in panels of 32, each with so many steps, a multiple of 32.
struct Panels {
  std::int64_t steps = 0;
  float* memory = nullptr;

  /// The size of `memory` for so many vectors.
  std::int64_t floats(std::int64_t vectors) const { return padded(vectors) * steps / 2; }
  /// The panel of a vector from a step on; both are multiples of 32.
  bfloat16* at(std::int64_t vector, std::int64_t step = 0) const {
    return reinterpret_cast<bfloat16*>(memory) + vector * steps + step * edge;
  }
};

/// Which factor of a product the vectors are: rows of A, or columns of B.
enum class Factor { a, b };

/// Rows of a matrix into panels, its columns being the steps.
inline void pack(Panels const& to, Factor factor, Matrix<bfloat16 const> m) {
  for (std::int64_t i = 0; i < m.rows; i += edge) {
    gemm::Strip<bfloat16> const strip{m.row(i), std::min(edge, m.rows - i), m.rows - i, m.row_stride, m.col_stride};
    (factor == Factor::a ? gemm::amx::pack_rows : gemm::amx::pack_cols)(to.at(i), strip, m.cols);
  }
}

/// Rows [first, first + rows) of one head.
inline Matrix<bfloat16 const> rows_of(Heads<bfloat16 const> const& x, std::int64_t first, std::int64_t head,
                                      std::int64_t rows) {
  return {x.at(first, head), rows, x.dim, x.row_stride};
}

}  // namespace isotrain::kernels::attention_amx
