#include "lib/data/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/lib/data/data_test.h"

namespace isotrain::data::test {
namespace {

/// The whole text in blocks of `block` bytes.
std::string filter(std::string const& text, std::size_t block, InvalidUtf8 policy) {
  Utf8Filter filter(policy, "x.txt");
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += block) filter.feed(std::string_view(text).substr(i, block), out);
  filter.finish(out);
  return out;
}

struct Broken {
  std::string text;
  std::string replaced;
  int offset;  // of the first bad byte
};

std::vector<Broken> const broken = {
    {"ab\xff"
     "c",
     "ab\uFFFDc", 2},
    {"\x80", "\uFFFD", 0},                                // stray
    {"x\xC3", "x\uFFFD", 1},                              // cut at the end
    {"\xE6\x97", "\uFFFD", 0},                            // cut, two of three: one mark
    {"\xF0\x9F\x98", "\uFFFD", 0},                        // cut, three of four: one mark
    {"\xF0\x9F\x98z", "\uFFFDz", 0},                      // cut by a letter
    {"\xC0\xAF", "\uFFFD\uFFFD", 0},                      // overlong
    {"\xE0\x80\xAF", "\uFFFD\uFFFD\uFFFD", 0},            // overlong
    {"\xF0\x80\x80\xAF", "\uFFFD\uFFFD\uFFFD\uFFFD", 0},  // overlong
    {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD", 0},            // surrogate
    {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD", 0},  // above U+10FFFF
    {"\xF8\x88\x80\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD", 0},
    {"\xE2\x82\xE2\x82\xAC", "\uFFFD\u20AC", 0},  // cut, then whole
    {"0123456789abcdef\xE2\x28\xA1", "0123456789abcdef\uFFFD(\uFFFD", 16},
};

std::string const whole =
    "plain ASCII that is longer than a word\n\u00E9\u0416\u20AC\u65E5\uD7FF\uE000\U00010000\U0010FFFF\x7f";

TEST(Utf8Filter, PassesWhatIsWhole) {
  for (std::size_t block = 1; block <= whole.size(); ++block) {
    EXPECT_EQ(filter(whole, block, InvalidUtf8::refuse), whole) << block;
    EXPECT_EQ(filter(whole, block, InvalidUtf8::replace), whole) << block;
  }
}

TEST(Utf8Filter, ReplacesEveryMaximalPart) {
  for (auto const& [text, replaced, offset] : broken) {
    for (std::size_t block = 1; block <= text.size(); ++block) {
      EXPECT_EQ(filter(text, block, InvalidUtf8::replace), replaced) << offset << " in blocks of " << block;
    }
  }
}

TEST(Utf8Filter, RefusesAndSaysWhere) {
  for (auto const& [text, replaced, offset] : broken) {
    for (std::size_t block = 1; block <= text.size(); ++block) {
      auto const message = message_of<Error>([&] { filter(text, block, InvalidUtf8::refuse); });
      EXPECT_CONTAINS(message, "'x.txt' is not UTF-8");
      EXPECT_CONTAINS(message, "at offset " + std::to_string(offset) + ")");
      EXPECT_CONTAINS(message, "--invalid replace");
    }
  }
}

TEST(CharacterStart, FindsTheFirstByte) {
  std::string const text = "a\u20AC\U0001F600";
  std::vector<std::size_t> const starts = {0, 1, 1, 1, 4, 4, 4, 4};
  for (std::size_t at = 0; at < text.size(); ++at) EXPECT_EQ(character_start(text, at), starts[at]);
}

}  // namespace
}  // namespace isotrain::data::test
