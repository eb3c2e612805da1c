#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/convert.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/reduce.h"
#include "lib/base/error.h"

#ifndef ISOTRAIN_KERNELS_CONVERSION
#define ISOTRAIN_KERNELS_CONVERSION
namespace isotrain::kernels {
/// Two types in one, since a macro's argument cannot hold a comma.
template <class Target, class Source>
struct Conversion {
  using To = Target;
  using From = Source;
};
}  // namespace isotrain::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

template <class Types>
void convert_range(typename Types::To* y, typename Types::From const* x, std::int64_t begin, std::int64_t end) {
  for_blocks(begin, end, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
    store_first(load_first(x + i, n), y + i, n);
  });
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {
namespace {

template <class To, class From>
void convert_all(Cpu const& at, std::span<To> y, std::span<From const> x) {
  using Types = Conversion<To, From>;
  expects(x.size() == y.size(), "spans of one length");
  at.parallel_for(static_cast<std::int64_t>(y.size()), elements_per_piece, [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(convert_range<Types>)(y.data(), x.data(), begin, end);
  });
}

}  // namespace

void convert(Cpu const& at, std::span<bfloat16> y, std::span<float const> x) {
  convert_all(at, y, x);
}
void convert(Cpu const& at, std::span<float> y, std::span<bfloat16 const> x) {
  convert_all(at, y, x);
}
void convert(Cpu const& at, std::span<float> y, std::span<float const> x) {
  convert_all(at, y, x);
}

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
