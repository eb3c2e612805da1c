#include "lib/base/process.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace isotrain::test {
namespace {

TEST(ResidentMemory, CountsMemoryThatWasTouched) {
  auto const before = resident_memory();
  ASSERT_TRUE(before.has_value());
  EXPECT_GT(before->now_bytes, 1u << 20);
  EXPECT_GE(before->peak_bytes, before->now_bytes);
  std::size_t const bytes = std::size_t{128} << 20;
  // Straight from the system, so that freeing gives it back.
  void* const touched = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(touched, MAP_FAILED);
  std::memset(touched, 1, bytes);
  auto const during = resident_memory();
  ASSERT_TRUE(during.has_value());
  EXPECT_GE(during->now_bytes, before->now_bytes + bytes / 10 * 9);
  munmap(touched, bytes);
  auto const after = resident_memory();
  ASSERT_TRUE(after.has_value());
  EXPECT_LT(after->now_bytes, before->now_bytes + bytes / 2);
  EXPECT_GE(after->peak_bytes, before->now_bytes + bytes / 10 * 9);
}

}  // namespace
}  // namespace isotrain::test
