#include "lib/data/tokenizer.h"

#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <span>
#include <string>
#include <vector>

#include "lib/base/random.h"
#include "lib/data/sentencepiece_tokenizer.h"
#include "lib/data/utf8.h"
#include "tests/lib/data/data_test.h"

namespace isotrain::data::test {
namespace {

std::string made_up_text(int num_lines) {
  static char const* const words[] = {"the",  "lane",   "owns",    "its",  "shards", "and",   "every", "window",
                                      "is",   "seen",   "exactly", "once", "per",    "epoch", "while", "ranks",
                                      "come", "and go", "42",      "1999", "naïve",  "über",  "日本",  "語"};
  Random const random(7, "words");
  std::string text;
  std::uint64_t n = 0;
  for (int line = 0; line < num_lines; ++line) {
    for (int word = 0; word < 12; ++word) text += std::string(words[random.bits(n++) % 24]) + (word == 11 ? "." : " ");
    text += "\n";
  }
  return text;
}

std::string train_model(std::int64_t size) {
  bool done = false;
  return train_sentencepiece(size, [&]() -> std::optional<std::string> {
    if (std::exchange(done, true)) return std::nullopt;
    return made_up_text(400);
  });
}

/// Trained once for all tests.
Tokenizer const& trained() {
  static auto const tokenizer = make_sentencepiece_tokenizer(train_model(360), "the model");
  return *tokenizer;
}

std::vector<std::string> const corners = {
    "",
    " ",
    "   two  three   ",
    "\n\n\n",
    "line\r\nline\n\n  indented\ttab\n",
    std::string("a\0b\0", 4),
    "\u00A0\u2003\u3000\u200B\uFEFF",     // white space that normalisation would change
    "\u2581 \u2581\u2581x\u2581",         // the mark that SentencePiece writes for a space
    "<s> </s> <unk> <0x41> <0xE2>",       // looks like its control pieces
    "\uFF21\uFB01 e\u0301 \u1E9B\u0323",  // what NFKC would change
    "漢字とかなと한글 ру́сский עברית عربي",
    "\U0001F600\U0001F468\u200D\U0001F469\u200D\U0001F467 \U0001F1E9\U0001F1EA",
    "\U0010FFFF\uFFFD\uFFFE",
    "the lane owns its shards and every window is seen exactly once",
};

TEST(ByteTokenizer, KeepsAllBytes) {
  auto const tokenizer = make_byte_tokenizer();
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  Random const random(3, "bytes");
  for (std::uint64_t i = 0; i < 1000; ++i) all.push_back(static_cast<char>(random.bits(i)));
  auto const tokens = tokenizer->encode(all);
  ASSERT_EQ(tokens.size(), all.size());
  for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(tokens[i], i);
  EXPECT_EQ(tokenizer->decode(tokens), all);
  EXPECT_EQ(tokenizer->vocabulary_size(), 257);
  EXPECT_EQ(tokenizer->eos(), 256u);
}

TEST(ByteTokenizer, EncodeAppends) {
  std::vector<std::uint32_t> tokens{5};
  make_byte_tokenizer()->encode("ab", tokens);
  EXPECT_EQ(tokens, (std::vector<std::uint32_t>{5, 'a', 'b'}));
}

TEST(ByteTokenizer, RefusesForeignTokens) {
  auto const tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->decode(std::vector<std::uint32_t>{'a', 256, 'b'}), "ab");
  EXPECT_CONTAINS(message_of<Error>([&] { tokenizer->decode(std::vector<std::uint32_t>{257}); }), "257");
}

TEST(SentencePiece, KeepsAllUtf8) {
  for (auto const& text : corners) {
    auto const tokens = trained().encode(text);
    EXPECT_EQ(trained().decode(tokens), text);
    for (auto const token : tokens) EXPECT_NE(token, trained().eos()) << text;
  }
}

TEST(SentencePiece, KeepsRandomCharacters) {
  Random const random(11, "characters");
  std::string raw;
  for (std::uint64_t i = 0; i < 20000; ++i) raw.push_back(static_cast<char>(random.bits(i)));
  std::string text;
  Utf8Filter filter(InvalidUtf8::replace, "random");
  filter.feed(raw, text);
  filter.finish(text);
  EXPECT_EQ(trained().decode(trained().encode(text)), text);
}

TEST(SentencePiece, DecodesAnyCut) {
  auto const tokens = trained().encode("naïve \U0001F600 the window\n");
  std::string joined;
  for (auto const token : tokens) joined += trained().decode(std::span(&token, 1));
  EXPECT_EQ(joined, "naïve \U0001F600 the window\n");
}

TEST(SentencePiece, LearnsTheText) {
  EXPECT_EQ(trained().vocabulary_size(), 360);
  auto const text = made_up_text(50);
  // A vocabulary that learnt nothing needs a token a byte.
  EXPECT_LT(trained().encode(text).size(), text.size() / 2);
}

TEST(SentencePiece, LinesAreEncodedApart) {
  // What a document is cut into must not change its tokens.
  std::string const first = "the lane owns\n", second = "  its shards\n\n", third = "every window";
  auto joined = trained().encode(first);
  trained().encode(second, joined);
  trained().encode(third, joined);
  EXPECT_EQ(trained().encode(first + second + third), joined);
  // Negative control: a cut inside what is one token does change them.
  auto const whole = trained().encode("the window");
  std::size_t at = 1;
  for (std::size_t i = 0; trained().decode(std::span(whole).subspan(i, 1)).size() < 2; ++i) ++at;
  auto cut = trained().encode(std::string_view("the window").substr(0, at));
  trained().encode(std::string_view("the window").substr(at), cut);
  EXPECT_EQ(trained().decode(cut), "the window");
  EXPECT_NE(whole, cut);
}

/// Words are looked up rather than encoded again; the library itself, given the whole text, is the definition.
TEST(SentencePiece, EqualsTheLibrary) {
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(train_model(360)).ok());
  auto texts = corners;
  texts.push_back(made_up_text(100));
  texts.push_back(std::string(300, ' ') + std::string(300, 'x') + "  y \n  z");
  for (auto const& text : texts) {
    if (text.find("\u2581") != std::string::npos) continue;  // which the library does not keep
    std::vector<int> ids;
    ASSERT_TRUE(library.Encode(text, &ids).ok());
    EXPECT_EQ(trained().encode(text), std::vector<std::uint32_t>(ids.begin(), ids.end())) << text;
    EXPECT_EQ(trained().encode(text), std::vector<std::uint32_t>(ids.begin(), ids.end())) << "again: " << text;
  }
}

