// A checkpoint that cannot be written: the same error on all ranks, the previous checkpoint untouched, nothing left
// behind, and the next attempt works.

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>

#include "lib/io/checkpoint_folder.h"
#include "tests/lib/io/checkpoints.h"

namespace isotrain::io::test {
namespace {

constexpr std::uint64_t blocks = 200;

/// This process can write no file beyond `bytes`; the error is EFBIG instead of the ENOSPC of a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uint64_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(FileSizeLimit const&) = delete;
  FileSizeLimit& operator=(FileSizeLimit const&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

struct Fault : testing::Test {
  Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
  SharedFolder folder{"fault"};

  std::string failure(std::uint64_t step) {
    CheckpointOptions const options{.threads = 1 + comm.rank() % 2};
    return message_of([&] { write_sample(comm, folder.path(), step, blocks, options); });
  }
  /// All ranks have the same message, and it is an error.
  void expect_agreed(std::string const& message) {
    EXPECT_NE(message, "no error");
    for (auto const& other : comm.all_gather(message)) EXPECT_EQ(other, message);
  }
  /// Only complete checkpoints of these steps are in the folder, with their contents.
  void expect_only(std::vector<std::uint64_t> const& steps) {
    comm.barrier();
    std::size_t files = 0;
    for (auto const& entry : std::filesystem::directory_iterator(folder.path()))
      files += entry.is_regular_file() ? 1 : 0;
    EXPECT_EQ(files, steps.size());
    for (auto const step : steps) {
      EXPECT_TRUE(holds_sample(folder.path() / checkpoint_file_name(step), step, 0, 4096 * blocks));
    }
    comm.barrier();
  }
};

TEST_F(Fault, AFullDiskAtAnyPointOnAnyRankIsAnErrorOfAll) {
  write_sample(comm, folder.path(), 1, blocks);
  std::uint64_t const data = 4 * 4096 * blocks;
  for (int rank = 0; rank < comm.size(); ++rank) {
    // In the header, in the first dataset, in the last; a rank whose range lies before the limit does not fail.
    for (auto const limit : {std::uint64_t{1000}, data / 2, 2 * data + data / 2}) {
      std::string message;
      {
        std::optional<FileSizeLimit> full;
        if (comm.rank() == rank) full.emplace(limit);
        message = failure(2);
      }
      expect_agreed(message);
      EXPECT_CONTAINS(message, "step-00000002.h5.partial'");
      expect_only({1});
    }
  }
  write_sample(comm, folder.path(), 2, blocks);
  expect_only({1, 2});
}

TEST_F(Fault, AFullFileSystemIsAnErrorOfAll) {
  auto const small = folder.path() / "small";
  int mounted = 0;
  if (comm.rank() == 0) {
    std::filesystem::create_directories(small);
    mounted = mount("tmpfs", small.c_str(), "tmpfs", 0, "size=16m") == 0 ? 1 : 0;
  }
  if (comm.broadcast(mounted, 0) == 0) GTEST_SKIP() << "mounting a small file system needs root";
  auto const path = write_sample(comm, small, 1, blocks);  // 9.4 MiB
  auto const message = message_of([&] { write_sample(comm, small, 2, blocks); });
  expect_agreed(message);
  EXPECT_CONTAINS(message, "step-00000002.h5.partial'");
  EXPECT_CONTAINS(message, "No space left on device");
  EXPECT_TRUE(holds_sample(path, 1, 0, 4096 * blocks));
  EXPECT_EQ(list_checkpoints(small).size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(small / "step-00000002.h5.partial"));
  comm.barrier();
  if (comm.rank() == 0) umount(small.c_str());
  comm.barrier();
}

TEST_F(Fault, AReadOnlyFileSystemIsAnErrorOfAll) {
  auto const read_only = folder.path() / "read_only";
  int mounted = 0;
  if (comm.rank() == 0) {
    std::filesystem::create_directories(read_only);
    mounted = mount("tmpfs", read_only.c_str(), "tmpfs", MS_RDONLY, "size=1m") == 0 ? 1 : 0;
  }
  if (comm.broadcast(mounted, 0) == 0) GTEST_SKIP() << "mounting a read-only file system needs root";
  auto const message = message_of([&] { write_sample(comm, read_only, 1, blocks); });
  expect_agreed(message);
  EXPECT_CONTAINS(message, "Read-only file system");
  comm.barrier();
  if (comm.rank() == 0) umount(read_only.c_str());
  comm.barrier();
}

TEST_F(Fault, AFolderThatCannotBeMadeIsAnErrorOfAll) {
  if (comm.rank() == 0) write_bytes(folder.path() / "file", "");
  comm.barrier();
  auto const message = message_of([&] { write_sample(comm, folder.path() / "file" / "below", 1, blocks); });
  expect_agreed(message);
  EXPECT_CONTAINS(message, "cannot make folder '");
  EXPECT_CONTAINS(message, "Not a directory");
}

TEST_F(Fault, ATargetThatCannotBeReplacedIsAnErrorOfAll) {
  if (comm.rank() == 0) std::filesystem::create_directories(folder.path() / checkpoint_file_name(1) / "something");
  comm.barrier();
  auto const message = failure(1);
  expect_agreed(message);
  EXPECT_CONTAINS(message, "cannot rename '");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / (checkpoint_file_name(1) + ".partial")));
}

TEST_F(Fault, APartialFileThatCannotBeRemovedIsAnErrorOfAll) {
  if (comm.rank() == 0)
    std::filesystem::create_directories(folder.path() / (checkpoint_file_name(9) + ".partial") / "x");
  comm.barrier();
  auto const message = failure(1);
  expect_agreed(message);
  EXPECT_CONTAINS(message, "cannot remove '");
}

}  // namespace
}  // namespace isotrain::io::test
