// What the loops of the matrix product are told about each class of sums. Included once per Highway target.
#if defined(ISOTRAIN_KERNELS_MATMUL_ENGINE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOTRAIN_KERNELS_MATMUL_ENGINE_INL
#undef ISOTRAIN_KERNELS_MATMUL_ENGINE_INL
#else
#define ISOTRAIN_KERNELS_MATMUL_ENGINE_INL
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <utility>

#include "kernels/cpu/matmul_amx.h"
#include "kernels/cpu/matmul_epilogue-inl.h"
#include "kernels/cpu/matmul_kernel-inl.h"
#include "kernels/cpu/matmul_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// What a class of sums is made of: its register tile, its panels, its micro-kernel.
template <int tile_rows, StepOrder order, std::int64_t padding>
struct PanelEngine {
  using Element = float;
  static constexpr std::int64_t rows = tile_rows;
  static constexpr std::int64_t cols = tile_cols;
  static constexpr std::int64_t pad = padding;
  /// One panel of B of this many steps stays in the first-level cache.
  static constexpr std::int64_t max_steps = 256;
  static constexpr std::int64_t slack = 16;

  /// What a thread must hold while it multiplies.
  struct Session {
    Session() {}
  };
  /// Whether a kernel reads and writes all of a tile even if C has fewer rows there.
  static constexpr bool needs_whole_tiles = false;

  template <class T>
  static void pack_a(float* panel, Strip<T> const& strip, std::int64_t steps, std::int64_t padded) {
    pack_panel<tile_rows, order>(panel, strip, steps, padded);
  }
  template <class T>
  static void pack_b(float* panel, Strip<T> const& strip, std::int64_t steps, std::int64_t padded) {
    pack_panel<tile_cols, order>(panel, strip, steps, padded);
  }
  /// C = round(tile [+ residual]); C has the size that it has there.
  template <class Out>
  static void finish(float const* tile, Matrix<Out> c, Matrix<Out const> residual) {
    finish_tile(tile, cols, c, residual);
  }
};

/// Chains of fused multiply-adds.
template <StepOrder order, std::int64_t padding>
struct ChainsEngine : PanelEngine<chain_rows, order, padding> {
  static void multiply(std::int64_t rows, std::int64_t cols, float const* a, float const* b, std::int64_t steps,
                       TileInOut c, Next next) {
    static constexpr auto kernels = chain_kernels<tile_vectors>(std::make_integer_sequence<int, chain_rows>());
    static constexpr auto narrow = chain_kernels<1>(std::make_integer_sequence<int, chain_rows>());
    bool const one_vector = cols <= static_cast<std::int64_t>(vector_lanes);
    (one_vector ? narrow : kernels)[static_cast<std::size_t>(rows - 1)](a, b, steps, c, next);
  }
};
/// fp32.
using ChainEngine = ChainsEngine<StepOrder::ascending, 1>;
/// bf16, pairs class: the same chain with each pair's odd step first.
using PairsEngine = ChainsEngine<StepOrder::odd_first, 2>;

/// bf16, tiles class, widened.
struct TilesEngine : PanelEngine<blocks_rows, StepOrder::ascending, 32> {
  static void multiply(std::int64_t rows, std::int64_t, float const* a, float const* b, std::int64_t steps, TileInOut c,
                       Next next) {
    static constexpr auto kernels = blocks_kernels(std::make_integer_sequence<int, blocks_rows>());
    kernels[static_cast<std::size_t>(rows - 1)](a, b, steps, c, next);
  }
};

#if HWY_TARGET == HWY_AVX3
/// bf16, tiles class, by AMX.
struct AmxEngine {
  using Element = bfloat16;
  using Session = gemm::amx::TileConfiguration;
  static constexpr std::int64_t rows = 32;
  static constexpr std::int64_t cols = 32;
  static constexpr std::int64_t pad = 32;
  static constexpr std::int64_t max_steps = 256;
  static constexpr std::int64_t slack = 0;
  static constexpr bool needs_whole_tiles = true;

  template <class T>
  static void pack_a(bfloat16* panel, Strip<T> const& strip, std::int64_t steps, std::int64_t) {
    gemm::amx::pack_rows(panel, strip, steps);
  }
  template <class T>
  static void pack_b(bfloat16* panel, Strip<T> const& strip, std::int64_t steps, std::int64_t) {
    gemm::amx::pack_cols(panel, strip, steps);
  }
  static void multiply(std::int64_t num_rows, std::int64_t num_cols, bfloat16 const* a, bfloat16 const* b,
                       std::int64_t steps, TileInOut c, Next next) {
    gemm::amx::multiply(a, b, steps, num_rows, num_cols, c, next);
  }
  static void finish(float const* tile, Matrix<float> c, Matrix<float const> residual) {
    finish_tile(tile, cols, c, residual);
  }
  static void finish(float const* tile, Matrix<bfloat16> c, Matrix<bfloat16 const> residual) {
    if (c.col_stride == 1 && (!residual.data || residual.col_stride == 1)) {
      gemm::amx::finish(tile, c, residual);
    } else {
      finish_tile(tile, cols, c, residual);
    }
  }
};
#endif

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
