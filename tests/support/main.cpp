// The main of every test: GoogleTest under MPI. Failures of all ranks are printed by rank 0, under their rank, as part
// of the test they belong to; the exit code is the worst of all ranks; running no test at all is a failure.

#include <gtest/gtest.h>
#include <mpi.h>

#include <string>
#include <vector>

namespace {

/// Gathers what failed in a test from all ranks. Uses a communicator of its own, so that it cannot meet a test's
/// messages.
class GatherFailures : public testing::EmptyTestEventListener {
 public:
  explicit GatherFailures(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }

  void OnTestEnd(testing::TestInfo const& info) override {
    std::string mine;
    if (rank_ != 0) {
      for (int i = 0; i < info.result()->total_part_count(); ++i) {
        auto const& part = info.result()->GetTestPartResult(i);
        if (!part.failed()) continue;
        mine += std::string(part.file_name() ? part.file_name() : "?") + ":" + std::to_string(part.line_number()) +
                "\n" + part.message() + "\n";
      }
    }
    int const length = static_cast<int>(mine.size());
    std::vector<int> lengths(size_), starts(size_);
    MPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, comm_);
    int total = 0;
    for (int r = 0; r < size_; ++r) starts[r] = total, total += lengths[r];
    std::string all(static_cast<std::size_t>(total), '\0');
    MPI_Gatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), starts.data(), MPI_CHAR, 0, comm_);
    if (rank_ != 0) return;
    for (int r = 1; r < size_; ++r) {
      if (lengths[r] > 0) ADD_FAILURE() << "on rank " << r << ":\n" << all.substr(starts[r], lengths[r]);
    }
  }

 private:
  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  testing::InitGoogleTest(&argc, argv);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new GatherFailures(comm));

  int result = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    if (rank == 0) std::fputs("no test ran\n", stderr);
    result = 1;
  }
  MPI_Allreduce(MPI_IN_PLACE, &result, 1, MPI_INT, MPI_MAX, comm);
  MPI_Comm_free(&comm);
  MPI_Finalize();
  return result;
}
