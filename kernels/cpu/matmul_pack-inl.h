// Packs strips of A or B into panels for the micro-kernels: `width` rows side by side for each step of K, as fp32.
// Included once per Highway target.
#if defined(ISOTRAIN_KERNELS_MATMUL_PACK_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOTRAIN_KERNELS_MATMUL_PACK_INL
#undef ISOTRAIN_KERNELS_MATMUL_PACK_INL
#else
#define ISOTRAIN_KERNELS_MATMUL_PACK_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/matmul_strip.h"
#include "kernels/cpu/simd-inl.h"
#include "lib/base/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

using gemm::Strip;

/// Order of the steps in a panel: as they come, or each pair's odd step first.
enum class StepOrder { ascending, odd_first };

template <class D, class T>
HWY_INLINE hn::Vec<D> load_as_float(D d, T const* p) {
  if constexpr (sizeof(T) == 4) {
    return hn::LoadU(d, p);
  } else {
    hn::RebindToUnsigned<D> const u32;
    hn::Rebind<std::uint16_t, D> const u16;
    return hn::BitCast(
        d, hn::ShiftLeft<16>(hn::PromoteTo(u32, hn::LoadU(u16, reinterpret_cast<std::uint16_t const*>(p)))));
  }
}

/// Writes steps [from, padded) of a panel, any strides. Missing steps and vectors become zero.
template <int width, StepOrder order, class T>
HWY_INLINE void pack_scalar(float* panel, Strip<T> const& strip, std::int64_t steps, std::int64_t from,
                            std::int64_t padded) {
  for (std::int64_t p = from; p < padded; ++p) {
    std::int64_t const k = order == StepOrder::odd_first ? p ^ 1 : p;
    T const* const source = strip.data + k * strip.k_stride;
    for (std::int64_t i = 0; i < width; ++i) {
      panel[p * width + i] = k < steps && i < strip.count ? to_float(source[i * strip.stride]) : 0.0F;
    }
  }
}

#if HWY_TARGET == HWY_SCALAR
template <int width, StepOrder order, class T>
void pack_panel(float* panel, Strip<T> const& strip, std::int64_t steps, std::int64_t padded) {
  pack_scalar<width, order>(panel, strip, steps, 0, padded);
}
#else

/// The vector that a row of a panel is stored with, and how many of them; a last one that is not filled must be the
/// only one.
template <int width>
using PackTag = hn::CappedTag<float, std::min<std::size_t>(vector_lanes, std::bit_ceil(static_cast<unsigned>(width)))>;
template <int width>
inline constexpr std::int64_t pack_groups =
    (width + hn::MaxLanes(PackTag<width>()) - 1) / hn::MaxLanes(PackTag<width>());

/// Four steps of K of lanes(d) rows; 128-bit block j holds row[4 j].
template <class D, class T>
HWY_INLINE hn::Vec<D> load_blocks(D d, T const* const* row, std::int64_t k) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, row[0] + k);
  } else {
    hn::Half<D> const half;
    return hn::Combine(d, load_blocks(half, row + hn::MaxLanes(D()) / 2, k), load_blocks(half, row, k));
  }
}
template <class D>
HWY_INLINE hn::Vec<D> load_blocks_as_float(D d, float const* const* row, std::int64_t k) {
  return load_blocks(d, row, k);
}
template <class D>
HWY_INLINE hn::Vec<D> load_blocks_as_float(D d, std::uint16_t const* const* row, std::int64_t k) {
  hn::RebindToUnsigned<D> const u32;
  hn::Rebind<std::uint16_t, D> const u16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(u32, load_blocks(u16, row, k))));
}

/// K contiguous: transposes blocks of four steps. Stores whole vectors, upwards, so that each overwrites what the one
/// before wrote beyond its row.
template <int width, StepOrder order, class T>
HWY_INLINE void pack_transposed(float* panel, Strip<T> const& strip, std::int64_t steps) {
  using D = PackTag<width>;
  D const d;
  hn::Repartition<std::uint64_t, D> const d64;
  constexpr std::int64_t lanes = hn::MaxLanes(D());
  constexpr std::int64_t groups = pack_groups<width>;
  using Raw = std::conditional_t<sizeof(T) == 4, float, std::uint16_t>;
  Raw const* rows[groups * lanes];
  for (std::int64_t i = 0; i < groups * lanes; ++i) {
    // Rows that the strip lacks repeat its last one; no result of theirs is kept.
    rows[i] = reinterpret_cast<Raw const*>(strip.data + std::min(i, strip.count - 1) * strip.stride);
  }
  for (std::int64_t g = 0; g < groups; ++g) {
    Raw const* const* const row = rows + g * lanes;
    float* out = panel + g * lanes;
    for (std::int64_t k = 0; k + 4 <= steps; k += 4, out += 4 * width) {
      auto const r0 = load_blocks_as_float(d, row, k);
      auto const r1 = load_blocks_as_float(d, row + 1, k);
      auto const r2 = load_blocks_as_float(d, row + 2, k);
      auto const r3 = load_blocks_as_float(d, row + 3, k);
      auto const low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
      auto const low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
      auto const high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
      auto const high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
      auto const k0 = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
      auto const k1 = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
      auto const k2 = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
      auto const k3 = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
      constexpr bool swap = order == StepOrder::odd_first;
      hn::StoreU(swap ? k1 : k0, d, out);
      hn::StoreU(swap ? k0 : k1, d, out + width);
      hn::StoreU(swap ? k3 : k2, d, out + 2 * width);
      hn::StoreU(swap ? k2 : k3, d, out + 3 * width);
    }
  }
}

/// The strip's vectors contiguous: copies. Same stores as above.
template <int width, StepOrder order, class T>
HWY_INLINE void pack_copied(float* panel, Strip<T> const& strip, std::int64_t steps) {
  PackTag<width> const d;
  constexpr std::int64_t lanes = hn::MaxLanes(PackTag<width>());
  constexpr std::int64_t groups = pack_groups<width>;
  for (std::int64_t p = 0; p < steps; ++p) {
    T const* const source = strip.data + (order == StepOrder::odd_first ? p ^ 1 : p) * strip.k_stride;
    for (std::int64_t g = 0; g < groups; ++g) {
      hn::StoreU(load_as_float(d, source + g * lanes), d, panel + p * width + g * lanes);
    }
  }
}

/// Packs `steps` steps of a strip, then zeros up to `padded`. Writes up to one vector beyond the panel's end.
template <int width, StepOrder order, class T>
HWY_NOINLINE void pack_panel(float* panel, Strip<T> const& strip, std::int64_t steps, std::int64_t padded) {
  constexpr std::int64_t written = pack_groups<width> * hn::MaxLanes(PackTag<width>());
  static_assert(written == width || pack_groups<width> == 1);
  std::int64_t packed = 0;
  if (strip.k_stride == 1) {
    packed = steps / 4 * 4;
    pack_transposed<width, order>(panel, strip, packed);
  } else if (strip.stride == 1 && strip.available >= written) {
    packed = steps / 2 * 2;
    pack_copied<width, order>(panel, strip, packed);
  }
  pack_scalar<width, order>(panel, strip, steps, packed, padded);
}
#endif

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
