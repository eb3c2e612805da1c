// How fast is attention? Floating-point operations of its products (causal: half of the square) over the time of the
// whole call, against the processor's fused multiply-adds. attention_benchmark [THREADS [ISA]]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "benchmarks/support/fma_peak.h"
#include "kernels/attention.h"
#include "lib/base/bfloat16.h"
#include "lib/device/buffers.h"

namespace isotrain::benchmarks {
namespace {

using namespace kernels;

struct Setting {
  std::int64_t B, T, H, G, dq, dv;
};

constexpr Setting settings[] = {
    {4, 128, 4, 4, 96, 64},   {4, 256, 8, 8, 96, 64}, {2, 512, 8, 8, 96, 64},   {1, 2048, 8, 8, 96, 64},
    {2, 512, 8, 8, 192, 128}, {2, 512, 8, 2, 64, 64}, {2, 512, 8, 8, 128, 128}, {12, 64, 4, 4, 32, 32},
};

/// Memory as a run's: aligned, in huge pages.
template <class T>
struct Numbers {
  Numbers(std::int64_t count, unsigned seed) : id(plan.add<T>("activations", "x", count)), buffers(plan) {
    std::uint32_t state = seed * 2654435761u + 1;
    for (T& e : buffers[id]) {
      state = state * 1664525u + 1013904223u;
      e = from_float<T>(static_cast<float>(state >> 8) * 0x1p-23F - 1);
    }
  }

  BufferPlan plan;
  BufferId<T> id;
  Buffers buffers;
};

/// Processor time on one thread, so that other processes count little; wall time on several.
double now(int threads) {
  if (threads == 1) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class F>
double best_seconds(int threads, F const& f) {
  f();
  double best = 1e30, total = 0;
  for (int i = 0; i < 200 && (i < 5 || total < 0.5); ++i) {
    double const start = now(threads);
    f();
    double const taken = now(threads) - start;
    best = std::min(best, taken);
    total += taken;
  }
  return best;
}

template <class T>
void measure(Cpu const& at, Setting s, char const* precision, double peak) {
  std::int64_t const rows = s.B * s.T;
  auto heads = [&](Numbers<T> const& x, std::int64_t count, std::int64_t dim) {
    return Heads<T>{x.buffers[x.id].data(), rows, count, dim, count * dim, dim};
  };
  Numbers<T> const q(rows * s.H * s.dq, 1), k(rows * s.G * s.dq, 2), v(rows * s.G * s.dv, 3), go(rows * s.H * s.dv, 4);
  Numbers<T> const o(rows * s.H * s.dv, 5), dq(rows * s.H * s.dq, 6), dk(rows * s.G * s.dq, 7),
      dv(rows * s.G * s.dv, 8);
  std::vector<float> lse(static_cast<std::size_t>(rows * s.H));
  AttentionShape const shape{s.B, s.T, 1 / std::sqrt(static_cast<float>(s.dq))};
  auto const hq = heads(q, s.H, s.dq), hk = heads(k, s.G, s.dq), hv = heads(v, s.G, s.dv), ho = heads(o, s.H, s.dv);
  double const forward = best_seconds(at.threads(), [&] { attention_forward<T>(at, ho, lse, hq, hk, hv, shape); });
  double const backward = best_seconds(at.threads(), [&] {
    attention_backward<T>(at, heads(dq, s.H, s.dq), heads(dk, s.G, s.dq), heads(dv, s.G, s.dv), heads(go, s.H, s.dv),
                          ho, lse, hq, hk, hv, shape);
  });
  Heads<T const> last{hq.at(s.T - 1, 0), 1, s.H, s.dq, s.H * s.dq, s.dq};
  Heads<T const> cached_keys = hk, cached_values = hv;
  cached_keys.rows = cached_values.rows = s.T;
  Heads<T> one_output = ho;
  one_output.rows = 1;
  double const decode = best_seconds(
      at.threads(), [&] { attention_decode<T>(at, one_output, last, cached_keys, cached_values, shape.scale); });
  double const pairs = 0.5 * static_cast<double>(s.B * s.H) * static_cast<double>(s.T) * static_cast<double>(s.T + 1);
  double const forward_rate = 2e-9 * pairs * static_cast<double>(s.dq + s.dv) / forward;
  double const backward_rate = 2e-9 * pairs * static_cast<double>(3 * s.dq + 2 * s.dv) / backward;
  std::printf("%-11s %3ld %5ld %3ld %3ld %4ld %4ld  %9.3f %7.1f %5.1f%%  %9.3f %7.1f %5.1f%%  %8.1f\n", precision,
              static_cast<long>(s.B), static_cast<long>(s.T), static_cast<long>(s.H), static_cast<long>(s.G),
              static_cast<long>(s.dq), static_cast<long>(s.dv), forward * 1e3, forward_rate, 100 * forward_rate / peak,
              backward * 1e3, backward_rate, 100 * backward_rate / peak, decode * 1e6);
}

}  // namespace
}  // namespace isotrain::benchmarks

int main(int argc, char** argv) {
  using namespace isotrain;
  using namespace isotrain::benchmarks;
  int const threads = argc > 1 ? std::atoi(argv[1]) : 1;
  if (argc > 2) Cpu(1, Bf16Class::tiles, isa_from_name(argv[2]));
  double const peak = fma_peak() * threads;
  std::printf("%s, %s, %d thread(s), fp32 FMA peak %.0f GFLOP/s\n", processor_name().c_str(), isa_name().c_str(),
              threads, peak);
  std::printf("%-11s %3s %5s %3s %3s %4s %4s  %9s %7s %6s  %9s %7s %6s  %8s\n", "", "B", "T", "H", "G", "dq", "dv",
              "fwd ms", "GFLOP/s", "peak", "bwd ms", "GFLOP/s", "peak", "dec. us");
  for (Setting const& s : settings) measure<float>(Cpu(threads), s, "fp32", peak);
  for (Setting const& s : settings) measure<bfloat16>(Cpu(threads, Bf16Class::tiles), s, "bf16 tiles", peak);
  for (Setting const& s : settings) measure<bfloat16>(Cpu(threads, Bf16Class::pairs), s, "bf16 pairs", peak);
}
