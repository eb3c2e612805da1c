#include "lib/data/tokenize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/lib/data/data_test.h"

namespace isotrain::data::test {
namespace {

/// Documents of very different lengths, one a line: every 1000th is long, and another one each time.
std::string uneven_lines(std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; text.size() < bytes; ++i) {
    text += std::to_string(i) + std::string(i % 1009 == 0 ? 20000 : i % 100, static_cast<char>('a' + i % 26)) + "\n";
  }
  return text;
}

TEST(Tokenize, KeepsTheOrderOnAnyNumberOfThreads) {
  ScratchFolder const folder;
  auto const text = uneven_lines(std::size_t{6} << 20);
  auto const file = write_text(folder / "a.txt", text);
  auto const tokenizer = make_byte_tokenizer();
  for (int const threads : {1, 2, 5}) {
    TextSource source({file}, {.documents = Documents::lines});
    std::string joined;
    std::int64_t document = 0;
    tokenize(source, *tokenizer, threads, [&](TokenizedFragment const& fragment) {
      EXPECT_EQ(fragment.document, document);
      EXPECT_EQ(fragment.bytes, fragment.tokens.size());
      joined += tokenizer->decode(fragment.tokens) + "\n";
      document += fragment.ends_document;
    });
    EXPECT_TRUE(joined == text) << threads << " threads";
  }
}

TEST(Tokenize, PassesOnWhatAThreadThrows) {
  class Broken final : public Tokenizer {
   public:
    using Tokenizer::encode;
    std::string name() const override { return "broken"; }
    std::int64_t vocabulary_size() const override { return 1; }
    std::uint32_t eos() const override { return 0; }
    void encode(std::string_view, std::vector<std::uint32_t>&) const override { throw Error("it is broken"); }
    std::string decode(std::span<std::uint32_t const>) const override { return {}; }
    std::vector<std::byte> serialize() const override { return {}; }
  };
  ScratchFolder const folder;
  TextSource source({write_text(folder / "a.txt", "one\ntwo\n")}, {.documents = Documents::lines});
  EXPECT_EQ(message_of<Error>([&] { tokenize(source, Broken(), 2, [](TokenizedFragment const&) {}); }), "it is broken");
}

TEST(Tokenize, MemoryDoesNotGrowWithTheInput) {
  if (!resident_bytes()) GTEST_SKIP() << "the memory of this process cannot be measured";
  ScratchFolder const folder;
  std::size_t const bytes = std::size_t{40} << 20;
  auto const file = write_text(folder / "a.txt", uneven_lines(bytes));
  auto const tokenizer = make_byte_tokenizer();
  TextSource source({file}, {.documents = Documents::lines});
  std::size_t warm = 0, most = 0, fragments = 0;
  tokenize(source, *tokenizer, 1, [&](TokenizedFragment const&) {
    if (++fragments % 1000 != 0) return;
    auto const now = *resident_bytes();
    if (source.bytes_read() < static_cast<std::int64_t>(bytes / 5)) warm = std::max(warm, now);
    most = std::max(most, now);
  });
  EXPECT_GT(warm, 0u);
  EXPECT_LT(most, warm + (std::size_t{4} << 20));
}

}  // namespace
}  // namespace isotrain::data::test
