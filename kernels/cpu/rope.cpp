#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/rope.h"
#include "lib/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

// Highway's one-lane vectors know no neighbours, but ours of sixteen do.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE F32x16 swap_pairs(F32x16 a) {
  return map([&](std::size_t i) { return a.v[i ^ 1]; });
}
HWY_INLINE F32x16 duplicate_even(F32x16 a) {
  return map([&](std::size_t i) { return a.v[i & ~std::size_t{1}]; });
}
HWY_INLINE F32x16 duplicate_odd(F32x16 a) {
  return map([&](std::size_t i) { return a.v[i | 1]; });
}
#else
HWY_INLINE F32x16 swap_pairs(F32x16 a) {
  return map([&](std::size_t i) { return hn::Reverse2(F32(), a.v[i]); });
}
HWY_INLINE F32x16 duplicate_even(F32x16 a) {
  return map([&](std::size_t i) { return hn::DupEven(a.v[i]); });
}
HWY_INLINE F32x16 duplicate_odd(F32x16 a) {
  return map([&](std::size_t i) { return hn::DupOdd(a.v[i]); });
}
#endif

template <class T>
void rotate_interleaved(Heads<T> x, float const* table, std::int32_t const* positions, Rotation rotation,
                        std::int64_t begin, std::int64_t end) {
  float signs[block_lanes];
  for (int i = 0; i < block_lanes; ++i) signs[i] = (i % 2 == 0) == (rotation == Rotation::forward) ? -1.0F : 1.0F;
  F32x16 const sign = load(signs);
  for (std::int64_t row = begin; row < end; ++row) {
    float const* const angles = table + positions[row] * x.dim;
    for_blocks(x.dim, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
      F32x16 const angle = load_first(angles + i, n);
      F32x16 const cosine = duplicate_even(angle);
      F32x16 const sine = duplicate_odd(angle) * sign;
      for (std::int64_t head = 0; head < x.heads; ++head) {
        T* const p = x.at(row, head) + i;
        F32x16 const v = load_first(p, n);
        store_first(fused(swap_pairs(v), sine, v * cosine), p, n);
      }
    });
  }
}

template <class T>
void rotate_half_split(Heads<T> x, float const* table, std::int32_t const* positions, Rotation rotation,
                       std::int64_t begin, std::int64_t end) {
  std::int64_t const half = x.dim / 2;
  F32x16 const sign = splat(rotation == Rotation::forward ? 1.0F : -1.0F);
  for (std::int64_t row = begin; row < end; ++row) {
    float const* const angles = table + positions[row] * x.dim;
    for_blocks(half, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
      float cosines[block_lanes] = {};
      float sines[block_lanes] = {};
      for (std::int64_t j = 0; j < n; ++j) {
        cosines[j] = angles[2 * (i + j)];
        sines[j] = angles[2 * (i + j) + 1];
      }
      F32x16 const cosine = load(cosines);
      F32x16 const sine = load(sines) * sign;
      F32x16 const minus_sine = splat(0) - sine;
      for (std::int64_t head = 0; head < x.heads; ++head) {
        T* const p = x.at(row, head) + i;
        F32x16 const x0 = load_first(p, n);
        F32x16 const x1 = load_first(p + half, n);
        store_first(fused(x1, minus_sine, x0 * cosine), p, n);
        store_first(fused(x0, sine, x1 * cosine), p + half, n);
      }
    });
  }
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {

template <class T>
void rope(Cpu const& at, Heads<T> x, std::span<float const> table, std::span<std::int32_t const> positions,
          RopePairs pairs, Rotation rotation) {
  expects(x.dim % 2 == 0, "an even rotary width");
  expects(positions.size() == static_cast<std::size_t>(x.rows), "one position for each row");
  for (std::int32_t const position : positions) {
    expects(position >= 0 && (position + std::int64_t{1}) * x.dim <= static_cast<std::int64_t>(table.size()),
            "positions inside the table");
  }
  at.parallel_for(x.rows, rows_per_piece(x.heads * x.dim), [&](std::int64_t begin, std::int64_t end) {
    if (pairs == RopePairs::interleaved) {
      ISOTRAIN_DISPATCH(rotate_interleaved<T>)(x, table.data(), positions.data(), rotation, begin, end);
    } else {
      ISOTRAIN_DISPATCH(rotate_half_split<T>)(x, table.data(), positions.data(), rotation, begin, end);
    }
  });
}

template void rope(Cpu const&, Heads<float>, std::span<float const>, std::span<std::int32_t const>, RopePairs,
                   Rotation);
template void rope(Cpu const&, Heads<bfloat16>, std::span<float const>, std::span<std::int32_t const>, RopePairs,
                   Rotation);

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
