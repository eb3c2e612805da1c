#include "lib/comm/random_delay.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "lib/base/random.h"

namespace isotrain {
namespace {

std::atomic<double> most{0};
std::atomic<std::uint64_t> stream{0};
std::atomic<std::uint64_t> next{0};

}  // namespace

void delay_operations(double most_ms, std::uint64_t key) {
  stream = key;
  most = most_ms;
}

void random_delay() {
  double const most_ms = most.load(std::memory_order_relaxed);
  if (most_ms <= 0) return;
  float const share = Random(0, stream.load(std::memory_order_relaxed)).uniform(next.fetch_add(1));
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(most_ms * static_cast<double>(share)));
}

}  // namespace isotrain
