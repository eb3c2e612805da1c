#include "lib/data/text_source.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "lib/base/random.h"
#include "lib/data/text_sample.h"
#include "tests/lib/data/data_test.h"

namespace isotrain::data::test {
namespace {

using std::filesystem::path;

/// The whole documents; checks on the way that fragments come in order.
std::vector<std::string> documents_of(std::vector<path> const& inputs, TextOptions const& options = {}) {
  TextSource source(inputs, options);
  std::vector<std::string> documents;
  Fragment fragment;
  bool starts = true;
  while (source.next(fragment)) {
    if (starts) documents.emplace_back();
    EXPECT_EQ(fragment.document, static_cast<std::int64_t>(documents.size()) - 1);
    EXPECT_FALSE(fragment.text.empty());
    EXPECT_LE(fragment.text.size(), TextSource::max_fragment_bytes);
    documents.back() += fragment.text;
    starts = fragment.ends_document;
  }
  EXPECT_TRUE(starts) << "the last document did not end";
  EXPECT_EQ(source.bytes_read(), source.total_bytes());
  return documents;
}

using Texts = std::vector<std::string>;

TEST(TextSource, TakesFilesWhole) {
  ScratchFolder const folder;
  auto const a = write_text(folder / "a.txt", "one\n\ntwo\n");
  auto const b = write_text(folder / "b.txt", "three");
  auto const empty = write_text(folder / "empty.txt", "");
  EXPECT_EQ(documents_of({b, empty, a}), (Texts{"three", "one\n\ntwo\n"}));
}

TEST(TextSource, CutsParagraphs) {
  ScratchFolder const folder;
  auto const a = write_text(folder / "a.txt", "\n\none\nstill one\n  \t\r\ntwo\r\n\n\n\nthree");
  auto const b = write_text(folder / "b.txt", "four\n");
  EXPECT_EQ(documents_of({a, b}, {.documents = Documents::paragraphs}),
            (Texts{"one\nstill one", "two\r", "three", "four"}));
}

TEST(TextSource, CutsLines) {
  ScratchFolder const folder;
  auto const a = write_text(folder / "a.txt", "one\r\n\n  \ntwo\n three");
  EXPECT_EQ(documents_of({a}, {.documents = Documents::lines}), (Texts{"one", "two", " three"}));
}

TEST(TextSource, ReadsRecords) {
  ScratchFolder const folder;
  auto const a = write_text(folder / "a.jsonl",
                            "{\"text\": \"one\\ntwo\", \"id\": 1}\n\n{\"id\": 2, \"text\": \"\"}\n"
                            "{\"text\": \"\\u00e9\\ud83d\\ude00\"}");
  EXPECT_EQ(documents_of({a}), (Texts{"one\ntwo", "\u00E9\U0001F600"}));
  auto const b = write_text(folder / "b.jsonl", "{\"body\": \"x\"}\n");
  EXPECT_EQ(documents_of({b}, {.field = "body"}), (Texts{"x"}));
}

TEST(TextSource, ReadsFoldersInOrder) {
  ScratchFolder const folder;
  write_text(folder / "z.txt", "last");
  write_text(folder / "b/2.txt", "third");
  write_text(folder / "b/1.jsonl", "{\"text\": \"second\"}\n");
  write_text(folder / "a.txt", "first");
  write_text(folder / ".hidden", "\xff");
  write_text(folder / ".git/config", "\xff");
  EXPECT_EQ(documents_of({folder.path()}), (Texts{"first", "second", "third", "last"}));
}

/// Documents longer than a fragment, with and without places to cut.
TEST(TextSource, CutsLongDocuments) {
  ScratchFolder const folder;
  constexpr auto max = TextSource::max_fragment_bytes;
  std::string lines, words, letters;
  for (int i = 0; lines.size() < 3 * max; ++i) lines += "line " + std::to_string(i) + "\n";
  for (int i = 0; words.size() < 2 * max + 77; ++i) words += "word" + std::to_string(i) + " ";
  while (letters.size() < 2 * max) letters += "\u20AC";  // 3 bytes, so that a cut at `max` would be inside
  for (auto const* const pointer : {&lines, &words, &letters}) {
    auto const& text = *pointer;
    auto const file = write_text(folder / "long.txt", text);
    TextSource source({file}, {});
    Fragment fragment;
    std::string joined;
    int count = 0;
    while (source.next(fragment)) {
      joined += fragment.text;
      ++count;
      EXPECT_EQ(fragment.document, 0);
      EXPECT_EQ(fragment.ends_document, joined.size() == text.size());
      if (fragment.ends_document) continue;
      if (pointer == &lines) {
        EXPECT_EQ(fragment.text.back(), '\n');
      }
      EXPECT_NE(static_cast<unsigned char>(text[joined.size()]) & 0xc0, 0x80) << "a cut inside a character";
    }
    EXPECT_TRUE(joined == text);
    EXPECT_GE(count, 3);
    for (auto const kind : {Documents::paragraphs, Documents::lines}) {
      if (kind == Documents::lines && pointer == &lines) continue;
      auto expected = text;
      if (expected.back() == '\n') expected.pop_back();
      EXPECT_TRUE(documents_of({file}, {.documents = kind}) == Texts{expected});
    }
  }
}

TEST(TextSource, CutsDependOnTheDocumentAlone) {
  ScratchFolder const folder;
  std::string text;
  for (int i = 0; text.size() < 3 * TextSource::max_fragment_bytes; ++i) text += "line " + std::to_string(i) + "\n";
  auto const fragments = [](std::vector<path> const& inputs, std::int64_t document) {
    TextSource source(inputs, {});
    Texts texts;
    Fragment fragment;
    while (source.next(fragment)) {
      if (fragment.document == document) texts.push_back(fragment.text);
    }
    return texts;
  };
  auto const a = write_text(folder / "a.txt", text);
  auto const b = write_text(folder / "b.txt", std::string(1234567, 'x'));
  EXPECT_TRUE(fragments({a}, 0) == fragments({b, a}, 1));
}

TEST(TextSource, SaysWhatIsWrong) {
  ScratchFolder const folder;
  auto const read = [](path const& input, TextOptions const& options = {}) {
    return message_of<Error>([&] { documents_of({input}, options); });
  };
  EXPECT_CONTAINS(read(folder / "missing.txt"), "missing.txt' cannot be read");
  std::filesystem::create_directory(folder / "void");
  EXPECT_CONTAINS(read(folder / "void"), "has no text");
  EXPECT_CONTAINS(read("/dev/null"), "has no text");
  auto const latin = write_text(folder / "latin.txt", std::string(2000000, 'a') + "caf\xe9 au lait");
  EXPECT_CONTAINS(read(latin), "latin.txt' is not UTF-8 (byte 0xe9 at offset 2000003)");
  auto const replaced = documents_of({latin}, {.invalid = InvalidUtf8::replace});
  EXPECT_EQ(replaced[0].substr(2000000), "caf\uFFFD au lait");

  EXPECT_CONTAINS(read(write_text(folder / "1.jsonl", "{\"text\": \"x\"}\n{\"text\": ")), "1.jsonl' line 2 is no JSON");
  EXPECT_CONTAINS(read(write_text(folder / "2.jsonl", "[1]")), "line 1 is no JSON object (it is of type array)");
  EXPECT_CONTAINS(read(write_text(folder / "3.jsonl", "{\"a\": 1, \"b\": 2}")),
                  "line 1 has no field 'text' (it has: a, b); choose another with --field");
  EXPECT_CONTAINS(read(write_text(folder / "4.jsonl", "{\"text\": 3}")), "(it is of type number)");
  EXPECT_CONTAINS(read(write_text(folder / "5.jsonl", "{\"text\": \"\\ud83d\"}")), "line 1 is no JSON");
}

TEST(TextSource, MemoryDoesNotGrowWithTheInput) {
  ScratchFolder const folder;
  // One line of 100 MB: the worst case for a reader of lines.
  {
    auto* const file = std::fopen((folder / "big.txt").c_str(), "wb");
    std::string const block(1 << 20, 'x');
    for (int i = 0; i < 100; ++i) std::fwrite(block.data(), 1, block.size(), file);
    std::fclose(file);
  }
  auto const before = resident_bytes();
  if (!before) GTEST_SKIP() << "the memory of this process cannot be measured";
  for (auto const kind : {Documents::file, Documents::paragraphs, Documents::lines}) {
    TextSource source({folder / "big.txt"}, {.documents = kind});
    Fragment fragment;
    std::size_t bytes = 0;
    while (source.next(fragment)) {
      bytes += fragment.text.size();
      ASSERT_LT(*resident_bytes(), *before + (16u << 20));
    }
    EXPECT_EQ(bytes, 100u << 20);
  }
}

TEST(TextSampler, DrawsByLine) {
  ScratchFolder const folder;
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "this is line number " + std::to_string(i) + "\n";
  auto const file = write_text(folder / "a.txt", text);
  auto const sample = [&](std::uint64_t seed, std::int64_t budget) {
    TextSource source({file}, {});
    TextSampler sampler(source, seed, budget);
    std::string drawn;
    while (auto const part = sampler()) drawn += *part;
    return drawn;
  };
  EXPECT_TRUE(sample(1, 1 << 30) == text);
  auto const drawn = sample(1, 50000);
  EXPECT_GT(drawn.size(), 45000u);
  EXPECT_LT(drawn.size(), 55000u);
  EXPECT_TRUE(drawn.starts_with("this is line number ") && drawn.ends_with("\n"));
  EXPECT_TRUE(sample(1, 50000) == drawn);
  EXPECT_FALSE(sample(2, 50000) == drawn);
}

}  // namespace
}  // namespace isotrain::data::test
