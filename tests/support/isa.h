#pragma once

#include <vector>

#include "lib/base/error.h"
#include "lib/device/amx.h"
#include "lib/device/cpu.h"

namespace isotrain::test {

/// The instruction sets that this processor has, lowest first (never `automatic`; `amx` only differs in matrix products
/// and is left out).
inline std::vector<Isa> available_isas() {
  std::vector<Isa> found;
  for (Isa const isa : {Isa::scalar, Isa::avx2, Isa::avx512}) {
    try {
      Cpu const forced(1, Bf16Class::tiles, isa);
      found.push_back(isa);
    } catch (UsageError const&) {
    }
  }
  return found;
}

/// The same, and AMX where this process may use it: for matrix products.
inline std::vector<Isa> available_isas_and_amx() {
  std::vector<Isa> found = available_isas();
  if (amx_granted()) found.push_back(Isa::amx);
  return found;
}

/// Puts the best instruction set back when a test that forced others ends.
class RestoreIsa {
 public:
  RestoreIsa() : best_(available_isas_and_amx().back()) {}
  ~RestoreIsa() { Cpu const restored(1, Bf16Class::tiles, best_); }
  RestoreIsa(RestoreIsa const&) = delete;
  RestoreIsa& operator=(RestoreIsa const&) = delete;

 private:
  Isa best_;
};

}  // namespace isotrain::test
