/// What the fingerprint of all weights of a model takes one rank: prints milliseconds, best of many.
///   fingerprint_speed CONFIG [THREADS]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <vector>

#include "kernels/reduce.h"
#include "lib/model/config.h"
#include "lib/model/parameter_list.h"

namespace isotrain::benchmarks {
namespace {

int run(char const* config, int threads) {
  ParameterTable const table(model_parameters(read_model_config(config)), 4);
  std::vector<float> weights(static_cast<std::size_t>(table.flat_size()));
  initialize(table, weights, {0, table.flat_size()}, 1, 0.02);
  // Something else lies in the caches when a step has ended.
  std::vector<float> others(std::size_t{16} << 20);
  Cpu const at(threads);
  double best_ms = std::numeric_limits<double>::infinity();
  std::uint64_t sum = 0;
  for (int round = 0; round < 40; ++round) {
    kernels::fill_zero(at, others);
    auto const start = std::chrono::steady_clock::now();
    sum += kernels::hash(at, weights, 0);
    best_ms =
        std::min(best_ms, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::printf("%.3f\n", best_ms);
  return sum == 0 ? 1 : 0;  // the sum is used
}

}  // namespace
}  // namespace isotrain::benchmarks

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw std::runtime_error("usage: fingerprint_speed CONFIG [THREADS]");
    return isotrain::benchmarks::run(argv[1], argc > 2 ? std::atoi(argv[2]) : 1);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "fingerprint_speed: %s\n", error.what());
    return 2;
  }
}
