// Products of small fp32 matrices kept in panels: a matrix is cut into panels of sixteen columns, element (row, column)
// at data[column / 16 * stride + row * 16 + column % 16]. Included once per Highway target.
#if defined(ISOTRAIN_KERNELS_ATTENTION_TILE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOTRAIN_KERNELS_ATTENTION_TILE_INL
#undef ISOTRAIN_KERNELS_ATTENTION_TILE_INL
#else
#define ISOTRAIN_KERNELS_ATTENTION_TILE_INL
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/accumulate.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// What a sum of products is (kernels/matmul.h): chain for float, the place's class for bfloat16 (here widened).
enum class Sum { chain, tiles, pairs };
/// Whether the rows of the left factor of a product are the rows of its panels or their columns.
enum class Left { rows, columns };

inline constexpr std::int64_t tile_block = 32;  // of Sum::tiles, along k

/// Rows and panels of C that the registers hold. Rows divide 16, so that a tile lies in one panel of a transposed
/// factor. Bits do not depend on them. Scalar code has no use for more than one; and sanitizers check each access of an
/// unrolled tile, so that large ones take minutes to compile.
#if HWY_TARGET == HWY_SCALAR || defined(__SANITIZE_ADDRESS__)
inline constexpr int chain_rows = 1, chain_panels = 1, tiles_rows = 1;
#elif HWY_TARGET == HWY_AVX3
inline constexpr int chain_rows = 8, chain_panels = 2, tiles_rows = 4;
#else
inline constexpr int chain_rows = 4, chain_panels = 1, tiles_rows = 2;
#endif

template <int rows, int panels>
struct Registers {
  F32x16 v[rows][panels];
};

/// acc += one column of A times one row of B.
template <int row_step, int rows, int panels>
HWY_INLINE void multiply_add(Registers<rows, panels>& acc, float const* HWY_RESTRICT a, float const* HWY_RESTRICT b,
                             std::int64_t b_stride) {
  F32x16 right[panels];
#pragma GCC unroll 4
  for (int p = 0; p < panels; ++p) right[p] = load(b + p * b_stride);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    F32x16 const left = splat(a[r * row_step]);
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) acc.v[r][p] = fused(left, right[p], acc.v[r][p]);
  }
}

template <int rows, int panels>
HWY_INLINE void set_zero(Registers<rows, panels>& acc) {
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) acc.v[r][p] = splat(0.0F);
  }
}

/// One register tile: C [+]= sum over k in [begin, end) of A (rows, k) B (k, panels). Blocks of tiles lie at multiples
/// of 32, pairs at even k; begin is even.
template <Sum sum, Left left, int rows, int panels>
HWY_INLINE void register_tile(float* HWY_RESTRICT c, std::int64_t c_stride, float const* HWY_RESTRICT a,
                              std::int64_t a_stride, float const* HWY_RESTRICT b, std::int64_t b_stride,
                              std::int64_t begin, std::int64_t end, Accumulate accumulate) {
  constexpr int row_step = left == Left::rows ? 16 : 1;
  constexpr int k_step = left == Left::rows ? 1 : 16;
  Registers<rows, panels> acc;
  set_zero(acc);
  if (accumulate == Accumulate::yes) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p) acc.v[r][p] = load(c + p * c_stride + r * 16);
    }
  }
  Registers<rows, panels> even, odd;  // unused, and gone, but for tiles
  set_zero(even);
  set_zero(odd);
  for (std::int64_t k = begin; k < end;) {
    std::int64_t const stop = std::min(end, (k / 16 + 1) * 16);
    float const* ak = left == Left::rows ? a + k / 16 * a_stride + k % 16 : a + k * 16;
    float const* bk = b + k * 16;
    if constexpr (sum == Sum::chain) {
#pragma GCC unroll 2
      for (; k < stop; ++k, ak += k_step, bk += 16) multiply_add<row_step>(acc, ak, bk, b_stride);
    } else if constexpr (sum == Sum::pairs) {
      for (; k + 1 < stop; k += 2, ak += 2 * k_step, bk += 32) {
        multiply_add<row_step>(acc, ak + k_step, bk + 16, b_stride);
        multiply_add<row_step>(acc, ak, bk, b_stride);
      }
      if (k < stop) multiply_add<row_step>(acc, ak, bk, b_stride), ++k;
    } else {
      for (; k + 1 < stop; k += 2, ak += 2 * k_step, bk += 32) {
        multiply_add<row_step>(even, ak, bk, b_stride);
        multiply_add<row_step>(odd, ak + k_step, bk + 16, b_stride);
      }
      if (k < stop) multiply_add<row_step>(even, ak, bk, b_stride), ++k;
      if (k % tile_block == 0 || k == end) {
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
          for (int p = 0; p < panels; ++p) acc.v[r][p] = acc.v[r][p] + (even.v[r][p] + odd.v[r][p]);
        }
        set_zero(even);
        set_zero(odd);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) store(acc.v[r][p], c + p * c_stride + r * 16);
  }
}

template <Sum sum, Left left, int rows>
HWY_NOINLINE void product_of_rows(float* c, std::int64_t c_stride, float const* a, std::int64_t a_stride,
                                  float const* b, std::int64_t b_stride, std::int64_t panels, std::int64_t begin,
                                  std::int64_t end, Accumulate accumulate) {
  std::int64_t p = 0;
  for (; p + chain_panels <= panels; p += chain_panels) {
    register_tile<sum, left, rows, chain_panels>(c + p * c_stride, c_stride, a, a_stride, b + p * b_stride, b_stride,
                                                 begin, end, accumulate);
  }
  for (; p < panels; ++p) {
    register_tile<sum, left, rows, 1>(c + p * c_stride, c_stride, a, a_stride, b + p * b_stride, b_stride, begin, end,
                                      accumulate);
  }
}

/// C (rows, panels) [+]= sum over k in [begin, end) of A (rows, k) B (k, panels). rows is 1 or chain_rows.
template <Sum sum, Left left, int rows>
HWY_INLINE void product(float* c, std::int64_t c_stride, float const* a, std::int64_t a_stride, float const* b,
                        std::int64_t b_stride, std::int64_t panels, std::int64_t begin, std::int64_t end,
                        Accumulate accumulate) {
  constexpr int step = sum == Sum::tiles ? std::min(rows, tiles_rows) : rows;
  for (int r = 0; r < rows; r += step) {
    float const* ar = left == Left::rows ? a + r * 16 : a + r;
    product_of_rows<sum, left, step>(c + r * 16, c_stride, ar, a_stride, b, b_stride, panels, begin, end, accumulate);
  }
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
