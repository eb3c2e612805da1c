// checkpoint_victim FOLDER RANK DELAY_US: writes the checkpoint of step 1, then that of step 2, during which rank RANK
// kills itself DELAY_US microseconds after the start.

#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "tests/lib/io/checkpoints.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  auto const comm = isotrain::Communicator::duplicate(MPI_COMM_WORLD);
  constexpr std::uint64_t blocks = 2000;  // 94 MiB in all
  isotrain::io::test::write_sample(comm, argv[1], 1, blocks);
  auto const half = [&](int rank) {
    return blocks * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(comm.size());
  };
  isotrain::io::test::Sample const sample(2, 4096 * blocks,
                                          {isotrain::io::test::block_run(half(comm.rank()), half(comm.rank() + 1))});
  comm.barrier();
  if (comm.rank() == std::atoi(argv[2])) {
    std::thread([delay = std::atoi(argv[3])] {
      std::this_thread::sleep_for(std::chrono::microseconds(delay));
      std::raise(SIGKILL);
    }).detach();
  }
  isotrain::io::write_checkpoint(comm, argv[1], sample.header, sample.flat);
  std::this_thread::sleep_for(std::chrono::seconds(10));
  return 0;
}
