#include "lib/train/kernel_rate.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/matmul.h"

namespace isotrain {

template <class T>
double measured_kernel_rate(Cpu const& at, Communicator const& comm) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t n = 768;
  std::vector<T> const a(n * n, from_float<T>(1.0F));
  std::vector<T> const b(n * n, from_float<T>(0.5F));
  std::vector<float> c(n * n);
  double best = 0;
  comm.barrier();
  auto const start = Clock::now();
  // The first product pays for the kernel's workspace, so there are at least two.
  for (int i = 0; i < 2 || Clock::now() - start < std::chrono::milliseconds(100); ++i) {
    auto const begin = Clock::now();
    kernels::matmul<T, float>(at, {c.data(), n, n}, {a.data(), n, n}, {b.data(), n, n});
    double const seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, 2.0 * n * n * n / seconds);
  }
  double sum = 0;
  for (double const rate : comm.all_gather(best)) sum += rate;
  return sum;
}

template double measured_kernel_rate<float>(Cpu const&, Communicator const&);
template double measured_kernel_rate<bfloat16>(Cpu const&, Communicator const&);

}  // namespace isotrain
