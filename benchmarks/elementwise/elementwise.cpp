// Do the kernels that are no matrix products run at the speed of memory? Bytes a second (read + written, each once) of
// every one beside a plain copy loop, in turns, best of several, on as many bytes. Run: benchmark_elementwise [threads]
// [repeats]

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/adamw.h"
#include "kernels/balance_loss.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/mla.h"
#include "kernels/permutation.h"
#include "kernels/reduce.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/rope_table.h"
#include "kernels/router.h"
#include "kernels/swiglu.h"
#include "lib/base/random.h"

namespace isotrain::kernels {
namespace {

struct Row {
  std::string name;
  double bytes;  // read and written by one call
  std::function<void()> call;
};

/// Processor time of this thread if it works alone, so that others on a shared machine count less; else time by the
/// wall.
double seconds(Cpu const& at, std::function<void()> const& call) {
  auto const now = [&] {
    timespec t{};
    clock_gettime(at.threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  double const start = now();
  call();
  return now() - start;
}

/// Each row in turns with a plain copy loop that reads and writes as many bytes.
void measure(Cpu const& at, std::vector<Row> const& rows, int repeats) {
  double largest = 0;
  for (Row const& row : rows) largest = std::max(largest, row.bytes);
  std::vector<float> from(static_cast<std::size_t>(largest / 8), 1.0F), to(from.size());
  for (Row const& row : rows) {
    auto const half = static_cast<std::size_t>(row.bytes / 8);
    double best = std::numeric_limits<double>::infinity(), best_copy = best;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      best_copy = std::min(best_copy,
                           seconds(at, [&] { convert(at, std::span(to).first(half), std::span(from).first(half)); }));
      best = std::min(best, seconds(at, row.call));
    }
    double const rate = row.bytes / best * 1e-9;
    double const copy = row.bytes / best_copy * 1e-9;
    std::printf("  %-34s %8.1f GB/s  copy %8.1f GB/s  ratio %5.2f %9.0f us\n", row.name.c_str(), rate, copy,
                rate / copy, best * 1e6);
  }
}

template <class T>
std::vector<T> random_values(std::int64_t count) {
  std::vector<float> x(static_cast<std::size_t>(count));
  fill_normal(x, 0, 1, 2, 1);
  std::vector<T> y(x.size());
  convert(Cpu(1), y, x);
  return y;
}

/// N tokens of width d; heads of rope width 64, keys of width 32 + 16; 32 experts, 4 a token; N/16 predictions of 16 d
/// logits.
template <class T>
void activations(Cpu const& at, std::int64_t n, std::int64_t d, int repeats) {
  constexpr bool is_float = std::is_same_v<T, float>;
  double const size = sizeof(T);
  double const elements = static_cast<double>(n * d);
  auto x = random_values<T>(n * d), y = x, dy = x, up = x;
  std::vector<float> gain(static_cast<std::size_t>(d), 1.0F), dgain(gain.size()), rstd(static_cast<std::size_t>(n));
  Matrix<T> const mx(x.data(), n, d), my(y.data(), n, d), mdy(dy.data(), n, d), mup(up.data(), n, d);
  auto const table = rope_table(10000, 64, n);
  std::vector<std::int32_t> position, token;
  for (std::int64_t i = 0; i < n; ++i) {
    position.push_back(static_cast<std::int32_t>(i));
    token.push_back(static_cast<std::int32_t>(i * 7919 % n));
  }
  std::vector<float> dtable(static_cast<std::size_t>(n * d));
  std::int64_t const heads = d / 64;
  Heads<T> const rotated{x.data(), n, heads, 64, d, 64};
  auto keys = random_values<T>(n * heads * 48), nope = random_values<T>(n * heads * 32),
       shared = random_values<T>(n * 16);
  Heads<T> const k{keys.data(), n, heads, 48, heads * 48, 48}, kn{nope.data(), n, heads, 32, heads * 32, 32};
  Matrix<T> const ks(shared.data(), n, 16);

  constexpr int experts = 32, top_k = 4;
  RouterShape const shape{.experts = experts, .top_k = top_k, .num_groups = 8, .top_groups = 4, .scaling = 2.5F};
  auto logits = random_values<float>(n * experts);
  std::vector<float> score(logits.size()), dlogits(logits.size()), weight(static_cast<std::size_t>(n * top_k)),
      dweight(weight.size());
  std::vector<std::int32_t> expert(weight.size()), row(weight.size()), order(weight.size());
  std::vector<std::int64_t> offsets(experts + 1);
  std::vector<double> losses(1);
  Matrix<float> const ml(logits.data(), n, experts), ms(score.data(), n, experts), mdl(dlogits.data(), n, experts);
  Matrix<float> const mw(weight.data(), n, top_k), mdw(dweight.data(), n, top_k);
  Matrix<std::int32_t> const me(expert.data(), n, top_k), mr(row.data(), n, top_k), mo(order.data(), n, top_k);
  std::vector<T> routed(static_cast<std::size_t>(n * top_k * d));
  Matrix<T> const routed_rows(routed.data(), n * top_k, d);
  router_forward(at, ms, me, mw, ml, {}, shape);
  permutation_sort(offsets, mr, mo, me, experts, n);

  std::int64_t const vocabulary = 16 * d, predicted = n / 16;
  auto vocabulary_logits = random_values<float>(predicted * vocabulary);
  std::vector<T> dvocabulary(vocabulary_logits.size());
  std::vector<float> loss(static_cast<std::size_t>(predicted));
  std::vector<std::int32_t> const target(loss.size(), 3);
  Matrix<float> const mv(vocabulary_logits.data(), predicted, vocabulary);
  Matrix<T> const mdv(dvocabulary.data(), predicted, vocabulary);

  std::printf(" %s activations, N = %lld, d = %lld (%.1f MB)\n", is_float ? "fp32" : "bf16", static_cast<long long>(n),
              static_cast<long long>(d), elements * size * 1e-6);
  std::vector<Row> const rows = {
      {"rmsnorm_forward", 2 * elements * size, [&] { rmsnorm_forward<T>(at, my, rstd, mx, gain, 1e-6F); }},
      {"rmsnorm_backward_input", 3 * elements * size, [&] { rmsnorm_backward_input<T>(at, my, mdy, mx, rstd, gain); }},
      {"rmsnorm_backward_input, added", 4 * elements * size,
       [&] { rmsnorm_backward_input<T>(at, my, mdy, mx, rstd, gain, Accumulate::yes); }},
      {"rmsnorm_backward_gain", 2 * elements * size, [&] { rmsnorm_backward_gain<T>(at, dgain, mdy, mx, rstd); }},
      {"rope, interleaved", 2 * elements * size,
       [&] { rope<T>(at, rotated, table, position, RopePairs::interleaved, Rotation::forward); }},
      {"rope, half split", 2 * elements * size,
       [&] { rope<T>(at, rotated, table, position, RopePairs::half_split, Rotation::forward); }},
      {"swiglu_forward", 3 * elements * size, [&] { swiglu_forward<T>(at, my, mx, mup); }},
      {"swiglu_backward", 5 * elements * size, [&] { swiglu_backward<T>(at, my, mdy, mdy, mx, mup); }},
      {"mla_assemble_keys", static_cast<double>(n * heads * 80) * size, [&] { mla_assemble_keys<T>(at, k, kn, ks); }},
      {"mla_split_key_gradients", static_cast<double>(n * heads * 80) * size,
       [&] { mla_split_key_gradients<T>(at, kn, ks, k, 1); }},
      {"embedding_forward", 2 * elements * size, [&] { embedding_forward<T>(at, my, mx, token); }},
      {"embedding_backward", elements * (8 + size),
       [&] { embedding_backward<T>(at, Matrix<float>(dtable.data(), n, d), mdy, token); }},
      {"permutation_gather", elements * size * (1 + top_k), [&] { permutation_gather<T>(at, routed_rows, mx, mr); }},
      {"permutation_gather_backward", elements * size * (1 + top_k),
       [&] { permutation_gather_backward<T>(at, my, routed_rows, mr, mo, Accumulate::no); }},
      {"permutation_combine", elements * size * (3 + top_k),
       [&] { permutation_combine<T>(at, my, mx, mup, routed_rows, mw, mr, mo); }},
      {"permutation_combine_backward", elements * size * (1 + 2 * top_k),
       [&] { permutation_combine_backward<T>(at, routed_rows, mdw, mdy, routed_rows, mw, mr); }},
      {"router_forward (V3, 32 experts)", static_cast<double>(n) * (8.0 * experts + 8 * top_k),
       [&] { router_forward(at, ms, me, mw, ml, {}, shape); }},
      {"router_backward", static_cast<double>(n) * (8.0 * experts + 12 * top_k),
       [&] { router_backward(at, mdl, mdw, {}, ms, me, mw, shape); }},
      {"balance_loss (V3)", static_cast<double>(n) * (12.0 * experts),
       [&] { balance_loss(at, losses, mdl, ms, me, shape, {.expert_alpha = 1e-4F}, n, 1); }},
      {"permutation_sort", static_cast<double>(n) * 12 * top_k,
       [&] { permutation_sort(offsets, mr, mo, me, experts, n); }},
      {"cross_entropy_forward_backward", elements * (4 + size),
       [&] { cross_entropy_forward_backward<T>(at, loss, mdv, mv, target, 4, 1e-3F); }},
      {"cross_entropy_forward", elements * 4, [&] { cross_entropy_forward(at, loss, mv, target, 4); }},
      {"add", 3 * elements * size, [&] { add<T>(at, y, x, dy); }},
  };
  measure(at, rows, repeats);
}

void parameters(Cpu const& at, std::int64_t count, int repeats) {
  auto const n = static_cast<double>(count);
  auto w = random_values<float>(count), m = w, v = w, g = w, other = w;
  for (auto* x : {&m, &v}) scale(at, *x, 0);
  auto half = random_values<bfloat16>(count);
  std::vector<double> sums(static_cast<std::size_t>((count + 16383) / 16384));
  auto const step = adamw_step(3, {}, 1e-4);
  std::uint64_t hashes = 0;
  std::int64_t bad = 0;
  std::printf(" parameters, %lld (%.1f MB each)\n", static_cast<long long>(count), n * 4e-6);
  measure(at,
          {{"adamw", n * 28, [&] { adamw(at, w, m, v, g, {}, step); }},
           {"adamw, bf16 weights too", n * 30, [&] { adamw(at, w, m, v, g, half, step); }},
           {"block_sums_of_squares", n * 4, [&] { block_sums_of_squares(at, sums, g, 16384); }},
           {"hash", n * 4, [&] { hashes += hash(at, w, 1); }},
           {"first_non_finite", n * 4, [&] { bad += first_non_finite(at, w); }},
           {"add, in place", n * 12, [&] { add(at, other, g); }},
           {"scale", n * 8, [&] { scale(at, g, 1.0F); }},
           {"fill_zero", n * 4, [&] { fill_zero(at, other); }},
           {"convert, fp32 to bf16", n * 6, [&] { convert(at, half, w); }},
           {"convert, bf16 to fp32", n * 6, [&] { convert(at, other, half); }}},
          repeats);
  std::printf(" (hash %016llx, non-finite %lld)\n", static_cast<unsigned long long>(hashes),
              static_cast<long long>(bad));
}

}  // namespace
}  // namespace isotrain::kernels

int main(int argc, char** argv) {
  int const threads = argc > 1 ? std::atoi(argv[1]) : 1;
  int const repeats = argc > 2 ? std::atoi(argv[2]) : 50;
  isotrain::Cpu const at(threads);
  std::printf("%s, %s, %d thread(s), best of %d\n", isotrain::processor_name().c_str(), isotrain::isa_name().c_str(),
              threads, repeats);
  std::printf("out of the second cache\n");
  isotrain::kernels::activations<float>(at, 1024, 1024, repeats);
  isotrain::kernels::activations<isotrain::bfloat16>(at, 1024, 1024, repeats);
  isotrain::kernels::parameters(at, std::int64_t{1} << 20, repeats);
  std::printf("in the second cache\n");
  isotrain::kernels::activations<float>(at, 128, 512, 10 * repeats);
  isotrain::kernels::activations<isotrain::bfloat16>(at, 128, 512, 10 * repeats);
}