TEST(SentencePiece, TokenizersDoNotMixUpTheirWords) {
  auto const other = make_sentencepiece_tokenizer(train_model(300), "other");
  auto const text = made_up_text(5);
  auto const of_trained = trained().encode(text);
  auto const of_other = other->encode(text);
  EXPECT_NE(of_trained, of_other);
  EXPECT_EQ(trained().encode(text), of_trained);
  EXPECT_EQ(other->decode(of_other), text);
}

TEST(SentencePiece, TrainingRepeats) {
  EXPECT_EQ(train_model(360), train_model(360));
  EXPECT_NE(train_model(360), train_model(361));
}

TEST(SentencePiece, LongLinesAreTrainedOn) {
  // One line of 100 kB and no newline: longer than the trainer takes in one sentence.
  std::string text;
  for (int i = 0; i < 12000; ++i) text += i % 3 == 0 ? "window " : "epoch ";
  bool done = false;
  auto const model = train_sentencepiece(285, [&]() -> std::optional<std::string> {
    if (std::exchange(done, true)) return std::nullopt;
    return text;
  });
  auto const tokenizer = make_sentencepiece_tokenizer(model, "the model");
  EXPECT_LT(tokenizer->encode("window epoch window").size(), 8u);
}

TEST(SentencePiece, RefusesSizesThatDoNotSuit) {
  EXPECT_CONTAINS(message_of<UsageError>([] { train_model(100); }), "256 of them are the bytes");
  EXPECT_CONTAINS(message_of<UsageError>([] { train_model(262); }), "smaller than required_chars");
  EXPECT_CONTAINS(message_of<UsageError>([] { train_model(30000); }), "too high");
  EXPECT_CONTAINS(message_of<Error>([] { train_sentencepiece(500, [] { return std::optional<std::string>(); }); }),
                  "no text");
}

TEST(SentencePiece, RefusesWhatIsNoModel) {
  EXPECT_CONTAINS(message_of<Error>([] { make_sentencepiece_tokenizer("some text", "'x.model'"); }),
                  "'x.model' is not a SentencePiece model");
  EXPECT_CONTAINS(message_of<Error>([] { make_sentencepiece_tokenizer("", "'y.model'"); }), "'y.model'");
  EXPECT_CONTAINS(message_of<Error>([] { trained().decode(std::vector<std::uint32_t>{360}); }), "360");
}

TEST(Tokenizer, SurvivesSerialization) {
  auto const bytes = make_byte_tokenizer();
  auto const again = make_tokenizer(bytes->serialize());
  EXPECT_EQ(again->name(), "bytes");
  EXPECT_EQ(again->hash(), bytes->hash());

  auto const pieces = make_tokenizer(trained().serialize());
  EXPECT_EQ(pieces->name(), "sentencepiece");
  EXPECT_EQ(pieces->hash(), trained().hash());
  EXPECT_EQ(pieces->eos(), trained().eos());
  EXPECT_EQ(pieces->encode("every window is 42"), trained().encode("every window is 42"));

  EXPECT_NE(bytes->hash(), trained().hash());
  EXPECT_NE(make_sentencepiece_tokenizer(train_model(361), "other")->hash(), trained().hash());
}

TEST(Tokenizer, RefusesDamage) {
  auto serialized = trained().serialize();
  serialized[3] = std::byte{'X'};
  EXPECT_CONTAINS(message_of<Error>([&] { make_tokenizer(serialized); }), "not a stored tokenizer");
  auto cut = trained().serialize();
  cut.resize(cut.size() / 2);
  EXPECT_CONTAINS(message_of<Error>([&] { make_tokenizer(cut); }), "not a SentencePiece model");
  EXPECT_CONTAINS(message_of<Error>([] { make_tokenizer({}); }), "not a stored tokenizer");
}

}  // namespace
}  // namespace isotrain::data::test
