// Rows of the cross-entropy, whole or a part of the vocabulary. Included once per Highway target.
#if defined(ISOTRAIN_KERNELS_CROSS_ENTROPY_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOTRAIN_KERNELS_CROSS_ENTROPY_INL
#undef ISOTRAIN_KERNELS_CROSS_ENTROPY_INL
#else
#define ISOTRAIN_KERNELS_CROSS_ENTROPY_INL
#endif

#include <cstdint>
#include <limits>

#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

inline constexpr float lowest = -std::numeric_limits<float>::infinity();

/// Minus infinity if there is none.
inline float row_maximum(float const* logits, std::int64_t count) {
  F32x16 largest = splat(lowest);
  for_blocks(count, [&](std::int64_t i, std::int64_t n)
                        ISOTRAIN_INLINE_LAMBDA { largest = larger(largest, load_first(logits + i, n, lowest)); });
  float lanes[block_lanes];
  store(largest, lanes);
  float maximum = lanes[0];
  for (float const lane : lanes) maximum = maximum > lane ? maximum : lane;
  return maximum;
}

/// Sum of exp(logit - maximum) over one run of the vocabulary, columns [begin, end); `each` gets the blocks of
/// exponentials, to keep them or not.
template <class Each>
HWY_INLINE float run_sum(float const* logits, std::int64_t begin, std::int64_t end, float maximum, Each const& each) {
  F32x16 const shift = splat(maximum);
  F32x16 sum = splat(0);
  for_blocks(begin, end, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
    F32x16 const e = exponential(load_first(logits + i, n, lowest) - shift);
    each(e, i, n);
    sum = sum + e;
  });
  return tree_sum(sum);
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
