// How fast is the matrix product on the shapes of a training step?
//
//   matmul_speed             prints a table: GFLOP/s of every shape, class and thread count, and the share of the FMA
//   peak matmul_speed --serve     reads "kind threads pass tokens n k groups" a line, prints GFLOP/s: for side-by-side
//   runs (peer.py) matmul_speed --shapes    prints the shapes, a line each
//
// kind: fp32, tiles, pairs. pass: forward Y = X W^T, input dX = dY W, weight dW += dY^T X, W (n, k) row-major.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "benchmarks/support/fma_peak.h"
#include "kernels/matmul.h"
#include "lib/base/error.h"
#include "lib/device/buffers.h"

namespace isotrain::benchmarks {
namespace {

struct Case {
  std::string kind;
  int threads = 1;
  std::string pass;
  std::int64_t tokens = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  int groups = 1;

  double flops() const { return 2.0 * static_cast<double>(tokens) * static_cast<double>(n) * static_cast<double>(k); }
};

struct Shape {
  char const* what;
  std::int64_t tokens;
  std::int64_t n;
  std::int64_t k;
  int groups;
};

/// Linear layers of models of hidden 256, 512 and 1024 (a V3-type and a Llama-type one of each), 2048 tokens a step;
/// few tokens; the experts of a V3-type model, 16 with 4 for each token.
constexpr Shape shapes[] = {
    {"256 attention", 2048, 256, 256, 1},
    {"256 feed-forward", 2048, 672, 256, 1},
    {"256 feed-forward down", 2048, 256, 672, 1},
    {"256 head", 2048, 4096, 256, 1},
    {"512 attention", 2048, 512, 512, 1},
    {"512 query up", 2048, 768, 256, 1},
    {"512 feed-forward", 2048, 1344, 512, 1},
    {"512 feed-forward down", 2048, 512, 1344, 1},
    {"512 head", 2048, 8192, 512, 1},
    {"1024 attention", 2048, 1024, 1024, 1},
    {"1024 key-value up", 2048, 2048, 256, 1},
    {"1024 feed-forward", 2048, 2720, 1024, 1},
    {"1024 feed-forward down", 2048, 1024, 2720, 1},
    {"1024 head", 2048, 8192, 1024, 1},
    {"1024 router", 2048, 16, 1024, 1},
    {"1024, 64 tokens", 64, 2720, 1024, 1},
    {"1024, 128 tokens", 128, 1024, 1024, 1},
    {"1024, 256 tokens", 256, 2720, 1024, 1},
    {"512, 512 tokens", 512, 1344, 512, 1},
    {"256 experts", 8192, 128, 256, 16},
    {"512 experts", 8192, 256, 512, 16},
    {"1024 experts", 8192, 512, 1024, 16},
};

template <class T>
class Runner {
 public:
  explicit Runner(Case const& what)
      : what_(what), at_(what.threads, what.kind == "pairs" ? Bf16Class::pairs : Bf16Class::tiles) {
    BufferPlan plan;
    auto const x = plan.add<T>("benchmark", "x", what.tokens * what.k);
    auto const dx = plan.add<T>("benchmark", "dx", what.tokens * what.k);
    auto const y = plan.add<T>("benchmark", "y", what.tokens * what.n);
    auto const dy = plan.add<T>("benchmark", "dy", what.tokens * what.n);
    auto const w = plan.add<T>("benchmark", "w", what.n * what.k * what.groups);
    auto const dw = plan.add<float>("benchmark", "dw", what.n * what.k * what.groups);
    buffers_.emplace(plan);
    x_ = (*buffers_)[x], dx_ = (*buffers_)[dx], y_ = (*buffers_)[y], dy_ = (*buffers_)[dy];
    w_ = (*buffers_)[w], dw_ = (*buffers_)[dw];
    for (auto const& inputs : {x_, dy_, w_}) fill(inputs);
    for (int g = 0; g <= what.groups; ++g) offsets_.push_back(what.tokens * g / what.groups);
    for (int g = 0; g < what.groups; ++g) {
      weights_.push_back(w_.data() + g * what.n * what.k);
      gradients_.push_back(dw_.data() + g * what.n * what.k);
    }
  }

  void operator()() {
    Matrix<T const> const x(x_.data(), what_.tokens, what_.k);
    Matrix<T const> const dy(dy_.data(), what_.tokens, what_.n);
    Matrix<T const> const w(w_.data(), what_.n, what_.k);
    Matrix<T> const y(y_.data(), what_.tokens, what_.n);
    Matrix<T> const dx(dx_.data(), what_.tokens, what_.k);
    bool const grouped = what_.groups > 1;
    using kernels::Accumulate;
    if (what_.pass == "forward") {
      grouped ? kernels::grouped_matmul<T, T>(at_, y, x, weights_, offsets_)
              : kernels::matmul(at_, y, x, w.transposed());
    } else if (what_.pass == "input") {
      grouped ? kernels::grouped_matmul_input<T, T>(at_, dx, dy, weights_, offsets_) : kernels::matmul(at_, dx, dy, w);
    } else if (what_.pass == "weight") {
      grouped ? kernels::grouped_matmul_weight<T>(at_, gradients_, dy, x, offsets_, 1)
              : kernels::matmul(at_, Matrix<float>(dw_.data(), what_.n, what_.k), dy.transposed(), x, Accumulate::yes);
    } else {
      throw UsageError("unknown pass '" + what_.pass + "'", "", "use forward, input or weight");
    }
  }

