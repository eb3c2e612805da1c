#include "lib/device/amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace isotrain {
namespace {

#if defined(__x86_64__) && defined(__linux__)
bool ask_for_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned bf16_and_tiles = (1U << 22) | (1U << 24);
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & bf16_and_tiles) != bf16_and_tiles) return false;
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#else
bool ask_for_amx() {
  return false;
}
#endif

}  // namespace

bool amx_granted() {
  static bool const granted = ask_for_amx();
  return granted;
}

}  // namespace isotrain
