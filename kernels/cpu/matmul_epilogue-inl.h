// Between partial sums in tiles of fp32 and C. Included once per Highway target.
#if defined(ISOTRAIN_KERNELS_MATMUL_EPILOGUE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOTRAIN_KERNELS_MATMUL_EPILOGUE_INL
#undef ISOTRAIN_KERNELS_MATMUL_EPILOGUE_INL
#else
#define ISOTRAIN_KERNELS_MATMUL_EPILOGUE_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/simd-inl.h"
#include "lib/base/matrix.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// left + right into right, tiles of `count` numbers (a multiple of a vector).
HWY_INLINE void add_tile(float const* left, float* right, std::int64_t count) {
  F32 const d;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(vector_lanes)) {
    hn::StoreU(hn::Add(hn::LoadU(d, left + i), hn::LoadU(d, right + i)), d, right + i);
  }
}

/// C = round(tile [+ residual]).
template <class Out>
HWY_INLINE void finish_tile(float const* tile, std::int64_t tile_stride, Matrix<Out> c, Matrix<Out const> residual) {
  bool const add = residual.data != nullptr;
  bool const contiguous = c.col_stride == 1 && (!add || residual.col_stride == 1);
  for (std::int64_t r = 0; r < c.rows; ++r) {
    float const* const from = tile + r * tile_stride;
    if (contiguous) {
      for (std::int64_t j = 0; j < c.cols; j += block_lanes) {
        std::int64_t const n = std::min(block_lanes, c.cols - j);
        F32x16 x = load_first(from + j, n);
        if (add) x = x + load_first(residual.row(r) + j, n);
        store_first(x, c.row(r) + j, n);
      }
    } else {
      for (std::int64_t j = 0; j < c.cols; ++j) {
        c(r, j) = from_float<Out>(add ? from[j] + to_float(residual(r, j)) : from[j]);
      }
    }
  }
}

template <class Out>
HWY_INLINE void load_tile(Matrix<Out> c, float* tile, std::int64_t tile_stride) {
  for (std::int64_t r = 0; r < c.rows; ++r) {
    for (std::int64_t j = 0; j < c.cols; ++j) tile[r * tile_stride + j] = to_float(c(r, j));
  }
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
