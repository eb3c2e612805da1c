#include "lib/train/ledger.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "lib/base/atomic_file.h"
#include "lib/base/error.h"
#include "lib/train/run_folder.h"
#include "tests/lib/train/temporary_folder.h"

namespace isotrain::test {
namespace {

LedgerHeader const header{{"embedding", "layer 0", "head"}, {"embed", "lm_head"}};
std::string const header_line =
    R"({"format":1,"layers":["embedding","layer 0","head"],"parameters":["embed","lm_head"]})"
    "\n";

class LedgerTest : public testing::Test {
 protected:
  LedgerWriter writer(LedgerHeader const& of = header) {
    return LedgerWriter(path_, of, [this](std::string const& message) { warnings_.push_back(message); });
  }
  /// Hashes that are a function of the step.
  static void append(LedgerWriter& to, std::uint64_t step) {
    std::uint64_t const s = step;
    to.append(static_cast<std::int64_t>(step), std::vector{s, s + 1, s + 2}, std::vector{s + 3, s + 4, s + 5},
              std::vector{s + 6, s + 7}, std::vector{s + 8, s + 9}, s + 10);
  }
  void write(std::string const& text) { std::ofstream(path_, std::ios::binary) << text; }
  /// The steps in the file.
  std::vector<std::int64_t> steps() {
    LedgerReader reader(path_);
    std::vector<std::int64_t> found;
    while (auto const line = reader.next()) found.push_back(line->step);
    return found;
  }
  template <class F>
  static std::string error_of(F const& f) {
    try {
      f();
    } catch (Error const& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "ledger.jsonl";
  std::vector<std::string> warnings_;
};

TEST_F(LedgerTest, IsAHeaderAndALineAStep) {
  auto file = writer();
  EXPECT_EQ(read_file(path_), header_line);
  file.append(7, std::vector<std::uint64_t>{1, 2, 0xfedcba9876543210U}, std::vector<std::uint64_t>{4, 5, 6},
              std::vector<std::uint64_t>{7, 8}, std::vector<std::uint64_t>{9, 10}, 11);
  EXPECT_EQ(read_file(path_),
            header_line + R"({"step":7,"activation":["0000000000000001","0000000000000002","fedcba9876543210"],)"
                          R"("activation_gradient":["0000000000000004","0000000000000005","0000000000000006"],)"
                          R"("weight_gradient":["0000000000000007","0000000000000008"],)"
                          R"("weight":["0000000000000009","000000000000000a"],"fingerprint":"000000000000000b"})"
                          "\n");
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(LedgerTest, ReadsBackWhatWasWritten) {
  auto file = writer();
  append(file, 1);
  append(file, 0x8000000000000000U >> 2);
  LedgerReader reader(path_);
  EXPECT_EQ(reader.header(), header);
  auto line = reader.next();
  ASSERT_TRUE(line);
  EXPECT_EQ(reader.parse(*line), (LedgerStep{1, {1, 2, 3}, {4, 5, 6}, {7, 8}, {9, 10}, 11}));
  line = reader.next();
  ASSERT_TRUE(line);
  EXPECT_EQ(reader.parse(*line).fingerprint, (0x8000000000000000U >> 2) + 10);
  EXPECT_FALSE(reader.next());
}

TEST_F(LedgerTest, GoesOnBehindWhatIsThere) {
  auto first = writer();
  append(first, 1);
  auto second = writer();
  append(second, 2);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2}));
}

TEST_F(LedgerTest, RefusesTheFileOfAnotherModel) {
  writer();
  EXPECT_EQ(error_of([&] {
              writer({{"embedding"}, header.parameters});
            }),
            "the ledger '" + path_.string() +
                "' belongs to another model (its layers or parameters differ); choose another --run.dir, or remove the "
                "file");
  EXPECT_NE(error_of([&] { writer({header.layers, {"embed"}}); }), "no error");
  EXPECT_EQ(error_of([&] { writer(); }), "no error");
}

TEST_F(LedgerTest, WantsAHashOfEachLayerAndParameter) {
  auto file = writer();
  std::vector<std::uint64_t> const one(1), two(2), three(3);
  EXPECT_THROW(file.append(1, two, three, two, two, 0), std::logic_error);
  EXPECT_THROW(file.append(1, three, two, two, two, 0), std::logic_error);
  EXPECT_THROW(file.append(1, three, three, three, two, 0), std::logic_error);
  EXPECT_THROW(file.append(1, three, three, two, one, 0), std::logic_error);
  EXPECT_EQ(read_file(path_), header_line);
}

TEST_F(LedgerTest, AFileThatCannotBeWrittenIsReported) {
  EXPECT_EQ(
      error_of([&] { LedgerWriter(folder_ / "none" / "ledger.jsonl", header, {}); }),
      "cannot write the ledger '" + (folder_ / "none" / "ledger.jsonl").string() + "' (No such file or directory)");
  path_ = "/dev/full";
  auto file = writer();
  append(file, 1);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_EQ(warnings_[0],
            "cannot write the ledger '/dev/full' (No space left on device); the run goes on, lines of it are lost");
}

TEST_F(LedgerTest, ResumingCutsWhatComesAgain) {
  auto file = writer();
  for (std::uint64_t step = 1; step <= 5; ++step) append(file, step);
  std::ofstream(path_, std::ios::app) << "{\"step\":6,\"activ";
  resume_run_folder(RunFolder(folder_.path()), "", 3);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3}));
  auto again = writer();
  append(again, 4);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4}));
}

