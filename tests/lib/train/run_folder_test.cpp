#include "lib/train/run_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "lib/base/atomic_file.h"
#include "lib/base/error.h"

namespace isotrain::test {
namespace {

namespace fs = std::filesystem;

/// A folder of its own for each test, removed afterwards.
class RunFolderTest : public testing::Test {
 protected:
  RunFolderTest() {
    std::string name = (fs::temp_directory_path() / "isotrain-run-XXXXXX").string();
    home_ = mkdtemp(name.data());
  }
  ~RunFolderTest() override { fs::remove_all(home_); }

  void write(fs::path const& path, std::string const& text) { std::ofstream(path) << text; }

  fs::path home_;
};

template <class F>
std::string message_of(F const& f) {
  try {
    f();
  } catch (Error const& error) {
    return std::to_string(error.exit_code()) + " " + error.what();
  }
  return "no error";
}

TEST_F(RunFolderTest, CreatesWhatARunNeeds) {
  RunFolder const folder(home_ / "deep" / "run");
  EXPECT_FALSE(has_run(folder));
  create_run_folder(folder, "[train]\nsteps = 3\n");
  EXPECT_EQ(read_file(home_ / "deep/run/run.cfg"), "[train]\nsteps = 3\n");
  EXPECT_TRUE(fs::is_directory(home_ / "deep/run/logs"));
  EXPECT_TRUE(fs::is_directory(home_ / "deep/run/checkpoints"));
  EXPECT_EQ(folder.metrics(), home_ / "deep/run/metrics.jsonl");
  EXPECT_TRUE(has_run(folder));
}

TEST_F(RunFolderTest, AnEmptyFolderMayBeThere) {
  RunFolder const folder(home_);
  fs::create_directory(folder.checkpoints());
  fs::create_directory(folder.logs());
  create_run_folder(folder, "a");
  EXPECT_EQ(read_file(folder.settings()), "a");
}

TEST_F(RunFolderTest, RefusesAFolderThatHasARun) {
  RunFolder const folder(home_);
  create_run_folder(folder, "first");
  EXPECT_EQ(message_of([&] { create_run_folder(folder, "second"); }),
            "2 the folder '" + home_.string() +
                "' already has a run (--resume none starts a new one); choose another --run.dir, remove the folder, or "
                "use --resume auto to go on with that run");
  EXPECT_EQ(read_file(folder.settings()), "first");
}

TEST_F(RunFolderTest, MetricsOrACheckpointAloneAreARunToo) {
  RunFolder const with_metrics(home_ / "a");
  fs::create_directories(with_metrics.root());
  write(with_metrics.metrics(), "");
  EXPECT_THROW(create_run_folder(with_metrics, ""), UsageError);
  RunFolder const with_checkpoint(home_ / "b");
  fs::create_directories(with_checkpoint.checkpoints());
  write(with_checkpoint.checkpoints() / "step-00000001.h5", "");
  EXPECT_THROW(create_run_folder(with_checkpoint, ""), UsageError);
}

TEST_F(RunFolderTest, AFolderThatCannotBeMadeIsNamed) {
  write(home_ / "file", "");
  RunFolder const below_a_file(home_ / "file" / "run");
  std::string const expected = "1 cannot make the folder '" + (home_ / "file" / "run").string() +
                               "' (Not a directory); is --run.dir where you can write?";
  EXPECT_FALSE(has_run(below_a_file));
  EXPECT_EQ(message_of([&] { create_run_folder(below_a_file, ""); }), expected);
  EXPECT_EQ(message_of([&] { resume_run_folder(below_a_file, "", 0); }), expected);
  EXPECT_THROW(create_run_folder(RunFolder(home_ / "file"), ""), Error);
}

TEST_F(RunFolderTest, AFolderThatCannotBeWrittenIsNamed) {
  // Not even root may make a folder in /proc.
  EXPECT_EQ(message_of([] { create_run_folder(RunFolder("/proc"), ""); }).find("1 cannot make the folder '/proc/logs'"),
            0u);
}

TEST_F(RunFolderTest, ResumingCutsTheMetricsAfterTheStep) {
  RunFolder const folder(home_);
  create_run_folder(folder, "same");
  std::string const kept = "{\"step\":1,\"loss\":3.5}\n{\"step\":2,\"loss\":3.25}\n";
  write(folder.metrics(), kept + "{\"step\":3,\"loss\":3}\n{\"step\":4,\"lo");
  resume_run_folder(folder, "same", 2);
  EXPECT_EQ(read_file(folder.metrics()), kept);
  EXPECT_FALSE(exists(folder.root() / "run.cfg.1"));
}

TEST_F(RunFolderTest, ATornLastLineGoesEvenIfItsStepStays) {
  RunFolder const folder(home_);
  create_run_folder(folder, "same");
  write(folder.metrics(), "{\"step\":1}\n{\"step\":2}");
  resume_run_folder(folder, "same", 9);
  EXPECT_EQ(read_file(folder.metrics()), "{\"step\":1}\n");
}

TEST_F(RunFolderTest, LinesThatAreNoStepGo) {
  RunFolder const folder(home_);
  create_run_folder(folder, "same");
  write(folder.metrics(), "\n[1]\n{\"step\":1}\n{\"loss\":1}\n{\"step\":\"2\"}\n{\"st{\"step\":2}\n{\"step\":3}\n");
  resume_run_folder(folder, "same", 9);
  EXPECT_EQ(read_file(folder.metrics()), "{\"step\":1}\n{\"step\":3}\n");
}

TEST_F(RunFolderTest, MetricsThatAllStayAreNotTouched) {
  RunFolder const folder(home_);
  create_run_folder(folder, "same");
  write(folder.metrics(), "{\"step\":1}\n");
  auto const when = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(folder.metrics(), when);
  auto const before = fs::last_write_time(folder.metrics());
  resume_run_folder(folder, "same", 1);
  EXPECT_EQ(fs::last_write_time(folder.metrics()), before);
}

TEST_F(RunFolderTest, FromStepZeroNothingIsLeft) {
  RunFolder const folder(home_);
  create_run_folder(folder, "same");
  write(folder.metrics(), "{\"step\":1}\n{\"step\":2}\n");
  resume_run_folder(folder, "same", 0);
  EXPECT_EQ(read_file(folder.metrics()), "");
}

TEST_F(RunFolderTest, ChangedSettingsKeepTheOldOnes) {
  RunFolder const folder(home_);
  create_run_folder(folder, "one");
  resume_run_folder(folder, "two", 0);
  resume_run_folder(folder, "three", 0);
  resume_run_folder(folder, "three", 0);
  EXPECT_EQ(read_file(home_ / "run.cfg.1"), "one");
  EXPECT_EQ(read_file(home_ / "run.cfg.2"), "two");
  EXPECT_EQ(read_file(folder.settings()), "three");
  EXPECT_FALSE(fs::exists(home_ / "run.cfg.3"));
}

TEST_F(RunFolderTest, ResumingAFolderThatIsNotThereMakesIt) {
  RunFolder const folder(home_ / "new");
  resume_run_folder(folder, "text", 7);
  EXPECT_EQ(read_file(folder.settings()), "text");
  EXPECT_FALSE(fs::exists(folder.metrics()));
}

}  // namespace
}  // namespace isotrain::test
