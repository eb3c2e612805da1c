// Copies between heads of tokens and fp32 panels (attention-tile-inl.h), and what both passes of attention do to rows.
// Included once per Highway target.
#if defined(ISOTRAIN_KERNELS_ATTENTION_PANELS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOTRAIN_KERNELS_ATTENTION_PANELS_INL
#undef ISOTRAIN_KERNELS_ATTENTION_PANELS_INL
#else
#define ISOTRAIN_KERNELS_ATTENTION_PANELS_INL
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// From panel to panel, of a matrix of so many rows: one line more than they need, or panels fall on the same sets of a
/// cache.
HWY_INLINE constexpr std::int64_t panel_stride(std::int64_t rows) {
  return rows * 16 + 16;
}
HWY_INLINE constexpr std::int64_t num_panels(std::int64_t width) {
  return (width + 15) / 16;
}
/// Floats of a matrix in panels.
HWY_INLINE constexpr std::int64_t panels_size(std::int64_t rows, std::int64_t width) {
  return num_panels(width) * panel_stride(rows);
}

/// `rows` rows of `width` elements into panels of `padded` rows; what is beyond either becomes 0.
template <class T>
void pack(float* panels, std::int64_t padded, T const* x, std::int64_t row_stride, std::int64_t rows,
          std::int64_t width) {
  std::int64_t const stride = panel_stride(padded);
  for (std::int64_t r = 0; r < rows; ++r, x += row_stride) {
    float* out = panels + r * 16;
    std::int64_t i = 0;
    for (; i + 16 <= width; i += 16, out += stride) store(load(x + i), out);
    if (i < width) store(load_first(x + i, width - i), out);
  }
  for (std::int64_t p = 0; p < num_panels(width); ++p) {
    std::fill(panels + p * stride + rows * 16, panels + p * stride + padded * 16, 0.0F);
  }
}

/// The transposed matrix in panels of `width` rows, from panels of `padded` rows, a multiple of 16.
inline void transpose(float* transposed, float const* panels, std::int64_t padded, std::int64_t width) {
  for (std::int64_t row = 0; row < padded; row += 16) {
    float* out = transposed + row / 16 * panel_stride(width);
    for (std::int64_t column = 0; column < width; column += 16) {
      float const* in = panels + column / 16 * panel_stride(padded) + row * 16;
      std::int64_t const columns = std::min<std::int64_t>(16, width - column);
      for (std::int64_t i = 0; i < columns; ++i, out += 16) {
        for (std::int64_t j = 0; j < 16; ++j) out[j] = in[j * 16 + i];
      }
    }
  }
}

/// The reverse of pack, of x * factor + 0, rounded once. The sum with +0 takes the sign from zeros: masked scores are
/// zeros in the products, and a zero may only change the sign of a zero.
template <class T>
void unpack_row(T* x, float const* panels, std::int64_t stride, std::int64_t width, F32x16 factor) {
  for (std::int64_t first = 0; first < width; first += 16, panels += stride) {
    store_first(load(panels) * factor + splat(0.0F), x + first, width - first);
  }
}

/// x as it is after a store to T and a load.
template <class T>
HWY_INLINE F32x16 rounded(F32x16 x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return map([&](std::size_t i) {
      hn::RebindToUnsigned<F32> const u32;
      auto const u = hn::BitCast(u32, x.v[i]);
      auto const odd = hn::And(hn::ShiftRight<16>(u), hn::Set(u32, 1));
      auto const up = hn::Add(u, hn::Add(hn::Set(u32, 0x7fff), odd));
      VecF32 const y = hn::BitCast(F32(), hn::And(up, hn::Set(u32, 0xffff0000u)));
      return hn::IfThenElse(hn::Eq(x.v[i], x.v[i]), y, x.v[i]);
    });
  }
}

/// The first `count` lanes of x, `rest` in the others.
HWY_INLINE F32x16 first_lanes(F32x16 x, std::int64_t count, float rest) {
  return map([&](std::size_t i) {
    auto const index = hn::Iota(F32(), static_cast<float>(i * vector_lanes));
    return hn::IfThenElse(hn::Lt(index, hn::Set(F32(), static_cast<float>(count))), x.v[i], hn::Set(F32(), rest));
  });
}

/// Lanes [begin, end) of x, 0 in the others.
HWY_INLINE F32x16 lanes_between(F32x16 x, std::int64_t begin, std::int64_t end) {
  return map([&](std::size_t i) {
    auto const index = hn::Iota(F32(), static_cast<float>(i * vector_lanes));
    auto const inside = hn::And(hn::Ge(index, hn::Set(F32(), static_cast<float>(begin))),
                                hn::Lt(index, hn::Set(F32(), static_cast<float>(end))));
    return hn::IfThenElseZero(inside, x.v[i]);
  });
}

/// Sum of the products of two rows: 16 partial sums, then the tree.
template <class T>
HWY_INLINE float dot(T const* a, T const* b, std::int64_t count) {
  F32x16 sum = splat(0.0F);
  for (std::int64_t i = 0; i < count; i += 16) {
    sum = fused(load_first(a + i, count - i), load_first(b + i, count - i), sum);
  }
  return tree_sum(sum);
}

/// The largest of sixteen numbers, none of them NaN.
HWY_INLINE float largest(F32x16 a) {
  float s[16];
  store(a, s);
  float m = s[0];
  for (int i = 1; i < 16; ++i) m = m > s[i] ? m : s[i];
  return m;
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
