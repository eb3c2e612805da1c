#include "lib/base/process.h"

#include <fstream>
#include <string>

namespace isotrain {

std::optional<ResidentMemory> resident_memory() {
  std::ifstream status("/proc/self/status");
  ResidentMemory memory;
  for (std::string key; status >> key;) {
    std::size_t kibibytes = 0;
    if (key == "VmHWM:" && status >> kibibytes) memory.peak_bytes = kibibytes * 1024;
    if (key == "VmRSS:" && status >> kibibytes) memory.now_bytes = kibibytes * 1024;
    status.clear();
    status.ignore(4096, '\n');
  }
  if (memory.now_bytes == 0) return std::nullopt;
  return memory;
}

}  // namespace isotrain
