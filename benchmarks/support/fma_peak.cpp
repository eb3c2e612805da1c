#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/support/fma_peak.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <chrono>

#include "benchmarks/support/fma_peak.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::benchmarks::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Seconds for `rounds` rounds of 12 independent chains; returns their floating-point operations by *operations.
double chains(long rounds, double* operations, float* sink) {
  hn::CappedTag<float, 16> const d;
  auto const a = hn::Set(d, 0.999F), b = hn::Set(d, 0.001F);
  // Different starts, or the compiler sees one chain.
  auto const at = [&](int i) { return hn::Set(d, static_cast<float>(i)); };
  auto c0 = at(0), c1 = at(1), c2 = at(2), c3 = at(3), c4 = at(4), c5 = at(5), c6 = at(6), c7 = at(7), c8 = at(8),
       c9 = at(9), c10 = at(10), c11 = at(11);
  auto const start = std::chrono::steady_clock::now();
  for (long i = 0; i < rounds; ++i) {
    c0 = hn::MulAdd(c0, a, b), c1 = hn::MulAdd(c1, a, b), c2 = hn::MulAdd(c2, a, b), c3 = hn::MulAdd(c3, a, b);
    c4 = hn::MulAdd(c4, a, b), c5 = hn::MulAdd(c5, a, b), c6 = hn::MulAdd(c6, a, b), c7 = hn::MulAdd(c7, a, b);
    c8 = hn::MulAdd(c8, a, b), c9 = hn::MulAdd(c9, a, b), c10 = hn::MulAdd(c10, a, b), c11 = hn::MulAdd(c11, a, b);
  }
  std::chrono::duration<double> const taken = std::chrono::steady_clock::now() - start;
  auto const all =
      hn::Add(hn::Add(hn::Add(c0, c1), hn::Add(c2, c3)),
              hn::Add(hn::Add(hn::Add(c4, c5), hn::Add(c6, c7)), hn::Add(hn::Add(c8, c9), hn::Add(c10, c11))));
  *sink = hn::GetLane(all);
  *operations = 2.0 * 12 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
  return taken.count();
}

}  // namespace isotrain::benchmarks::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::benchmarks {

HWY_EXPORT(chains);

double fma_peak() {
  double best = 0;
  for (int i = 0; i < 10; ++i) {
    double operations = 0;
    float volatile keep = 0;
    float sink = 0;
    double const seconds = HWY_DYNAMIC_DISPATCH(chains)(1000000, &operations, &sink);
    keep = sink;
    static_cast<void>(keep);
    best = std::max(best, operations / seconds * 1e-9);
  }
  return best;
}

}  // namespace isotrain::benchmarks
#endif  // HWY_ONCE
