// What does the canonical sum of gradients cost against MPI's own? Times reduce-scatter + all-gather in tree order and
// MPI_Allreduce (any order) of the same fp32 bytes, in turns. Run: mpirun -np N benchmark_reduction [piece]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "lib/comm/check_mpi.h"
#include "lib/comm/session.h"
#include "lib/comm/tree_sum.h"
#include "lib/parallel/lanes.h"

namespace isotrain::benchmarks {
namespace {

/// Seconds of the slowest rank.
double seconds(Communicator const& comm, std::function<void()> const& body) {
  comm.barrier();
  double const start = MPI_Wtime();
  body();
  return comm.max(MPI_Wtime() - start);
}

double best(std::vector<double> const& values) {
  return *std::min_element(values.begin(), values.end());
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void measure(MpiSession const& session, std::int64_t num_elements, std::int64_t num_lanes, std::int64_t piece) {
  Communicator const& comm = session.world();
  Cpu const at{1};
  std::vector<IndexRange> const lanes = lanes_of_ranks(num_lanes, comm.size());
  std::vector<std::int64_t> offsets{0};
  for (int r = 0; r < comm.size(); ++r) offsets.push_back(even_part(num_elements, comm.size(), r).end);
  TreeReduction const reduction(comm, num_lanes, lanes, offsets, piece);

  auto const rank = static_cast<std::size_t>(comm.rank());
  std::size_t const num_partials = subtrees(lanes[rank], num_lanes).size();
  std::vector<std::vector<float>> memory(num_partials,
                                         std::vector<float>(static_cast<std::size_t>(num_elements), 1e-6F));
  std::vector<std::span<float>> const partials(memory.begin(), memory.end());
  std::vector<float> whole(static_cast<std::size_t>(num_elements), 1e-6F);
  std::vector<float> workspace(static_cast<std::size_t>(reduction.workspace_size()));
  auto const chunk = std::span(whole).subspan(static_cast<std::size_t>(offsets[rank]),
                                              static_cast<std::size_t>(offsets[rank + 1] - offsets[rank]));

  std::vector<double> scatter, gather, ours, theirs;
  int const rounds = num_elements < (1 << 20) ? 41 : 15;
  for (int round = -2; round < rounds; ++round) {
    auto const reduce = [&] { reduction.reduce_scatter(at, partials, chunk, workspace); };
    auto const spread = [&] { reduction.all_gather(std::span(whole)); };
    double const s = seconds(comm, reduce);
    double const g = seconds(comm, spread);
    double const o = seconds(comm, [&] {
      reduce();
      spread();
    });
    double const m = seconds(comm, [&] {
      check_mpi(
          MPI_Allreduce(MPI_IN_PLACE, whole.data(), static_cast<int>(num_elements), MPI_FLOAT, MPI_SUM, comm.get()),
          "reduce");
    });
    if (round < 0) continue;
    scatter.push_back(s);
    gather.push_back(g);
    ours.push_back(o);
    theirs.push_back(m);
  }
  if (comm.rank() != 0) return;
  double const mib = static_cast<double>(num_elements) * 4 / (1 << 20);
  std::printf("%5d %5lld %8.2f %9.3f %9.3f %9.3f %9.3f %6.2f %12.3f %9.3f %6.2f\n", comm.size(),
              static_cast<long long>(num_lanes), mib, best(scatter) * 1e3, best(gather) * 1e3, best(ours) * 1e3,
              best(theirs) * 1e3, best(theirs) / best(ours), median(ours) * 1e3, median(theirs) * 1e3,
              median(theirs) / median(ours));
}

int run(MpiSession const& session, std::int64_t piece) {
  if (session.rank() == 0) {
    std::printf("%s, %s, pieces of %lld elements; times in ms; ratio: MPI's time over ours\n", processor_name().c_str(),
                session.library().c_str(), static_cast<long long>(piece));
    std::printf("                       best of all rounds                                 medians\n");
    std::printf("ranks lanes      MiB   scatter    gather  together Allreduce  ratio     together Allreduce  ratio\n");
  }
  for (std::int64_t mib_quarters : {1, 4, 16, 64, 256, 1024}) {
    measure(session, mib_quarters << 16, session.size(), piece);
  }
  measure(session, std::int64_t{64} << 18, std::max(8, session.size()), piece);
  return 0;
}

}  // namespace
}  // namespace isotrain::benchmarks

int main(int argc, char** argv) {
  isotrain::MpiSession const session(argc, argv);
  std::int64_t const piece = argc > 1 ? std::atoll(argv[1]) : isotrain::TreeReduction::default_piece;
  return session.run([&] { return isotrain::benchmarks::run(session, piece); });
}
