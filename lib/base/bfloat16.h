#pragma once

#include <bit>
#include <cstdint>

namespace isotrain {

/// The upper half of an fp32 number: 1 sign, 8 exponent, 7 mantissa bits.
struct bfloat16 {
  std::uint16_t bits = 0;

  bool operator==(bfloat16 const&) const = default;
};

inline float to_float(bfloat16 x) {
  return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}
inline float to_float(float x) {
  return x;
}

/// Rounds to nearest, ties to even; NaN stays a (quiet) NaN. Never flushes: subnormals round like all others.
inline bfloat16 to_bfloat16(float x) {
  auto const u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

template <class T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline bfloat16 from_float<bfloat16>(float x) {
  return to_bfloat16(x);
}

}  // namespace isotrain