 private:
  void fill(std::span<T> v) {
    std::normal_distribution<float> normal;
    for (T& value : v) value = from_float<T>(normal(random_));
  }

  Case what_;
  Cpu at_;
  std::mt19937 random_{1};
  std::optional<Buffers> buffers_;
  std::span<T> x_, dx_, y_, dy_, w_;
  std::span<float> dw_;
  std::vector<std::int64_t> offsets_;
  std::vector<T const*> weights_;
  std::vector<float*> gradients_;
};

/// Seconds of one thread's processor time, so that others on the machine do not count, or of the clock on the wall.
double now_s(bool processor_time) {
  timespec time;
  clock_gettime(processor_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Best of many timings, each of at least a millisecond.
template <class Call>
double gflops(Case const& what, Call&& call) {
  bool const processor_time = what.threads == 1;
  auto const seconds = [&](int calls) {
    double const begin = now_s(processor_time);
    for (int i = 0; i < calls; ++i) call();
    return now_s(processor_time) - begin;
  };
  call();
  int const calls = std::max(1, static_cast<int>(0.001 / seconds(1)));
  double best = seconds(calls);
  int turn = 0;
  for (double spent = best; spent < 0.1 || turn < 5; ++turn) {
    double const now = seconds(calls);
    best = std::min(best, now);
    spent += now;
  }
  return what.flops() * calls / best / 1e9;
}

double measure(Case const& what) {
  if (what.kind == "fp32") return gflops(what, Runner<float>(what));
  if (what.kind == "tiles" || what.kind == "pairs") return gflops(what, Runner<bfloat16>(what));
  throw UsageError("unknown kind '" + what.kind + "'", "", "use fp32, tiles or pairs");
}

void serve() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    Case what;
    if (!(words >> what.kind >> what.threads >> what.pass >> what.tokens >> what.n >> what.k >> what.groups)) {
      throw UsageError("cannot read case '" + line + "'", "it is not 'kind threads pass tokens n k groups'");
    }
    std::printf("%.1f\n", measure(what));
    std::fflush(stdout);
  }
}

void print_table() {
  double const peak = fma_peak();
  std::printf("%s, %s; fp32 FMA peak of one core %.0f GFLOP/s\n", processor_name().c_str(), isa_name().c_str(), peak);
  std::printf("%-24s %-8s %6s %6s %6s %3s | %-40s\n", "", "", "", "", "", "", "GFLOP/s (share of FMA peak, %)");
  std::printf("%-24s %-8s %6s %6s %6s %3s |", "shape", "pass", "tokens", "n", "k", "grp");
  for (char const* kind : {"fp32", "tiles", "pairs"}) {
    for (int threads : {1, 2}) std::printf("  %6s x%d   ", kind, threads);
  }
  std::printf("\n");
  for (Shape const& shape : shapes) {
    for (char const* pass : {"forward", "input", "weight"}) {
      std::printf("%-24s %-8s %6ld %6ld %6ld %3d |", shape.what, pass, static_cast<long>(shape.tokens),
                  static_cast<long>(shape.n), static_cast<long>(shape.k), shape.groups);
      for (char const* kind : {"fp32", "tiles", "pairs"}) {
        for (int threads : {1, 2}) {
          double const rate = measure({kind, threads, pass, shape.tokens, shape.n, shape.k, shape.groups});
          std::printf(" %6.0f (%3.0f) ", rate, 100 * rate / (peak * threads));
          std::fflush(stdout);
        }
      }
      std::printf("\n");
    }
  }
}

void print_shapes() {
  for (Shape const& shape : shapes) {
    std::printf("%ld %ld %ld %d %s\n", static_cast<long>(shape.tokens), static_cast<long>(shape.n),
                static_cast<long>(shape.k), shape.groups, shape.what);
  }
}

}  // namespace
}  // namespace isotrain::benchmarks

int main(int argc, char** argv) {
  try {
    std::string const mode = argc > 1 ? argv[1] : "";
    if (mode == "--serve") {
      isotrain::benchmarks::serve();
    } else if (mode == "--shapes") {
      isotrain::benchmarks::print_shapes();
    } else {
      isotrain::benchmarks::print_table();
    }
  } catch (isotrain::Error const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
