// kill -9 at any moment of a write leaves the previous checkpoint whole, and the next writer cleans up.

#include <gtest/gtest.h>

#include <cstdlib>

#include "lib/io/checkpoint_folder.h"
#include "tests/lib/io/checkpoints.h"

namespace isotrain::io::test {
namespace {

/// Runs the victim on 2 ranks, outside the MPI job that this test is.
void run_victim(std::filesystem::path const& folder, int rank, int delay_us) {
  auto const command =
      "env -i PATH=\"$PATH\" HOME=\"$HOME\" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
      " OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none"
      " timeout -s KILL 60 " MPIEXEC " -q -np 2 " VICTIM " '" +
      folder.string() + "' " + std::to_string(rank) + " " + std::to_string(delay_us) + " </dev/null 2>/dev/null";
  ASSERT_NE(std::system(command.c_str()), 0) << "the victim was not killed";
}

TEST(CheckpointKill, LeavesThePreviousCheckpointAndTheNextWriterCleansUp) {
  SharedFolder const folder("kill");
  auto const comm = Communicator::duplicate(MPI_COMM_WORLD);
  int interrupted = 0;
  int round = 0;
  for (int const delay_us : {0, 1000, 5000, 15000, 30000, 60000}) {
    auto const path = folder.path() / std::to_string(round);
    run_victim(path, round++ % 2, delay_us);
    auto const partial = path / (checkpoint_file_name(2) + ".partial");
    bool const left = std::filesystem::exists(partial);
    interrupted += left ? 1 : 0;

    auto const newest = newest_complete_checkpoint(path);
    ASSERT_TRUE(newest.path) << "after " << delay_us << " us";
    EXPECT_TRUE(newest.skipped.empty());
    CheckpointReader const reader(*newest.path);
    EXPECT_TRUE(reader.find_damage().empty());
    EXPECT_TRUE(reader.header().step == 1 || (reader.header().step == 2 && !left)) << reader.header().step;
    EXPECT_TRUE(holds_sample(*newest.path, reader.header().step, 0, 4096 * 2000));

    write_sample(comm, path, 3, 10);
    EXPECT_FALSE(std::filesystem::exists(partial));
  }
  EXPECT_GE(interrupted, 2) << "no kill hit a write";
}

}  // namespace
}  // namespace isotrain::io::test
