// Does the optimizer run at the speed of memory? Times one AdamW step (gradient norm, clipping, update) of one rank
// and, in turns, a plain triad a = b + s c over as much memory. Run: benchmark_optimizer [threads]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "lib/comm/session.h"
#include "lib/optim/optimizer.h"

namespace isotrain::benchmarks {
namespace {

double seconds(std::function<void()> const& body) {
  double const start = MPI_Wtime();
  body();
  return MPI_Wtime() - start;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void triad(Cpu const& at, std::span<float> a, std::span<float const> b, std::span<float const> c) {
  at.parallel_for(static_cast<std::int64_t>(a.size()), 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) a[i] = b[i] + 0.5F * c[i];
  });
}

void measure(Cpu const& at, Communicator const& self, std::int64_t millions) {
  ParameterTable const table({{.name = "matrix", .shape = {millions << 10, 1024}},
                              {.name = "gain", .shape = {1024}, .segment = Segment::fp32, .decay = false}},
                             1);
  FlatRange const range{0, table.flat_size()};
  BufferPlan plan;
  auto const names = OptimizerBuffers::plan(plan, {range});
  auto const gradient_id = plan.add<float>("gradients", "gradient", range.size());
  Buffers const buffers(plan);
  OptimizerState const state = names.state(buffers);
  std::span<float> const gradient = buffers[gradient_id];
  std::fill(gradient.begin(), gradient.end(), 1e-3F);
  AdamW adamw({}, table, {range});

  std::vector<double> steps, triads;
  for (int round = -1; round < 9; ++round) {
    double const step = seconds([&] { adamw.step(at, self, round + 2, 1e-4, state, gradient); });
    double const copy = seconds([&] { triad(at, state.weight, state.m, state.v); });
    if (round < 0) continue;
    steps.push_back(step);
    triads.push_back(copy);
  }
  auto const elements = static_cast<double>(range.size());
  // Norm: reads g. Update: reads g, w, m, v, writes w, m, v. The triad's a is only written, but read first too, by the
  // processor.
  double const rate = elements * 32 / median(steps) * 1e-9;
  double const memory = elements * 16 / median(triads) * 1e-9;
  std::printf("%10lld M %10.2f %8.2f %7.2f %12.2f\n", static_cast<long long>(millions), median(steps) * 1e3, rate,
              rate / memory, memory);
}

int run(MpiSession const& session, int threads) {
  Cpu const at(threads);
  std::printf("%s, %s, %d thread(s); medians of 9; share: of the triad's bytes a second\n", processor_name().c_str(),
              isa_name().c_str(), threads);
  std::printf("parameters         ms     GB/s   share   triad GB/s\n");
  for (std::int64_t const millions : {1, 16, 64}) measure(at, session.world(), millions);
  return 0;
}

}  // namespace
}  // namespace isotrain::benchmarks

int main(int argc, char** argv) {
  isotrain::MpiSession const session(argc, argv);
  int const threads = argc > 1 ? std::atoi(argv[1]) : 1;
  return session.run([&] { return isotrain::benchmarks::run(session, threads); });
}
