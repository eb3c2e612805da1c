// Sixteen fp32 numbers as one value on every instruction set: one AVX-512 vector, two AVX2, four NEON, or sixteen
// scalars. Kernels written with it give the same bits everywhere. Included once per Highway target.
#if defined(ISOTRAIN_KERNELS_SIMD_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOTRAIN_KERNELS_SIMD_INL
#undef ISOTRAIN_KERNELS_SIMD_INL
#else
#define ISOTRAIN_KERNELS_SIMD_INL
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "lib/base/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using VecF32 = hn::Vec<F32>;
inline constexpr std::size_t vector_lanes = hn::MaxLanes(F32());
inline constexpr std::size_t num_vectors = 16 / vector_lanes;
inline constexpr std::int64_t block_lanes = 16;

/// a * b + c with one rounding. Highway's scalar form rounds twice, so that one is ours.
HWY_INLINE VecF32 fused(VecF32 a, VecF32 b, VecF32 c) {
#if HWY_TARGET == HWY_SCALAR
  return VecF32(std::fma(a.raw, b.raw, c.raw));
#else
  return hn::MulAdd(a, b, c);
#endif
}

struct F32x16 {
  VecF32 v[num_vectors];
};

template <class F>
HWY_INLINE F32x16 map(F const& f) {
  F32x16 r;
  for (std::size_t i = 0; i < num_vectors; ++i) r.v[i] = f(i);
  return r;
}

HWY_INLINE F32x16 splat(float x) {
  return map([&](std::size_t) { return hn::Set(F32(), x); });
}
HWY_INLINE F32x16 operator+(F32x16 a, F32x16 b) {
  return map([&](std::size_t i) { return hn::Add(a.v[i], b.v[i]); });
}
HWY_INLINE F32x16 operator-(F32x16 a, F32x16 b) {
  return map([&](std::size_t i) { return hn::Sub(a.v[i], b.v[i]); });
}
HWY_INLINE F32x16 operator*(F32x16 a, F32x16 b) {
  return map([&](std::size_t i) { return hn::Mul(a.v[i], b.v[i]); });
}
HWY_INLINE F32x16 operator/(F32x16 a, F32x16 b) {
  return map([&](std::size_t i) { return hn::Div(a.v[i], b.v[i]); });
}
HWY_INLINE F32x16 fused(F32x16 a, F32x16 b, F32x16 c) {
  return map([&](std::size_t i) { return fused(a.v[i], b.v[i], c.v[i]); });
}
HWY_INLINE F32x16 square_root(F32x16 a) {
  return map([&](std::size_t i) { return hn::Sqrt(a.v[i]); });
}
/// The larger number, b where a is not greater (so NaN in b passes, NaN in a gives b), the same on every target.
HWY_INLINE F32x16 larger(F32x16 a, F32x16 b) {
  return map([&](std::size_t i) { return hn::IfThenElse(hn::Gt(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}

HWY_INLINE F32x16 load(float const* p) {
  return map([&](std::size_t i) { return hn::LoadU(F32(), p + i * vector_lanes); });
}
HWY_INLINE void store(F32x16 a, float* p) {
  for (std::size_t i = 0; i < num_vectors; ++i) hn::StoreU(a.v[i], F32(), p + i * vector_lanes);
}
HWY_INLINE F32x16 load(bfloat16 const* p) {
  using U32 = hn::RebindToUnsigned<F32>;
  using U16 = hn::Rebind<std::uint16_t, F32>;
  auto const* bits = reinterpret_cast<std::uint16_t const*>(p);
  return map([&](std::size_t i) {
    auto const wide = hn::PromoteTo(U32(), hn::LoadU(U16(), bits + i * vector_lanes));
    return hn::BitCast(F32(), hn::ShiftLeft<16>(wide));
  });
}
/// Rounds to nearest even, as to_bfloat16 does.
HWY_INLINE void store(F32x16 a, bfloat16* p) {
  using U32 = hn::RebindToUnsigned<F32>;
  using U16 = hn::Rebind<std::uint16_t, F32>;
  U32 const u32;
  auto* bits = reinterpret_cast<std::uint16_t*>(p);
  for (std::size_t i = 0; i < num_vectors; ++i) {
    auto const u = hn::BitCast(u32, a.v[i]);
    auto const odd = hn::And(hn::ShiftRight<16>(u), hn::Set(u32, 1));
    auto const rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(hn::Set(u32, 0x7fff), odd)));
    auto const quiet = hn::Or(hn::ShiftRight<16>(u), hn::Set(u32, 0x40));
    auto const magnitude = hn::And(u, hn::Set(u32, 0x7fffffff));
    auto const nan =
        hn::Gt(hn::BitCast(hn::RebindToSigned<F32>(), magnitude), hn::Set(hn::RebindToSigned<F32>(), 0x7f800000));
    auto const chosen = hn::IfThenElse(hn::RebindMask(u32, nan), quiet, rounded);
    hn::StoreU(hn::TruncateTo(U16(), chosen), U16(), bits + i * vector_lanes);
  }
}

/// The first n of 16 elements (others `rest`), and storing the first n: the ends of rows.
template <class T>
HWY_INLINE F32x16 load_first(T const* p, std::int64_t n, float rest = 0) {
  if (n >= block_lanes) return load(p);
  float copy[block_lanes];
  for (std::int64_t i = 0; i < block_lanes; ++i) copy[i] = i < n ? to_float(p[i]) : rest;
  return load(copy);
}
template <class T>
HWY_INLINE void store_first(F32x16 a, T* p, std::int64_t n) {
  if (n >= block_lanes) return store(a, p);
  T copy[block_lanes];
  store(a, copy);
  for (std::int64_t i = 0; i < n; ++i) p[i] = copy[i];
}

/// The fixed tree over 16 partial sums: distances 8, 4, 2, 1, left operand the lower index.
HWY_INLINE float tree_sum(F32x16 a) {
  float s[block_lanes];
  store(a, s);
  for (int distance = 8; distance > 0; distance /= 2) {
    for (int i = 0; i < distance; ++i) s[i] = s[i] + s[i + distance];
  }
  return s[0];
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
