// The micro-kernels: a register tile of C from one panel of A and one of B. Included once per Highway target.
#if defined(ISOTRAIN_KERNELS_MATMUL_KERNEL_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOTRAIN_KERNELS_MATMUL_KERNEL_INL
#undef ISOTRAIN_KERNELS_MATMUL_KERNEL_INL
#else
#define ISOTRAIN_KERNELS_MATMUL_KERNEL_INL
#endif

#include <hwy/highway.h>

#include <array>
#include <cstdint>
#include <utility>

#include "kernels/cpu/matmul_tile.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

// Sums fill the register file but for two vectors of B and one broadcast of A. The tiles class keeps two sums per
// element of C.
#if HWY_TARGET == HWY_AVX3
inline constexpr int tile_vectors = 2;
inline constexpr int chain_rows = 14;
inline constexpr int blocks_rows = 7;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int tile_vectors = 2;
inline constexpr int chain_rows = 6;
inline constexpr int blocks_rows = 3;
#elif HWY_TARGET == HWY_SCALAR
inline constexpr int tile_vectors = 4;
inline constexpr int chain_rows = 4;
inline constexpr int blocks_rows = 2;
#else
inline constexpr int tile_vectors = 3;
inline constexpr int chain_rows = 8;
inline constexpr int blocks_rows = 4;
#endif
inline constexpr int tile_cols = tile_vectors * static_cast<int>(vector_lanes);

using gemm::Ahead;
using gemm::Next;
using gemm::TileInOut;

/// c[r] = chain of a[k][r] * b[k] over ascending k from c[r]; panels a[steps][stride_a] and b[steps][tile_cols], of
/// which the first `vectors` vectors are multiplied.
template <int rows, int stride_a, int vectors>
HWY_NOINLINE void chain_kernel(float const* a, float const* b, std::int64_t steps, TileInOut c, Next next) {
  F32 const d;
  VecF32 sum[rows][vectors];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      sum[r][v] = c.in ? hn::LoadU(d, c.in + r * c.in_stride + v * static_cast<int>(vector_lanes)) : hn::Zero(d);
    }
  }
  auto const step = [&]() HWY_ATTR {
    VecF32 right[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) right[v] = hn::LoadU(d, b + v * static_cast<int>(vector_lanes));
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      VecF32 const left = hn::Set(d, a[r]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[r][v] = fused(left, right[v], sum[r][v]);
    }
    a += stride_a;
    b += tile_cols;
  };
  for (std::int64_t k = 1; k < steps; k += 2) {
    next.fetch();
    step();
    step();
  }
  if (steps % 2 != 0) step();
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      hn::StoreU(sum[r][v], d, c.out + r * c.out_stride + v * static_cast<int>(vector_lanes));
    }
  }
}

/// The tiles class: for each 32 steps, c[r] += (chain over even k from +0) + (chain over odd k from +0).
/// `steps` is a multiple of 32.
template <int rows, int stride_a>
HWY_NOINLINE void blocks_kernel(float const* a, float const* b, std::int64_t steps, TileInOut c, Next next) {
  F32 const d;
  for (std::int64_t block = 0; block < steps; block += 32) {
    VecF32 even[rows][tile_vectors];
    VecF32 odd[rows][tile_vectors];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < tile_vectors; ++v) even[r][v] = odd[r][v] = hn::Zero(d);
    }
    for (int k = 0; k < 32; k += 2, a += 2 * stride_a, b += 2 * tile_cols) {
      next.fetch();
      VecF32 right[tile_vectors];
#pragma GCC unroll 4
      for (int v = 0; v < tile_vectors; ++v) right[v] = hn::LoadU(d, b + v * static_cast<int>(vector_lanes));
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        VecF32 const left = hn::Set(d, a[r]);
#pragma GCC unroll 4
        for (int v = 0; v < tile_vectors; ++v) even[r][v] = fused(left, right[v], even[r][v]);
      }
#pragma GCC unroll 4
      for (int v = 0; v < tile_vectors; ++v)
        right[v] = hn::LoadU(d, b + tile_cols + v * static_cast<int>(vector_lanes));
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        VecF32 const left = hn::Set(d, a[stride_a + r]);
#pragma GCC unroll 4
        for (int v = 0; v < tile_vectors; ++v) odd[r][v] = fused(left, right[v], odd[r][v]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < tile_vectors; ++v) {
        std::int64_t const lane = v * static_cast<int>(vector_lanes);
        VecF32 const before = c.in ? hn::LoadU(d, c.in + r * c.in_stride + lane) : hn::Zero(d);
        hn::StoreU(hn::Add(before, hn::Add(even[r][v], odd[r][v])), d, c.out + r * c.out_stride + lane);
      }
    }
    c.in = c.out;
    c.in_stride = c.out_stride;
  }
}

using MicroKernel = void (*)(float const* a, float const* b, std::int64_t steps, TileInOut c, Next next);

/// kernels[r - 1] computes r rows.
template <int vectors, int... r>
constexpr std::array<MicroKernel, sizeof...(r)> chain_kernels(std::integer_sequence<int, r...>) {
  return {chain_kernel<r + 1, sizeof...(r), vectors>...};
}
template <int... r>
constexpr std::array<MicroKernel, sizeof...(r)> blocks_kernels(std::integer_sequence<int, r...>) {
  return {blocks_kernel<r + 1, sizeof...(r)>...};
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
