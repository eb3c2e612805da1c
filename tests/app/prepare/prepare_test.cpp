// `isotrain prepare` as a user meets it: what it writes, and what bad input gets.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/digest.h"
#include "lib/data/window_reader.h"
#include "tests/support/program.h"

namespace isotrain::test {
namespace {

namespace fs = std::filesystem;

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << "in: " << (text)

std::string paragraphs(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += "Paragraph " + std::to_string(i) + " says that the rain in Spain\nstays mainly in the plain.\n\n";
  }
  return text;
}

class Preparing : public testing::Test {
 protected:
  ProgramResult prepare(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "prepare");
    return run(isotrain(arguments));
  }
  /// Fails with this exit code and a message that has `part`; nothing is written.
  void expect_failure(std::vector<std::string> const& arguments, int exit_code, std::string const& part) const {
    auto const before = std::distance(fs::directory_iterator(folder_.path()), {});
    auto const result = prepare(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_CONTAINS(result.err, part);
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << "one message: " << result.err;
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), before) << "something was left behind";
  }
  std::string file(std::string const& name, std::string const& text) const {
    write_file(folder_ / name, text);
    return folder_ / name;
  }
  std::string out(std::string const& name = "corpus") const { return folder_ / name; }

  TemporaryFolder folder_;
};

std::map<std::string, std::string> contents(fs::path const& folder) {
  std::map<std::string, std::string> files;
  for (auto const& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = digest_file(entry.path()).hex();
  }
  return files;
}

/// All text of a split, shard after shard, with a newline for each eos.
std::string text_of(data::Corpus const& corpus, data::Split split) {
  auto const tokenizer = data::open_tokenizer(corpus);
  std::string text;
  for (auto const& shard : corpus.shards_of(split)) {
    std::vector<std::uint32_t> tokens(static_cast<std::size_t>(shard.num_tokens));
    data::ShardReader(corpus.folder / shard.file).read(0, tokens);
    for (auto const token : tokens) {
      text += token == corpus.eos ? "\n" : tokenizer->decode(std::span(&token, 1));
    }
  }
  return text;
}

TEST_F(Preparing, KeepsTheTextOfOneShard) {
  auto const text = paragraphs(50);
  auto const input = file("a.txt", text);
  for (std::string const tokenizer : {"bytes", "sentencepiece:300"}) {
    auto const result = prepare({input, "--out", out(tokenizer), "--shards", "1", "--tokenizer", tokenizer});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_CONTAINS(result.out, "done bytes=" + std::to_string(text.size()) + " tokens=");
    EXPECT_CONTAINS(result.out, "note: no document fell into the validation split");
    EXPECT_EQ(text_of(data::open_corpus(out(tokenizer)), data::Split::train), text + "\n");
  }
}

