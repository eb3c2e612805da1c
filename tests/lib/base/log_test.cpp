#include "lib/base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <regex>
#include <sstream>
#include <thread>

#include "lib/base/atomic_file.h"
#include "lib/base/error.h"

namespace isotrain::test {
namespace {

class LogTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> lines(int rank) const {
    std::vector<std::string> result;
    std::istringstream text(read_file(folder_ / log_file_name(rank)));
    for (std::string line; std::getline(text, line);) result.push_back(line);
    return result;
  }

  std::filesystem::path const folder_ =
      std::filesystem::temp_directory_path() / ("log_test." + std::to_string(getpid())) / "logs";
};

TEST_F(LogTest, KeepsEarlyLinesForTheFile) {
  Log log(3, 8, "node7");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  log.info("early");
  log.warning("slow");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning on node7, rank 3: slow\n");
  log.open(folder_);
  log.info("late");
  auto const all = lines(3);
  ASSERT_EQ(all.size(), 3u);
  std::regex const form(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (info early|warning slow|info late))");
  for (auto const& line : all) EXPECT_TRUE(std::regex_match(line, form)) << line;
  EXPECT_TRUE(all[0].ends_with("info early"));
}

TEST_F(LogTest, RankZeroSpeaksOnStdoutUntilThereIsAFile) {
  Log log(0, 1, "here");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  log.info("hello");
  log.open(folder_);
  log.info("silent");
  log.error("broken");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "hello\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: broken\n");
  EXPECT_EQ(lines(0).size(), 3u);
}

TEST_F(LogTest, AppendsToAnEarlierRun) {
  for (int run = 0; run < 2; ++run) {
    Log log(1, 2, "here");
    log.open(folder_);
    log.info("run");
  }
  EXPECT_EQ(lines(1).size(), 2u);
}

TEST_F(LogTest, KeepsLinesOfThreadsWhole) {
  Log log(1, 2, "here");
  log.open(folder_);
  std::string const message(300, 'x');
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) log.info(message);
    });
  }
  for (auto& thread : threads) thread.join();
  auto const all = lines(1);
  EXPECT_EQ(all.size(), 200u);
  for (auto const& line : all) EXPECT_TRUE(line.ends_with(" info " + message));
}

TEST_F(LogTest, NamesAFolderItCannotMake) {
  Log log(0, 1, "here");
  try {
    log.open("/proc/nothing/logs");
    FAIL();
  } catch (Error const& error) {
    EXPECT_EQ(std::string(error.what()).find("cannot make the folder '/proc/nothing/logs' ("), 0u) << error.what();
  }
}

TEST_F(LogTest, AFullDiskIsSaidOnceAndDoesNotStopTheRun) {
  std::filesystem::create_directories(folder_);
  std::filesystem::create_symlink("/dev/full", folder_ / log_file_name(0));
  Log log(0, 1, "here");
  log.open(folder_);
  testing::internal::CaptureStderr();
  log.info("one");
  log.info("two");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: cannot write the log (No space left on device); the run goes on without it\n");
}

}  // namespace
}  // namespace isotrain::test
