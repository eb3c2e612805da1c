// exp, log and sigmoid of sixteen fp32 numbers: fixed polynomials of explicit FMAs, so that every instruction set gives
// the same bits, whether or not the thread flushes subnormals. Included once per Highway target.
#if defined(ISOTRAIN_KERNELS_MATH_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOTRAIN_KERNELS_MATH_INL
#undef ISOTRAIN_KERNELS_MATH_INL
#else
#define ISOTRAIN_KERNELS_MATH_INL
#endif

#include <cstdint>
#include <limits>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

using VecU32 = hn::Vec<hn::RebindToUnsigned<F32>>;
using VecI32 = hn::Vec<hn::RebindToSigned<F32>>;

HWY_INLINE VecF32 constant(float x) {
  return hn::Set(F32(), x);
}

/// Below it e^x is subnormal and the result is 0; the smallest x whose e^x is a normal number.
inline constexpr float exponential_low = -0x1.5d589ep+6F;
/// The largest x whose e^x is finite.
inline constexpr float exponential_high = 0x1.62e42ep+6F;

/// e^x, error below 1 ulp: 1 at 0; 0 where e^x < 2^-126; infinity above exponential_high; NaN stays NaN.
HWY_INLINE VecF32 exponential(VecF32 x) {
  hn::RebindToUnsigned<F32> const u32;
  // Adding 1.5 * 2^23 rounds to an integer n and leaves it in the low bits of the sum.
  VecF32 const magic = constant(0x1.8p23F);
  VecF32 const shifted = fused(x, constant(0x1.715476p0F), magic);
  VecF32 const n = hn::Sub(shifted, magic);
  VecF32 r = fused(n, constant(-0x1.63p-1F), x);  // ln 2 in two parts; the product with the first is exact
  r = fused(n, constant(0x1.bd0106p-13F), r);
  VecF32 p = constant(0x1.6a23ccp-10F);
  p = fused(p, r, constant(0x1.123a20p-7F));
  p = fused(p, r, constant(0x1.5558f2p-5F));
  p = fused(p, r, constant(0x1.555492p-3F));
  p = fused(p, r, constant(0x1.fffffcp-2F));
  p = fused(p, r, constant(1.0F));
  p = fused(p, r, constant(1.0F));
  // p is in (0.7, 1.42), so that adding n to its exponent gives a normal number for all x in range.
  auto const bits = hn::Add(hn::BitCast(u32, p), hn::ShiftLeft<23>(hn::BitCast(u32, shifted)));
  VecF32 const in_range = hn::BitCast(F32(), bits);
  VecF32 const beyond = hn::Add(x, constant(std::numeric_limits<float>::infinity()));  // infinity, or NaN for NaN
  VecF32 const y = hn::IfThenElse(hn::Le(x, constant(exponential_high)), in_range, beyond);
  return hn::IfThenElse(hn::Lt(x, constant(exponential_low)), hn::Zero(F32()), y);
}

/// Natural logarithm, error below 1 ulp: 0 at 1; -infinity at +-0 and subnormals; NaN for negative numbers; infinity
/// stays.
HWY_INLINE VecF32 logarithm(VecF32 x) {
  hn::RebindToUnsigned<F32> const u32;
  hn::RebindToSigned<F32> const i32;
  VecI32 const bits = hn::BitCast(i32, x);
  // x = 2^k m with m in [sqrt(1/2), sqrt(2)): subtract the bits of sqrt(1/2), split, add them again.
  VecI32 const offset = hn::Sub(bits, hn::Set(i32, 0x3f3504f3));
  VecI32 const exponent = hn::ShiftRight<23>(offset);
  VecF32 const k = hn::ConvertTo(F32(), exponent);
  VecF32 const m = hn::BitCast(F32(), hn::Sub(bits, hn::ShiftLeft<23>(exponent)));
  VecF32 const f = hn::Sub(m, constant(1.0F));
  VecF32 const square = hn::Mul(f, f);
  VecF32 p = constant(0x1.145742p-4F);
  p = fused(p, f, constant(-0x1.de3b96p-4F));
  p = fused(p, f, constant(0x1.e6f054p-4F));
  p = fused(p, f, constant(-0x1.fc221cp-4F));
  p = fused(p, f, constant(0x1.23376cp-3F));
  p = fused(p, f, constant(-0x1.555c4cp-3F));
  p = fused(p, f, constant(0x1.99a4b6p-3F));
  p = fused(p, f, constant(-0x1.000006p-2F));
  p = fused(p, f, constant(0x1.555548p-2F));
  p = hn::Mul(hn::Mul(p, f), square);
  // Smallest terms first: the low part of k ln 2, the tail of the series, f, the high part (exact).
  p = fused(k, constant(-0x1.bd0106p-13F), p);
  p = fused(square, constant(-0.5F), p);
  VecF32 const finite = fused(k, constant(0x1.63p-1F), hn::Add(f, p));

  VecI32 const magnitude = hn::And(bits, hn::Set(i32, 0x7fffffff));
  auto const zero = hn::Lt(magnitude, hn::Set(i32, 0x00800000));
  auto const not_finite = hn::Gt(magnitude, hn::Set(i32, 0x7f7fffff));
  auto const negative = hn::Lt(bits, hn::Zero(i32));
  auto const nan = hn::Gt(magnitude, hn::Set(i32, 0x7f800000));
  auto const as_mask = [](auto mask) { return hn::RebindMask(F32(), mask); };
  VecF32 y = hn::IfThenElse(as_mask(not_finite), x, finite);
  y = hn::IfThenElse(as_mask(negative), hn::BitCast(F32(), hn::Set(u32, 0x7fc00000u)), y);
  y = hn::IfThenElse(as_mask(nan), hn::BitCast(F32(), hn::Or(bits, hn::Set(i32, 0x00400000))), y);
  return hn::IfThenElse(as_mask(zero), constant(-std::numeric_limits<float>::infinity()), y);
}

/// 1 / (1 + e^-x), error below 2.5 ulp: 0 where it would be subnormal; NaN stays NaN.
HWY_INLINE VecF32 sigmoid(VecF32 x) {
  VecF32 const one = constant(1.0F);
  VecF32 const y = hn::Div(one, hn::Add(one, exponential(hn::Neg(x))));
  return hn::IfThenElse(hn::Lt(x, constant(exponential_low)), hn::Zero(F32()), y);
}

HWY_INLINE F32x16 exponential(F32x16 x) {
  return map([&](std::size_t i) { return exponential(x.v[i]); });
}
HWY_INLINE F32x16 logarithm(F32x16 x) {
  return map([&](std::size_t i) { return logarithm(x.v[i]); });
}
HWY_INLINE F32x16 sigmoid(F32x16 x) {
  return map([&](std::size_t i) { return sigmoid(x.v[i]); });
}

/// One number: a lane of the same code.
HWY_INLINE float exponential(float x) {
  return hn::GetLane(exponential(constant(x)));
}
HWY_INLINE float logarithm(float x) {
  return hn::GetLane(logarithm(constant(x)));
}
HWY_INLINE float sigmoid(float x) {
  return hn::GetLane(sigmoid(constant(x)));
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
