#include "lib/comm/random_delay.h"

#include <gtest/gtest.h>

#include <chrono>

#include "lib/comm/communicator.h"

namespace isotrain::test {
namespace {

double seconds_of_barriers(Communicator const& comm, int count) {
  auto const start = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) comm.barrier();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// 40 sleeps that are uniform below 20 ms take 400 ms on average; below 100 ms would be 5 standard deviations away.
TEST(RandomDelay, ComesBeforeEachOperation) {
  auto const comm = Communicator::duplicate(MPI_COMM_WORLD);
  delay_operations(20, static_cast<std::uint64_t>(comm.rank()));
  EXPECT_GT(seconds_of_barriers(comm, 40), 0.1);
}

TEST(RandomDelay, CanBeSwitchedOff) {
  auto const comm = Communicator::duplicate(MPI_COMM_WORLD);
  delay_operations(1e6, 1);
  delay_operations(0, 1);
  EXPECT_LT(seconds_of_barriers(comm, 4), 30);
}

}  // namespace
}  // namespace isotrain::test
