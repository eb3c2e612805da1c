// Which instruction set the kernels dispatch to: Highway chooses the best at run time; tests force a lower one.
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <array>
#include <atomic>
#include <utility>

#include "lib/base/error.h"
#include "lib/device/amx.h"
#include "lib/device/cpu.h"

namespace isotrain {
namespace {

constexpr std::array<std::pair<char const*, Isa>, 5> names{{{"auto", Isa::automatic},
                                                            {"scalar", Isa::scalar},
                                                            {"avx2", Isa::avx2},
                                                            {"avx512", Isa::avx512},
                                                            {"amx", Isa::amx}}};

// Highway knows nothing of AMX.
std::atomic<bool> amx_allowed{true};

std::int64_t targets_up_to(Isa isa) {
  std::int64_t targets = HWY_SCALAR | HWY_EMU128;
  if (isa >= Isa::avx2) targets |= HWY_AVX2;
  if (isa >= Isa::avx512) targets |= HWY_AVX3;
  return targets;
}

std::int64_t best_target() {
  std::int64_t const usable = hwy::SupportedTargets() & HWY_TARGETS;
  return usable & -usable;  // Highway: a lower bit is a better target
}

void force(Isa isa) {
  hwy::SetSupportedTargetsForTest(0);
  if (isa != Isa::automatic) {
    std::int64_t const wanted = targets_up_to(isa);
    if (best_target() > (wanted & -wanted) || (isa == Isa::amx && !amx_granted())) {
      throw UsageError("this processor lacks the instruction set that --device.isa asks for",
                       "it has " + isa_name() + " at most", "leave --device.isa at auto");
    }
    hwy::SetSupportedTargetsForTest(wanted & hwy::SupportedTargets());
  }
  hwy::GetChosenTarget().DeInit();
  amx_allowed = isa == Isa::amx || isa == Isa::automatic;
}

}  // namespace

Cpu::Cpu(int threads, Bf16Class bf16, Isa isa) : threads_(threads), bf16_(bf16) {
  expects(threads >= 1, "at least one thread");
  if (isa != Isa::automatic) force(isa);
}

bool amx_usable() {
  return amx_allowed && amx_granted();
}

std::string isa_name() {
  switch (best_target()) {
    case HWY_AVX3:
      return amx_usable() ? "AVX-512 and AMX" : "AVX-512";
    case HWY_AVX2:
      return "AVX2";
    case HWY_NEON:
      return "NEON";
    default:
      return "scalar";
  }
}

Isa isa_from_name(std::string const& name) {
  for (auto const& [known, isa] : names) {
    if (name == known) return isa;
  }
  throw UsageError("unknown instruction set '" + name + "'", "", "use auto, scalar, avx2, avx512 or amx");
}

}  // namespace isotrain
