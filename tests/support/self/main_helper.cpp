// Tests that pass and fail on chosen ranks; CMakeLists.txt says how a run of them must end.

#include <gtest/gtest.h>
#include <mpi.h>

#include <stdexcept>

namespace isotrain::test {
namespace {

int rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

TEST(Helper, Passes) {
  EXPECT_GE(rank(), 0);
}
TEST(Helper, ExpectsOnRankOne) {
  EXPECT_NE(rank(), 1) << "seen by one";
}
TEST(Helper, AssertsOnRankOne) {
  ASSERT_NE(rank(), 1) << "seen by one";
}
TEST(Helper, ExpectsOnRankZero) {
  EXPECT_NE(rank(), 0) << "seen by zero";
}
TEST(Helper, ExpectsOnAll) {
  ADD_FAILURE() << "seen by " << rank();
}
TEST(Helper, ThrowsOnRankOne) {
  if (rank() == 1) throw std::runtime_error("thrown by one");
}

}  // namespace
}  // namespace isotrain::test
