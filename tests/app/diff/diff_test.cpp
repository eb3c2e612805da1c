#include <gtest/gtest.h>

#include "app/commands.h"
#include "lib/base/error.h"
#include "lib/train/run_folder.h"
#include "tests/lib/train/temporary_folder.h"

namespace isotrain::test {
namespace {

class Diff : public testing::Test {
 protected:
  RunFolder write_run(std::string const& name, std::string const& fingerprint) const {
    RunFolder run(folder_ / name);
    std::filesystem::create_directories(run.root());
    std::ofstream(run.settings()) << "";
    std::ofstream(run.metrics()) << R"({"step":1,"loss":2,"fingerprint":")" << fingerprint << "\"}\n";
    return run;
  }
  struct Outcome {
    int exit_code;
    std::string text;  // printed, or the error's message
  };
  static Outcome diff(std::vector<std::string> const& arguments) {
    testing::internal::CaptureStdout();
    try {
      int const code = run_diff(arguments);
      return {code, testing::internal::GetCapturedStdout()};
    } catch (Error const& error) {
      testing::internal::GetCapturedStdout();
      return {error.exit_code(), error.what()};
    }
  }

  TemporaryFolder folder_;
};

TEST_F(Diff, TellsByItsExitCode) {
  auto const a = write_run("a", "01"), same = write_run("same", "01"), other = write_run("other", "02");
  auto const equal = diff({a.root(), same.root()});
  EXPECT_EQ(equal.exit_code, 0);
  EXPECT_NE(equal.text.find("the runs are the same in all steps that both have\n"), std::string::npos) << equal.text;
  auto const different = diff({a.root(), other.root()});
  EXPECT_EQ(different.exit_code, 1);
  EXPECT_NE(different.text.find("first in step 1: fingerprint \"01\" in A, \"02\" in B\n"), std::string::npos)
      << different.text;
}

TEST_F(Diff, AnythingThatKeepsItFromComparingIsTwo) {
  auto const a = write_run("a", "01"), b = write_run("b", "01");
  EXPECT_EQ(diff({}).exit_code, 2);
  EXPECT_EQ(diff({a.root()}).exit_code, 2);
  EXPECT_EQ(diff({a.root(), b.root(), b.root()}).exit_code, 2);
  EXPECT_EQ(diff({a.root(), b.root(), "--nonsense"}).exit_code, 2);
  auto const none = diff({a.root(), folder_ / "none"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.text.find("there is no run in '" + (folder_ / "none").string() + "'"), std::string::npos);
  std::ofstream(a.ledger()) << "x\n";
  std::ofstream(b.ledger()) << "x\n";
  auto const damaged = diff({a.root(), b.root()});
  EXPECT_EQ(damaged.exit_code, 2);
  EXPECT_NE(damaged.text.find("its first line is no header"), std::string::npos) << damaged.text;
}

TEST_F(Diff, HasHelp) {
  auto const help = diff({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.text.find("isotrain diff RUN RUN"), std::string::npos) << help.text;
}

}  // namespace
}  // namespace isotrain::test
