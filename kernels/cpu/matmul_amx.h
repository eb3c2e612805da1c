#pragma once

#include <cstdint>

#include "kernels/accumulate.h"
#include "kernels/cpu/matmul_strip.h"
#include "kernels/cpu/matmul_tile.h"
#include "lib/base/bfloat16.h"
#include "lib/base/matrix.h"

/// The tiles class of bf16 products by AMX: one tdpbf16ps is its definition for 16 x 16 elements and a block of 32
/// steps. To be called only where amx_usable() (lib/device/amx.h) holds.
namespace isotrain::kernels::gemm::amx {

inline constexpr std::int64_t tile = 16;   // rows, or columns, of one hardware tile
inline constexpr std::int64_t block = 32;  // steps of K in one

/// Configures the tile registers of the calling thread while it lives.
class TileConfiguration {
 public:
  TileConfiguration();
  ~TileConfiguration();
  TileConfiguration(TileConfiguration const&) = delete;
  TileConfiguration& operator=(TileConfiguration const&) = delete;
};

/// Packs up to 32 rows of A: for each block of steps two tiles [row][step]. Missing steps are zero, missing rows
/// undefined.
void pack_rows(bfloat16* panel, Strip<bfloat16> const& rows, std::int64_t steps);
/// Packs up to 32 columns of B: for each block of steps two tiles [pair of steps][column][step of pair].
void pack_cols(bfloat16* panel, Strip<bfloat16> const& cols, std::int64_t steps);

/// 32 x 32 elements of C from a panel of A and one of B; `steps` is a multiple of 32. Only the first `rows` and `cols`
/// are computed, rounded up to 16; all of those are read and written.
void multiply(bfloat16 const* a, bfloat16 const* b, std::int64_t steps, std::int64_t rows, std::int64_t cols,
              TileInOut c, Next next);
/// The same for C [+]= A B, nothing fetched. No structures: a small product would wait longer for them to be copied to
/// the stack, behind the sums of the product before, than it takes.
void multiply(float* c, std::int64_t stride, bfloat16 const* a, bfloat16 const* b, std::int64_t steps,
              std::int64_t rows, std::int64_t cols, Accumulate accumulate);

/// Rounds 32 x 32 contiguous fp32 elements to one block of a panel: of pack_rows, rows being vectors, and of pack_cols,
/// rows being steps of K. Subnormal numbers become 0.
void round_rows(bfloat16* panel, float const* elements);
void round_cols(bfloat16* panel, float const* elements);

/// out = in^T; rows and columns of both are multiples of 16.
void transpose(float* out, std::int64_t out_stride, Matrix<float const> in);

/// C = round(tile [+ residual]) for a tile of 32 columns; rows of C and of the residual are contiguous. Rounds as
/// to_bfloat16 does: a sum of this class is never subnormal, so it does not matter that the instruction flushes.
void finish(float const* tile_of_c, Matrix<bfloat16> c, Matrix<bfloat16 const> residual);

}  // namespace isotrain::kernels::gemm::amx
