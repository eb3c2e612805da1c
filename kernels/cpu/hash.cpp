#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/hash.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <atomic>
#include <bit>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/reduce.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// Integers only, so that the compiler's own vector form is as good as one by hand and the same on every target.
inline std::uint64_t hash_range(float const* x, std::uint64_t first_position, std::int64_t begin, std::int64_t end) {
  std::uint64_t sum = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    std::uint64_t const position = first_position + static_cast<std::uint64_t>(i);
    sum += hash_mix(position, std::bit_cast<std::uint32_t>(x[i]));
  }
  return sum;
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {

std::uint64_t hash(Cpu const& at, std::span<float const> x, std::uint64_t first_position) {
  std::atomic<std::uint64_t> total = 0;
  at.parallel_for(static_cast<std::int64_t>(x.size()), elements_per_piece, [&](std::int64_t begin, std::int64_t end) {
    total += ISOTRAIN_DISPATCH(hash_range)(x.data(), first_position, begin, end);
  });
  return total;
}

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
