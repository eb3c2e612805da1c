#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace isotrain {

/// Highest instruction set that CPU kernels may use. All give the same bits; forced ones are for tests.
enum class Isa { automatic, scalar, avx2, avx512, amx };

/// Which exactly defined sum a bf16 product is; part of the envelope (docs/numerics.md).
///   tiles  K in blocks of 32: even and odd FMA chains from +0, then C + (even + odd); one AMX instruction
///   pairs  per pair an FMA of the odd element, then of the even one, into C; vdpbf16ps
enum class Bf16Class { tiles, pairs };

/// The place "this host": where kernels run and what that needs. First argument of every kernel.
/// Copies are cheap and equal.
class Cpu {
 public:
  /// `threads` >= 1 OpenMP threads a kernel may use; results never depend on it.
  /// Anything but `automatic` sets the instruction set for the whole process (automatic leaves it as it is). Throws
  /// UsageError if this processor lacks it.
  explicit Cpu(int threads = 1, Bf16Class bf16 = Bf16Class::tiles, Isa isa = Isa::automatic);

  int threads() const { return threads_; }
  Bf16Class bf16_class() const { return bf16_; }

  /// Runs body(begin, end) over disjoint pieces of [0, count) on up to threads() threads, each in the contract's
  /// floating-point mode (flush to zero, denormals are zero). Pieces are multiples of `grain` but the last. An
  /// exception in a body is rethrown here after all have ended.
  void parallel_for(std::int64_t count, std::int64_t grain,
                    std::function<void(std::int64_t begin, std::int64_t end)> const& body) const;

 private:
  int threads_;
  Bf16Class bf16_;
};

/// Sets flush-to-zero and denormals-are-zero while it lives; restores what was there before.
class FlushToZero {
 public:
  FlushToZero();
  ~FlushToZero();
  FlushToZero(FlushToZero const&) = delete;
  FlushToZero& operator=(FlushToZero const&) = delete;

  /// True if the calling thread is in the contract's mode now.
  static bool active();

 private:
  std::uint64_t before_;
};

/// "AVX-512 and AMX", "AVX-512", "AVX2", "NEON" or "scalar": what kernels dispatch to now.
std::string isa_name();
/// The processor's own name, from /proc/cpuinfo.
std::string processor_name();
/// "scalar", "avx2", ... <-> Isa. from_name throws UsageError that names the choices.
Isa isa_from_name(std::string const& name);

}  // namespace isotrain
