#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/reduce.h"
#include "lib/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// Squares of fp32 numbers are exact in fp64, so it does not matter whether multiplication and addition are fused.
inline double square_sum(float const* x, std::int64_t count) {
  using F64 = hn::Rebind<double, hn::CappedTag<float, HWY_MAX_BYTES / sizeof(double)>>;
  using Narrow = hn::Rebind<float, F64>;
  constexpr std::int64_t lanes = hn::MaxLanes(F64());
  constexpr std::int64_t vectors = block_lanes / lanes;
  F64 const f64;
  hn::Vec<F64> sums[vectors];
  for (auto& sum : sums) sum = hn::Zero(f64);
  for_blocks(count, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
    float last[block_lanes] = {};
    float const* block = x + i;
    if (n < block_lanes) block = std::copy_n(block, n, last) - n;
    for (std::int64_t j = 0; j < vectors; ++j) {
      auto const wide = hn::PromoteTo(f64, hn::LoadU(Narrow(), block + j * lanes));
      sums[j] = hn::Add(sums[j], hn::Mul(wide, wide));
    }
  });
  double parts[block_lanes];
  for (std::int64_t j = 0; j < vectors; ++j) hn::StoreU(sums[j], f64, parts + j * lanes);
  for (int distance = 8; distance > 0; distance /= 2) {
    for (int i = 0; i < distance; ++i) parts[i] = parts[i] + parts[i + distance];
  }
  return parts[0];
}

template <class T>
void add_range(T* y, T const* a, T const* b, std::int64_t begin, std::int64_t end) {
  for_blocks(begin, end, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
    store_first(load_first(a + i, n) + load_first(b + i, n), y + i, n);
  });
}

/// Types is std::pair<T, R>: a list with a comma does not go through ISOTRAIN_DISPATCH.
template <class Types>
void add_rounded_range(typename Types::first_type* y, float const* sum, typename Types::second_type const* residual,
                       std::int64_t begin, std::int64_t end) {
  for_blocks(begin, end, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
    F32x16 total = load_first(sum + i, n);
    if (residual != nullptr) total = total + load_first(residual + i, n);
    store_first(total, y + i, n);
  });
}

inline void scale_range(float* y, float factor, std::int64_t begin, std::int64_t end) {
  for_blocks(begin, end, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
    store_first(load_first(y + i, n) * splat(factor), y + i, n);
  });
}

/// Whether any of x is NaN or infinite: x - x is 0 for all others.
inline bool any_non_finite(float const* x, std::int64_t count) {
  F32x16 sum = splat(0);
  for_blocks(count, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
    F32x16 const v = load_first(x + i, n);
    sum = sum + (v - v);
  });
  return !(tree_sum(sum) == 0);
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {
namespace {

std::int64_t length(auto const& span) {
  return static_cast<std::int64_t>(span.size());
}

}  // namespace

double sum_of_squares(std::span<float const> x) {
  FlushToZero const mode;
  return ISOTRAIN_DISPATCH(square_sum)(x.data(), length(x));
}

void block_sums_of_squares(Cpu const& at, std::span<double> sums, std::span<float const> x, std::int64_t block) {
  expects(block >= 1, "blocks of at least one element");
  expects(length(sums) == (length(x) + block - 1) / block, "one sum for each block");
  at.parallel_for(length(sums), rows_per_piece(block), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      sums[b] = ISOTRAIN_DISPATCH(square_sum)(x.data() + b * block, std::min(block, length(x) - b * block));
    }
  });
}

void add(Cpu const& at, std::span<float> y, std::span<float const> x) {
  add<float>(at, y, y, x);
}

template <class T>
void add(Cpu const& at, std::span<T> y, std::span<T const> a, std::span<T const> b) {
  expects(a.size() == y.size() && b.size() == y.size(), "spans of one length");
  at.parallel_for(length(y), elements_per_piece, [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(add_range<T>)(y.data(), a.data(), b.data(), begin, end);
  });
}

template <class T, class R>
void add_rounded(Cpu const& at, std::span<T> y, std::span<float const> sum, std::span<R const> residual) {
  expects(sum.size() == y.size() && (residual.empty() || residual.size() == y.size()), "spans of one length");
  using Types = std::pair<T, R>;
  R const* const second = residual.empty() ? nullptr : residual.data();
  at.parallel_for(length(y), elements_per_piece, [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(add_rounded_range<Types>)(y.data(), sum.data(), second, begin, end);
  });
}

void scale(Cpu const& at, std::span<float> y, float factor) {
  at.parallel_for(length(y), elements_per_piece, [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(scale_range)(y.data(), factor, begin, end);
  });
}

void fill_zero(Cpu const& at, std::span<float> y) {
  at.parallel_for(length(y), elements_per_piece,
                  [&](std::int64_t begin, std::int64_t end) { std::fill(y.data() + begin, y.data() + end, 0.0F); });
}

std::int64_t first_non_finite(Cpu const& at, std::span<float const> x) {
  std::atomic<std::int64_t> first = length(x);
  at.parallel_for(length(x), elements_per_piece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t piece = begin; piece < end; piece += elements_per_piece) {
      if (first.load(std::memory_order_relaxed) < piece) return;
      std::int64_t const count = std::min(elements_per_piece, end - piece);
      if (!ISOTRAIN_DISPATCH(any_non_finite)(x.data() + piece, count)) continue;
      std::int64_t const found =
          std::find_if(x.begin() + piece, x.end(), [](float v) { return !std::isfinite(v); }) - x.begin();
      for (std::int64_t known = first; found < known && !first.compare_exchange_weak(known, found);) {
      }
      return;
    }
  });
  return first == length(x) ? -1 : first.load();
}

template void add(Cpu const&, std::span<float>, std::span<float const>, std::span<float const>);
template void add(Cpu const&, std::span<bfloat16>, std::span<bfloat16 const>, std::span<bfloat16 const>);
template void add_rounded(Cpu const&, std::span<float>, std::span<float const>, std::span<float const>);
template void add_rounded(Cpu const&, std::span<float>, std::span<float const>, std::span<bfloat16 const>);
template void add_rounded(Cpu const&, std::span<bfloat16>, std::span<float const>, std::span<float const>);
template void add_rounded(Cpu const&, std::span<bfloat16>, std::span<float const>, std::span<bfloat16 const>);

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
