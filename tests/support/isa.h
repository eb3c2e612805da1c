#pragma once

#include <vector>

#include "lib/base/error.h"
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

/// Puts the best instruction set back when a test that forced others ends.
class RestoreIsa {
 public:
  RestoreIsa() : best_(available_isas().back()) {}
  ~RestoreIsa() { Cpu const restored(1, Bf16Class::tiles, best_); }
  RestoreIsa(RestoreIsa const&) = delete;
  RestoreIsa& operator=(RestoreIsa const&) = delete;

 private:
  Isa best_;
};

}  // namespace isotrain::test