TEST_F(LedgerTest, CutsOnlyWhatItMust) {
  cut_ledger(path_, 3);
  EXPECT_FALSE(std::filesystem::exists(path_));
  auto file = writer();
  append(file, 1);
  std::string const whole = read_file(path_);
  cut_ledger(path_, 1);
  EXPECT_EQ(read_file(path_), whole);
  write(whole + "{\"step\":1,\"torn\"");
  cut_ledger(path_, 9);
  EXPECT_EQ(read_file(path_), whole);
  write(whole + "what is this\n" + whole.substr(header_line.size()));
  cut_ledger(path_, 9);
  EXPECT_EQ(read_file(path_), whole);
  cut_ledger(path_, 0);  // the run begins anew, perhaps with another model
  EXPECT_EQ(read_file(path_), "");
  write("{\"format\":1,\"lay");
  cut_ledger(path_, 9);
  EXPECT_EQ(read_file(path_), "");
}

TEST_F(LedgerTest, ATornLastLineDoesNotCount) {
  write(header_line + "{\"step\":1,\"x\":0}\n{\"step\":2,\"x\":0}");
  EXPECT_EQ(steps(), std::vector<std::int64_t>{1});
}

TEST_F(LedgerTest, RefusesWhatIsNoLedger) {
  std::string const no_ledger = "'" + path_.string() + "' is no ledger that can be read ";
  EXPECT_EQ(error_of([&] { LedgerReader{path_}; }),
            "cannot open the ledger '" + path_.string() + "' (there is no such file)");
  write("");
  EXPECT_EQ(error_of([&] { LedgerReader{path_}; }), no_ledger + "(it has no header)");
  write("{\"step\":1}\n");
  EXPECT_EQ(error_of([&] { LedgerReader{path_}; }), no_ledger + "(its first line is no header)");
  write("{\"format\":2}\n");
  EXPECT_EQ(error_of([&] { LedgerReader{path_}; }), no_ledger + "(it is of format 2)");
  write("{\"format\":1,\"layers\":[1]}\n");
  EXPECT_EQ(error_of([&] { LedgerReader{path_}; }), no_ledger + "(its header lacks names of layers or parameters)");
  write(header_line + "what is this\n");
  EXPECT_EQ(error_of([&] { steps(); }), no_ledger + "(the line 'what is this' is no step)");
}

TEST_F(LedgerTest, RefusesStepsThatLackHashes) {
  auto file = writer();
  append(file, 1);
  std::string const good = read_file(path_);
  auto const with = [&](std::string const& from, std::string const& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    write(text);
    LedgerReader reader(path_);
    return error_of([&] { reader.parse(*reader.next()); });
  };
  std::string const no_ledger = "'" + path_.string() + "' is no ledger that can be read ";
  EXPECT_EQ(with("}\n{", "}\n{"), "no error");
  EXPECT_EQ(with("\"weight\":", "\"height\":"), no_ledger + "(step 1 lacks 2 hashes 'weight')");
  EXPECT_EQ(with("\"0000000000000003\"]", "\"0000000000000003\",\"0000000000000003\"]"),
            no_ledger + "(step 1 lacks 3 hashes 'activation')");
  EXPECT_EQ(with("\"0000000000000004\"", "\"000000000000004\""),
            no_ledger + "(step 1 lacks 3 hashes 'activation_gradient')");
  EXPECT_EQ(with("\"0000000000000007\"", "\"000000000000000x\""),
            no_ledger + "(step 1 lacks 2 hashes 'weight_gradient')");
  EXPECT_EQ(with("\"0000000000000007\"", "7"), no_ledger + "(step 1 lacks 2 hashes 'weight_gradient')");
  EXPECT_EQ(with("\"fingerprint\":\"000000000000000b\"", "\"finger\":1"), no_ledger + "(step 1 lacks a fingerprint)");
  EXPECT_EQ(with("\"fingerprint\":\"000000000000000b\"}", "\"finger"),
            no_ledger + "(step 1 lacks 3 hashes 'activation')");
}

}  // namespace
}  // namespace isotrain::test
