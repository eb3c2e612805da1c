// Compiles the matrix product for each instruction set and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_part.cpp"
#include "kernels/cpu/matmul_part.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/matmul_driver-inl.h"
#include "lib/device/amx.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

template <class Out>
void multiply_bf16(gemm::Sum<bfloat16, Out> const& sum, gemm::Range rows, gemm::Range cols, Bf16Class bf16) {
#if HWY_TARGET == HWY_AVX3
  if (bf16 == Bf16Class::tiles && amx_usable()) return PartOfProduct<AmxEngine, bfloat16, Out>(sum, rows, cols)();
#endif
  if (bf16 == Bf16Class::tiles) {
    PartOfProduct<TilesEngine, bfloat16, Out>(sum, rows, cols)();
  } else {
    PartOfProduct<PairsEngine, bfloat16, Out>(sum, rows, cols)();
  }
}

void multiply_f32(gemm::Sum<float, float> const& sum, gemm::Range rows, gemm::Range cols) {
  PartOfProduct<ChainEngine, float, float>(sum, rows, cols)();
}
void multiply_bf16_to_f32(gemm::Sum<bfloat16, float> const& sum, gemm::Range rows, gemm::Range cols, Bf16Class bf16) {
  multiply_bf16(sum, rows, cols, bf16);
}
void multiply_bf16_to_bf16(gemm::Sum<bfloat16, bfloat16> const& sum, gemm::Range rows, gemm::Range cols,
                           Bf16Class bf16) {
  multiply_bf16(sum, rows, cols, bf16);
}

gemm::TileShape tile_shape_f32() {
  return {ChainEngine::rows, ChainEngine::cols};
}
gemm::TileShape tile_shape_bf16(Bf16Class bf16) {
#if HWY_TARGET == HWY_AVX3
  if (bf16 == Bf16Class::tiles && amx_usable()) return {AmxEngine::rows, AmxEngine::cols};
#endif
  return bf16 == Bf16Class::tiles ? gemm::TileShape{TilesEngine::rows, TilesEngine::cols}
                                  : gemm::TileShape{PairsEngine::rows, PairsEngine::cols};
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {

HWY_EXPORT(multiply_f32);
HWY_EXPORT(multiply_bf16_to_f32);
HWY_EXPORT(multiply_bf16_to_bf16);
HWY_EXPORT(tile_shape_f32);
HWY_EXPORT(tile_shape_bf16);

namespace gemm {

template <>
TileShape tile_shape<float>(Bf16Class) {
  return HWY_DYNAMIC_DISPATCH(tile_shape_f32)();
}
template <>
TileShape tile_shape<bfloat16>(Bf16Class bf16) {
  return HWY_DYNAMIC_DISPATCH(tile_shape_bf16)(bf16);
}

template <>
void multiply_part(Sum<float, float> const& sum, Range rows, Range cols, Bf16Class) {
  HWY_DYNAMIC_DISPATCH(multiply_f32)(sum, rows, cols);
}
template <>
void multiply_part(Sum<bfloat16, float> const& sum, Range rows, Range cols, Bf16Class bf16) {
  HWY_DYNAMIC_DISPATCH(multiply_bf16_to_f32)(sum, rows, cols, bf16);
}
template <>
void multiply_part(Sum<bfloat16, bfloat16> const& sum, Range rows, Range cols, Bf16Class bf16) {
  HWY_DYNAMIC_DISPATCH(multiply_bf16_to_bf16)(sum, rows, cols, bf16);
}

}  // namespace gemm
}  // namespace isotrain::kernels
#endif  // HWY_ONCE
