#include "lib/device/cpu.h"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <mutex>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "lib/base/error.h"

namespace isotrain {
namespace {

#if defined(__x86_64__)
constexpr std::uint64_t flush_bits = 0x8040;  // MXCSR: FTZ and DAZ
std::uint64_t read_mode() {
  return _mm_getcsr();
}
void write_mode(std::uint64_t mode) {
  _mm_setcsr(static_cast<unsigned>(mode));
}
/// GCC 12 leaves out the vzeroupper at the end of some kernels; the processor then runs SSE code, all that is not a
/// kernel, up to 200 times slower until the next one.
void leave_vector_code() {
  static bool const avx = __builtin_cpu_supports("avx");
  if (avx) asm volatile("vzeroupper");
}
#elif defined(__aarch64__)
constexpr std::uint64_t flush_bits = std::uint64_t{1} << 24;  // FPCR: FZ
std::uint64_t read_mode() {
  std::uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
void write_mode(std::uint64_t mode) {
  asm volatile("msr fpcr, %0" ::"r"(mode));
}
void leave_vector_code() {}
#else
#error "the numerics contract needs a way to flush subnormals to zero on this processor"
#endif

}  // namespace

FlushToZero::FlushToZero() : before_(read_mode()) {
  write_mode(before_ | flush_bits);
}
FlushToZero::~FlushToZero() {
  write_mode(before_);
}
bool FlushToZero::active() {
  return (read_mode() & flush_bits) == flush_bits;
}

void Cpu::parallel_for(std::int64_t count, std::int64_t grain,
                       std::function<void(std::int64_t, std::int64_t)> const& body) const {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  std::int64_t const pieces = (count + grain - 1) / grain;
  int const team = static_cast<int>(std::min<std::int64_t>(threads_, pieces));
  if (team <= 1 || omp_in_parallel()) {
    FlushToZero const mode;
    body(0, count);
    leave_vector_code();
    return;
  }
  std::exception_ptr failure;
  std::mutex failure_mutex;
#pragma omp parallel num_threads(team)
  {
    FlushToZero const mode;
    std::int64_t const member = omp_get_thread_num();
    std::int64_t const members = omp_get_num_threads();
    std::int64_t const begin = pieces * member / members * grain;
    std::int64_t const end = std::min(count, pieces * (member + 1) / members * grain);
    try {
      if (begin < end) body(begin, end);
      leave_vector_code();
    } catch (...) {
      std::lock_guard const lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

}  // namespace isotrain