TEST_F(Preparing, SplitsByDocument) {
  auto const input = file("a.txt", paragraphs(400));
  auto const result = prepare({input, "--out", out(), "--documents", "paragraphs", "--validation", "0.25"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  auto const corpus = data::open_corpus(out());
  EXPECT_EQ(corpus.num_train_documents + corpus.num_validation_documents, 400);
  EXPECT_NEAR(static_cast<double>(corpus.num_validation_documents), 100, 45);  // five standard deviations
  EXPECT_EQ(corpus.shards_of(data::Split::train).size(), 24u);
  auto const train = text_of(corpus, data::Split::train);
  auto const validation = text_of(corpus, data::Split::validation);
  for (int i = 0; i < 400; ++i) {
    auto const name = "Paragraph " + std::to_string(i) + " ";
    EXPECT_NE(train.find(name) == std::string::npos, validation.find(name) == std::string::npos) << name;
  }
}

TEST_F(Preparing, RepeatsOnAnyNumberOfThreads) {
  auto const input = file("a.txt", paragraphs(2000));
  std::vector<std::string> const common{input,         "--documents",       "paragraphs",
                                        "--tokenizer", "sentencepiece:300", "--out"};
  auto const with = [&](std::string const& name, std::vector<std::string> const& more) {
    auto arguments = common;
    arguments.push_back(out(name));
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(prepare(arguments).exit_code, 0);
    return contents(out(name));
  };
  auto const one = with("one", {"--threads", "1"});
  EXPECT_EQ(with("three", {"--threads", "3"}), one);
  EXPECT_NE(with("seed", {"--seed", "2"}), one);
}

TEST_F(Preparing, TakesValidationFromElsewhere) {
  auto const train = file("train.txt", "to train\n");
  auto const validation = file("validation.txt", "to validate\n");
  auto const result = prepare({train, "--validation-input", validation, "--out", out(), "--shards", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  auto const corpus = data::open_corpus(out());
  EXPECT_EQ(text_of(corpus, data::Split::train), "to train\n\n");
  EXPECT_EQ(text_of(corpus, data::Split::validation), "to validate\n\n");
  expect_failure({train, "--validation-input", validation, "--validation", "0.1", "--out", out("x")}, 2, "contradict");
}

TEST_F(Preparing, TakesTheTokenizerOfAnotherCorpus) {
  auto const input = file("a.txt", paragraphs(50));
  ASSERT_EQ(prepare({input, "--out", out("first"), "--tokenizer", "sentencepiece:300"}).exit_code, 0);
  auto const result = prepare({input, "--out", out("second"), "--tokenizer", out("first") + "/tokenizer.bin"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(contents(out("first")), contents(out("second")));
}

TEST_F(Preparing, ReadsJsonl) {
  auto const input = file("a.jsonl", "{\"id\": 1, \"body\": \"one\"}\n{\"id\": 2, \"body\": \"two\"}\n");
  ASSERT_EQ(prepare({input, "--field", "body", "--out", out(), "--shards", "1", "--validation", "0"}).exit_code, 0);
  EXPECT_EQ(text_of(data::open_corpus(out()), data::Split::train), "one\ntwo\n");
  expect_failure({input, "--out", out("x")}, 1, "a.jsonl' line 1 has no field 'text' (it has: body, id)");
}

TEST_F(Preparing, SaysWhatIsWrong) {
  auto const good = file("good.txt", "good\n");
  auto const latin = file("latin.txt", "caf\xe9\n");
  auto const empty = file("empty.txt", "");
  expect_failure({good}, 2, "--out is missing");
  expect_failure({"--out", out()}, 2, "input");
  expect_failure({good, "--out", out(), "--shard", "3"}, 2, "shards");
  expect_failure({good, "--out", out(), "--shards", "0"}, 2, "shards");
  expect_failure({good, "--out", out(), "--validation", "1.5"}, 2, "validation");
  expect_failure({good, "--out", out(), "--documents", "pages"}, 2, "paragraphs");
  expect_failure({good, "--out", out(), "--tokenizer", "gpt9"}, 2, "there is no tokenizer 'gpt9'");
  expect_failure({good, "--out", out(), "--tokenizer", "sentencepiece:many"}, 2, "sentencepiece:many has no size");
  expect_failure({good, "--out", out(), "--tokenizer", good}, 1, "good.txt' is not a SentencePiece model");
  expect_failure({good, "--out", good}, 2, "good.txt' exists already");
  expect_failure({good, "--out", "/proc/corpus"}, 1, "'/proc/corpus' cannot be written");
  expect_failure({folder_ / "missing", "--out", out()}, 1, "missing' cannot be read");
  expect_failure({empty, "--out", out()}, 1, "the input is empty");
  expect_failure({latin, "--out", out()}, 1, "latin.txt' is not UTF-8 (byte 0xe9 at offset 3)");
  EXPECT_EQ(prepare({latin, "--out", out(), "--invalid", "replace", "--shards", "1"}).exit_code, 0);
  EXPECT_EQ(text_of(data::open_corpus(out()), data::Split::train), "caf\uFFFD\n\n");
}

/// Waits until the temporary folder of a corpus is there.
bool has_begun(fs::path const& folder) {
  for (int i = 0; i < 1000; ++i) {
    for (auto const& entry : fs::directory_iterator(folder)) {
      if (entry.path().filename().string().find(".tmp-") != std::string::npos) return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

TEST_F(Preparing, AKillLeavesNoCorpus) {
  auto const input = file("a.txt", paragraphs(300000));  // 20 MB: seconds of work
  for (int const signal : {SIGKILL, SIGTERM, SIGINT}) {
    Program program(isotrain({"prepare", input, "--documents", "paragraphs", "--out", out(), "--threads", "1"}));
    ASSERT_TRUE(has_begun(folder_.path()));
    program.signal(signal);
    auto const result = program.wait();
    EXPECT_FALSE(fs::exists(out()));
    if (signal == SIGKILL) {
      EXPECT_EQ(result.exit_code, 128 + SIGKILL);
      for (auto const& entry : fs::directory_iterator(folder_.path())) {
        if (entry.is_directory()) fs::remove_all(entry.path());
      }
    } else {
      EXPECT_EQ(result.exit_code, 1);
      EXPECT_CONTAINS(result.err, "interrupted");
      EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1) << "only the input is left";
    }
  }
}

}  // namespace
}  // namespace isotrain::test
