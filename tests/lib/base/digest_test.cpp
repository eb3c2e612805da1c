#include "lib/base/digest.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <xxhash.h>

#include <fstream>
#include <string>
#include <vector>

#include "lib/base/error.h"

namespace isotrain::test {
namespace {

std::string sample(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * i + i / 7);
  return text;
}

TEST(Digest, IsXxh3) {
  EXPECT_EQ(Digest().hex(), "2d06800538d394c2");  // published value of no bytes at all
  std::string const text = sample(5000);
  EXPECT_EQ(Digest().update(text).value(), XXH3_64bits(text.data(), text.size()));
}

TEST(Digest, DoesNotDependOnTheCut) {
  std::string const text = sample(3000);
  Digest pieces;
  for (std::size_t i = 0, step = 1; i < text.size(); i += step, step = step * 3 % 101 + 1) {
    pieces.update(std::string_view(text).substr(i, step));
  }
  EXPECT_EQ(pieces.value(), Digest().update(text).value());
}

TEST(Digest, SeesOneBit) {
  std::string text = sample(3000);
  std::string const before = Digest().update(text).hex();
  text[1234] ^= 4;
  EXPECT_NE(Digest().update(text).hex(), before);
}

TEST(Digest, TakesSpans) {
  std::vector<int> const numbers{1, 2, 3};
  EXPECT_EQ(Digest().update(std::span(numbers)).value(), Digest().update(numbers.data(), 12).value());
}

TEST(Digest, WritesSixteenHexDigits) {
  EXPECT_EQ(to_hex(0), "0000000000000000");
  EXPECT_EQ(to_hex(0x0123456789abcdefu), "0123456789abcdef");
}

TEST(Digest, ReadsFiles) {
  auto const path = std::filesystem::temp_directory_path() / ("digest_test." + std::to_string(getpid()));
  std::string const text = sample((std::size_t{1} << 20) + 77);  // more than one piece
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(digest_file(path).value(), Digest().update(text).value());
  std::filesystem::remove(path);
}

TEST(Digest, NamesAFileItCannotRead) {
  try {
    digest_file("/no/such/file");
    FAIL();
  } catch (Error const& error) {
    EXPECT_STREQ(error.what(), "cannot open '/no/such/file' (No such file or directory)");
  }
  EXPECT_THROW(digest_file("/"), Error);  // opens, but cannot be read
}

}  // namespace
}  // namespace isotrain::test
