// mpirun -np N checkpoint_speed FOLDER MIB ROUNDS [TENSORS [THREADS [SLICES]]]
//
// How fast is a checkpoint of MIB MiB, with everything that belongs to it (header, checksums, views of TENSORS tensors
// of SLICES blocks each, as many as there is room for, fsync, check, rename), against plain MPI-IO of the same bytes on
// the same file system (collective writes of at most 1 GiB, fsync)? Both in turn, ROUNDS times; each starts with
// nothing left to write back. Then the same for reading: with all checksums checked against plain MPI-IO.

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "lib/io/checkpoint.h"

namespace {

using namespace isotrain;

constexpr std::uint64_t piece_elements = std::uint64_t{1} << 28;

struct Part {
  std::uint64_t begin;
  std::vector<float> data;
};

double seconds(Communicator const& comm, auto const& work) {
  if (comm.rank() == 0) sync();
  comm.barrier();
  double const start = MPI_Wtime();
  work();
  comm.barrier();
  return MPI_Wtime() - start;
}

void check(int code, char const* what) {
  if (code == MPI_SUCCESS) return;
  std::fprintf(stderr, "cannot %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

enum class Direction { write, read };

void plain(Communicator const& comm, std::string const& path, Part& part, Direction direction) {
  MPI_File file = MPI_FILE_NULL;
  int const mode = direction == Direction::write ? MPI_MODE_CREATE | MPI_MODE_WRONLY : MPI_MODE_RDONLY;
  check(MPI_File_open(comm.get(), path.c_str(), mode, MPI_INFO_NULL, &file), "open");
  std::uint64_t const most = comm.max(std::uint64_t{part.data.size()});
  for (std::uint64_t done = 0; done < most; done += piece_elements) {
    auto const at = std::min<std::uint64_t>(done, part.data.size());
    auto const count = static_cast<int>(std::min<std::uint64_t>(piece_elements, part.data.size() - at));
    auto const place = static_cast<MPI_Offset>(4 * (part.begin + at));
    check(direction == Direction::write
              ? MPI_File_write_at_all(file, place, part.data.data() + at, count, MPI_FLOAT, MPI_STATUS_IGNORE)
              : MPI_File_read_at_all(file, place, part.data.data() + at, count, MPI_FLOAT, MPI_STATUS_IGNORE),
          "move");
  }
  if (direction == Direction::write) check(MPI_File_sync(file), "sync");
  check(MPI_File_close(&file), "close");
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void print(char const* what, double mib, std::vector<double> const& plain_s, std::vector<double> const& ours_s) {
  auto const best = [](std::vector<double> const& t) { return *std::min_element(t.begin(), t.end()); };
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ours_s.size(); ++i) ratios.push_back(plain_s[i] / ours_s[i]);
  std::printf("| %s | %.0f | %.0f | %.2f | %.0f | %.0f | %.2f | %.2f |\n", what, mib / best(plain_s),
              mib / best(ours_s), best(plain_s) / best(ours_s), mib / median(plain_s), mib / median(ours_s),
              median(plain_s) / median(ours_s), median(ratios));
}

void run(Communicator const& comm, std::string const& folder, std::uint64_t mib, int rounds, std::uint64_t tensors,
         int threads, std::uint64_t slices) {
  std::uint64_t const blocks = mib * 64;
  auto const ranks = static_cast<std::uint64_t>(comm.size());
  auto const rank = static_cast<std::uint64_t>(comm.rank());
  Part part{4096 * (blocks * rank / ranks), {}};
  part.data.resize(4096 * (blocks * (rank + 1) / ranks) - part.begin);
  for (std::size_t i = 0; i < part.data.size(); ++i) part.data[i] = static_cast<float>(part.begin + i);
  io::CheckpointHeader header;
  tensors = std::min(tensors, blocks / slices);
  for (std::uint64_t t = 0; t < tensors; ++t) {
    io::CheckpointIndexEntry entry{.name = "model.layers." + std::to_string(t) + ".weight",
                                   .shape = {64, static_cast<std::int64_t>(64 * slices)},
                                   .pieces = {}};
    for (std::uint64_t s = 0; s < slices; ++s) {
      entry.pieces.push_back({.offset = static_cast<std::int64_t>(4096 * (t * slices + s)),
                              .first_row = 0,
                              .first_column = static_cast<std::int64_t>(64 * s),
                              .rows = 64,
                              .columns = 64});
    }
    header.index.push_back(std::move(entry));
  }
  auto const begin = static_cast<std::int64_t>(part.begin);
  std::vector<io::FlatRuns> const flat = {
      {io::weights_dataset, 4096 * blocks, {{begin, begin + static_cast<std::int64_t>(part.data.size())}}, part.data}};
  io::CheckpointOptions options;
  options.threads = threads;
  auto const raw = folder + "/plain";
  auto const checkpoint = folder + "/step-00000000.h5";
  std::vector<double> plain_write, our_write, plain_read, our_read;
  for (int round = 0; round < rounds; ++round) {
    plain_write.push_back(seconds(comm, [&] { plain(comm, raw, part, Direction::write); }));
    plain_read.push_back(seconds(comm, [&] { plain(comm, raw, part, Direction::read); }));
    if (comm.rank() == 0) unlink(raw.c_str());
    our_write.push_back(seconds(comm, [&] { io::write_checkpoint(comm, folder, header, flat, options); }));
    our_read.push_back(
        seconds(comm, [&] { io::CheckpointReader(checkpoint).read(io::weights_dataset, part.begin, part.data); }));
    if (comm.rank() == 0) unlink(checkpoint.c_str());
  }
  if (comm.rank() != 0) return;
  std::printf("%d ranks, %d threads each, %llu MiB, %llu tensors in %llu slices, %d rounds; MiB/s\n", comm.size(),
              threads, static_cast<unsigned long long>(mib), static_cast<unsigned long long>(tensors),
              static_cast<unsigned long long>(slices), rounds);
  std::printf(
      "|  | MPI-IO best | ours best | ratio | MPI-IO median | ours median | ratio | median of the rounds' ratios |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  print("write", static_cast<double>(mib), plain_write, our_write);
  print("read", static_cast<double>(mib), plain_read, our_read);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: mpirun -np N checkpoint_speed FOLDER MIB ROUNDS [TENSORS [THREADS [SLICES]]]\n");
    return 2;
  }
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  run(Communicator::duplicate(MPI_COMM_WORLD), argv[1], std::strtoull(argv[2], nullptr, 10), std::atoi(argv[3]),
      argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 200, argc > 5 ? std::atoi(argv[5]) : 1,
      argc > 6 ? std::strtoull(argv[6], nullptr, 10) : 1);
  MPI_Finalize();
  return 0;
}
