#pragma once

#include <cstddef>
#include <optional>

namespace isotrain {

/// Memory of this process that is in RAM.
struct ResidentMemory {
  std::size_t now_bytes = 0;
  std::size_t peak_bytes = 0;
};

/// From /proc/self/status; none where there is no such file.
std::optional<ResidentMemory> resident_memory();

}  // namespace isotrain
