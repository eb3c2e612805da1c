#include "lib/device/buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

#include "lib/base/error.h"

namespace isotrain {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20;

std::size_t alignment_of(std::size_t bytes) {
  return bytes >= huge_page ? huge_page : alignment;
}

/// Whole pages or lines, all of them resident.
std::size_t allocated(std::size_t bytes) {
  std::size_t const align = alignment_of(bytes);
  return std::max<std::size_t>((bytes + align - 1) / align * align, align);
}

std::string megabytes(std::size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%10.2f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

}  // namespace

std::size_t BufferPlan::add_bytes(std::string purpose, std::string name, std::size_t bytes) {
  entries_.push_back({std::move(purpose), std::move(name), bytes});
  return entries_.size() - 1;
}

std::size_t BufferPlan::total_bytes() const {
  std::size_t total = 0;
  for (auto const& entry : entries_) total += allocated(entry.bytes);
  return total;
}

std::size_t BufferPlan::total_bytes(std::string const& purpose) const {
  std::size_t total = 0;
  for (auto const& entry : entries_) {
    if (entry.purpose == purpose) total += allocated(entry.bytes);
  }
  return total;
}

std::string BufferPlan::table() const {
  constexpr std::size_t largest = 3;
  std::map<std::string, std::vector<Entry>> purposes;
  for (auto const& entry : entries_) purposes[entry.purpose].push_back(entry);
  std::string text;
  for (auto& [purpose, group] : purposes) {
    std::stable_sort(group.begin(), group.end(), [](auto const& a, auto const& b) { return a.bytes > b.bytes; });
    text += megabytes(total_bytes(purpose)) + "  " + purpose + " (";
    for (std::size_t i = 0; i < std::min(largest, group.size()); ++i) {
      text += (i ? ", " : "") + group[i].name;
    }
    if (group.size() > largest) text += " and " + std::to_string(group.size() - largest) + " more";
    text += ")\n";
  }
  return text + megabytes(total_bytes()) + "  in all\n";
}

void Buffers::Free::operator()(std::byte* p) const {
  std::free(p);
}

Buffers::Buffers(BufferPlan const& plan, Fill fill) {
  for (auto const& entry : plan.entries()) {
    std::size_t const align = alignment_of(entry.bytes);
    std::size_t const bytes = allocated(entry.bytes);
    auto* p = static_cast<std::byte*>(std::aligned_alloc(align, bytes));
    if (!p) {
      throw Error("cannot allocate " + megabytes(bytes) + " for " + entry.purpose + " '" + entry.name + "'",
                  "out of memory", "see train --dry-run for what a run needs");
    }
    memory_.emplace_back(p);
    pointers_.push_back(p);
#ifdef MADV_HUGEPAGE
    if (align == huge_page) madvise(p, bytes, MADV_HUGEPAGE);
#endif
    // All ones is a NaN in fp32 and bf16.
    std::memset(p, fill == Fill::nan ? 0xff : 0, bytes);
  }
}

}  // namespace isotrain
