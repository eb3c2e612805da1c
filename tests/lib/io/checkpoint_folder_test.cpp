#include "lib/io/checkpoint_folder.h"

#include <gtest/gtest.h>

#include "tests/lib/io/checkpoints.h"

namespace isotrain::io::test {
namespace {

class Folder : public testing::Test {
 protected:
  std::filesystem::path write(std::uint64_t step, int keep = 0) {
    return write_sample(comm_, folder_.path(), step, 2, CheckpointOptions{keep, 4096});
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (auto const& path : list_checkpoints(folder_.path())) names.push_back(path.filename());
    return names;
  }

  Communicator comm_ = Communicator::duplicate(MPI_COMM_WORLD);
  SharedFolder folder_{"folder"};
};

TEST_F(Folder, NamesSortBySteps) {
  EXPECT_EQ(checkpoint_file_name(100), "step-00000100.h5");
  EXPECT_EQ(checkpoint_file_name(1234567890), "step-1234567890.h5");
  for (auto const* name :
       {"step-00000002.h5", "step-00000010.h5", "step-1234567890.h5", "step-00000003.h5.partial", "step-.h5",
        "step-abc.h5", "step-00000004.h5~", "xstep-00000005.h5", "step-99999999999999999999.h5"}) {
    write_bytes(folder_.path() / name, "");
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"step-1234567890.h5", "step-00000010.h5", "step-00000002.h5"}));
}

TEST_F(Folder, NoFolderAndNoCheckpointAreNoError) {
  EXPECT_FALSE(newest_complete_checkpoint(folder_.path() / "none").path);
  EXPECT_FALSE(newest_complete_checkpoint(folder_.path()).path);
}

TEST_F(Folder, NewestCompleteSkipsBrokenOnesAndSaysWhy) {
  write(1);
  auto const two = write(2);
  auto const three = write(3);
  EXPECT_EQ(newest_complete_checkpoint(folder_.path()).path, three);
  EXPECT_TRUE(newest_complete_checkpoint(folder_.path()).skipped.empty());

  std::filesystem::resize_file(three, std::filesystem::file_size(three) - 1);
  write_bytes(folder_.path() / checkpoint_file_name(4), "not HDF5");
  write_bytes(folder_.path() / checkpoint_file_name(5), "");
  write_bytes(folder_.path() / (checkpoint_file_name(6) + ".partial"), "half");
  auto const newest = newest_complete_checkpoint(folder_.path());
  EXPECT_EQ(newest.path, two);
  ASSERT_EQ(newest.skipped.size(), 3u);
  EXPECT_CONTAINS(newest.skipped[0], "step-00000005.h5'");
  EXPECT_CONTAINS(newest.skipped[1], "step-00000004.h5'");
  EXPECT_CONTAINS(newest.skipped[2], "truncated file");
}

TEST_F(Folder, NewestCompleteCanBeAskedForAnOlderOne) {
  auto const one = write(1);
  write_bytes(folder_.path() / checkpoint_file_name(2), "broken");
  auto const three = write(3);
  auto const older = newest_complete_checkpoint(folder_.path(), three);
  EXPECT_EQ(older.path, one);
  EXPECT_EQ(older.skipped.size(), 1u);
  EXPECT_FALSE(newest_complete_checkpoint(folder_.path(), one).path);
}

TEST_F(Folder, KeepsTheNewest) {
  for (std::uint64_t step = 1; step <= 5; ++step) write(step, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000005.h5", "step-00000004.h5"}));
  write(6, 1);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000006.h5"}));
}

TEST_F(Folder, BrokenOnesDoNotCountAndStay) {
  for (std::uint64_t step = 1; step <= 3; ++step) write(step);
  write_bytes(folder_.path() / checkpoint_file_name(3), "broken");
  write(4, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000004.h5", "step-00000003.h5", "step-00000002.h5"}));
}

TEST_F(Folder, TheOneJustWrittenStaysThoughOthersHaveLaterSteps) {
  for (std::uint64_t step = 10; step <= 12; ++step) write(step);
  write(5, 1);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000005.h5"}));
}

TEST_F(Folder, AStepMayBeWrittenAgain) {
  write(1);
  EXPECT_TRUE(holds_sample(write(1), 1, 0, 8192));
  EXPECT_EQ(names().size(), 1u);
}

TEST_F(Folder, PartialFilesOfAnInterruptedWriterGo) {
  auto const partial = folder_.path() / (checkpoint_file_name(1) + ".partial");
  write_bytes(partial, "half");
  write_bytes(folder_.path() / "notes.h5.partial", "of somebody else");
  write(2);
  EXPECT_FALSE(std::filesystem::exists(partial));
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "notes.h5.partial"));
}

}  // namespace
}  // namespace isotrain::io::test
