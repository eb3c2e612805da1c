#include "kernels/cpu/matmul_workspace.h"

#include <sys/mman.h>

#include <array>
#include <memory>
#include <new>

namespace isotrain::kernels::gemm {
namespace {

/// Whole huge pages, so that walking panels of megabytes misses no translation.
constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::align_val_t alignment{huge_page};

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
    std::size_t const rounded = (bytes + huge_page - 1) / huge_page * huge_page;
    memory = {};
    memory.data.reset(::operator new(rounded, alignment));
    memory.bytes = rounded;
#ifdef MADV_HUGEPAGE
    madvise(memory.data.get(), rounded, MADV_HUGEPAGE);
#endif
  }
  return memory.data.get();
}

}  // namespace isotrain::kernels::gemm
