#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/hash.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <type_traits>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/reduce.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// Elements at positions that share their upper half. Integers only, in a loop that compilers turn into vectors.
template <class T>
std::uint64_t hash_run(T const* x, std::uint64_t first_position, std::int64_t count) {
  std::uint64_t const base = hash_base(first_position);
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += hash_finish(base + (static_cast<std::uint64_t>(i) << 32) + std::bit_cast<Bits>(x[i]));
  }
  return sum;
}

template <class T>
std::uint64_t hash_range(T const* x, std::uint64_t first_position, std::int64_t begin, std::int64_t end) {
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
namespace {

template <class T>
std::uint64_t hash_all(Cpu const& at, std::span<T const> x, std::uint64_t first_position) {
  std::atomic<std::uint64_t> total = 0;
  at.parallel_for(static_cast<std::int64_t>(x.size()), elements_per_piece, [&](std::int64_t begin, std::int64_t end) {
    total += ISOTRAIN_DISPATCH(hash_range<T>)(x.data(), first_position, begin, end);
  });
  return total;
}

}  // namespace

std::uint64_t hash(Cpu const& at, std::span<float const> x, std::uint64_t first_position) {
  return hash_all(at, x, first_position);
}
std::uint64_t hash(Cpu const& at, std::span<bfloat16 const> x, std::uint64_t first_position) {
  return hash_all(at, x, first_position);
}

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
