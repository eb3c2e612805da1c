#include "kernels/cpu/matmul_workspace.h"

#include <array>
#include <memory>
#include <new>

namespace isotrain::kernels::gemm {
namespace {

constexpr std::align_val_t alignment{64};

struct Free {
  void operator()(void* p) const { ::operator delete(p, alignment); }
};

struct Memory {
  std::unique_ptr<void, Free> data;
  std::size_t bytes = 0;
};

}  // namespace

void* workspace(Purpose purpose, std::size_t bytes) {
  thread_local std::array<Memory, 3> memories;
  Memory& memory = memories[static_cast<std::size_t>(purpose)];
  if (memory.bytes < bytes) {
    constexpr std::size_t unit = std::size_t{1} << 16;
    std::size_t const rounded = (bytes + unit - 1) / unit * unit;
    memory = {};
    memory.data.reset(::operator new(rounded, alignment));
    memory.bytes = rounded;
  }
  return memory.data.get();
}

}  // namespace isotrain::kernels::gemm
