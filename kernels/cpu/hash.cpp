#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/hash.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <bit>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/reduce.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// Elements at positions that share their upper half. Integers only, in a loop that compilers turn into vectors.
inline std::uint64_t hash_run(float const* x, std::uint64_t first_position, std::int64_t count) {
  std::uint64_t const base = hash_base(first_position);
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += hash_finish(base + (static_cast<std::uint64_t>(i) << 32) + std::bit_cast<std::uint32_t>(x[i]));
  }
  return sum;
}

inline std::uint64_t hash_range(float const* x, std::uint64_t first_position, std::int64_t begin, std::int64_t end) {
  std::uint64_t sum = 0;
  while (begin < end) {
    std::uint64_t const position = first_position + static_cast<std::uint64_t>(begin);
    auto const left = static_cast<std::int64_t>((std::uint64_t{1} << 32) - (position & 0xffffffffu));
    std::int64_t const count = std::min(end - begin, left);
    sum += hash_run(x + begin, position, count);
    begin += count;
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
