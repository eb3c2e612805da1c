#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <numeric>
#include <optional>

#include "lib/base/atomic_file.h"
#include "lib/base/error.h"
#include "lib/comm/agree.h"
#include "lib/io/checkpoint.h"
#include "lib/io/checkpoint_folder.h"
#include "lib/io/piece_sums.h"
#include "lib/io/runs.h"

namespace isotrain::io {
namespace {

constexpr std::uint64_t alignment_bytes = std::uint64_t{1} << 20;

/// All ranks pass the same datasets, and the runs of all ranks are a partition of each. Throws on all ranks or on none.
void expect_partition(Communicator const& comm, std::span<FlatRuns const> flat) {
  std::string names;
  for (auto const& mine : flat) names += mine.dataset + " " + std::to_string(mine.total) + "\n";
  for (auto const& other : comm.all_gather(names)) expects(other == names, "the same datasets on all ranks");
  for (auto const& mine : flat) {
    bool const good = ascending(mine.runs) && elements(mine.runs) == mine.data.size();
    expects(comm.all(good), "ascending runs and their elements");
    auto const own = merged(mine.runs);
    auto const counts = comm.all_gather(static_cast<std::int64_t>(own.size()));
    std::vector<FlatRange> runs(static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0LL)));
    comm.all_gather(std::span(own), std::span(runs), counts);
    std::ranges::sort(runs, {}, &FlatRange::begin);
    std::int64_t end = 0;
    for (auto const& run : runs) {
      expects(run.begin == end && end % static_cast<std::int64_t>(sum_block_elements) == 0,
              "runs of whole blocks that cover a dataset once");
      end = run.end;
    }
    expects(static_cast<std::uint64_t>(end) == mine.total, "runs that cover a dataset");
  }
}

/// On a network file system a file that another node has made may not be visible here. That is found before MPI opens
/// it, since a collective open that fails on some ranks only leaves the others waiting.
void require_writable(std::filesystem::path const& path) {
  int const descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0)
    throw Error("cannot open '" + path.string() + "'", std::strerror(errno),
                "is it on a file system that all nodes share?");
  close(descriptor);
}

hdf5::File open_shared(std::filesystem::path const& path, MPI_Comm comm) {
  std::lock_guard const lock(hdf5_mutex());
  hdf5::PropertyList const access(check_hdf5(H5Pcreate(H5P_FILE_ACCESS), "set up parallel access"));
  check_hdf5(H5Pset_fapl_mpio(access.get(), comm, MPI_INFO_NULL), "set up parallel access");
  check_hdf5(H5Pset_all_coll_metadata_ops(access.get(), true), "set up parallel access");
  check_hdf5(H5Pset_coll_metadata_write(access.get(), true), "set up parallel access");
  return hdf5::File(
      check_hdf5(H5Fopen(path.c_str(), H5F_ACC_RDWR, access.get()), ("open '" + path.string() + "'").c_str()));
}

/// What the operating system says about a write there, since MPI-IO does not pass it on. Writes what belongs there.
std::string reason_of_failure(std::filesystem::path const& path, std::uint64_t place, std::span<float const> data) {
  int const descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return std::strerror(errno);
  auto const written = pwrite(descriptor, data.data(), data.size_bytes(), static_cast<off_t>(place));
  int const reason = written < 0 ? errno : written == static_cast<ssize_t>(data.size_bytes()) ? 0 : ENOSPC;
  close(descriptor);
  return reason == 0 ? "it failed, but a second attempt did not" : std::strerror(reason);
}

/// Calls work(begin, data) for each of the fewest runs.
template <class Work>
void for_each_run(FlatRuns const& mine, Work const& work) {
  auto rest = mine.data;
  for (FlatRange const& run : merged(mine.runs)) {
    auto const size = static_cast<std::size_t>(run.size());
    work(static_cast<std::uint64_t>(run.begin), rest.first(size));
    rest = rest.subspan(size);
  }
}

/// Independent transfers: each rank writes a number of contiguous runs of its own, so there is nothing to exchange, and
/// a rank that fails in the middle of a collective transfer would leave the others waiting in it.
void write_runs(hdf5::Dataset const& dataset, std::filesystem::path const& path, FlatRuns const& mine,
                CheckpointOptions const& options, std::span<std::uint64_t> sums) {
  auto const add = [&](std::uint64_t begin, std::span<float const> data) { add_to_sums(sums, begin, data); };
  std::future<void> beside;
  if (options.threads > 1) beside = std::async(std::launch::async, [&] { for_each_run(mine, add); });
  for_each_run(mine, [&](std::uint64_t run_begin, std::span<float const> data) {
    for (std::uint64_t done = 0; done < data.size(); done += options.transfer_elements) {
      auto const part = data.subspan(done, std::min<std::uint64_t>(options.transfer_elements, data.size() - done));
      auto const begin = run_begin + done;
      if (options.threads <= 1) add(begin, part);
      try {
        hdf5::write(dataset, begin, part);
      } catch (Error const&) {
        std::lock_guard const lock(hdf5_mutex());
        auto const place = H5Dget_offset(dataset.get()) + sizeof(float) * begin;
        throw Error("cannot write " + hdf5::describe(dataset.get()), reason_of_failure(path, place, part));
      }
    }
  });
}

/// Fills the flat datasets of the file, their checksums, and the mark that it is complete.
CheckpointSums write_contents(Communicator const& comm, std::filesystem::path const& path,
                              CheckpointHeader const& header, std::span<FlatRuns const> flat,
                              CheckpointOptions const& options) {
  CheckpointSums sums;
  run_collectively(comm, [&] { require_writable(path); });
  hdf5::File file;
  run_collectively(comm, [&] { file = open_shared(path, comm.get()); });
  for (auto const& mine : flat) {
    auto& own = sums[mine.dataset];
    own.resize(num_pieces(mine.total));
    run_collectively(comm, [&] {
      auto const dataset = hdf5::open_dataset<float>(file.get(), "/flat/" + mine.dataset);
      write_runs(dataset, path, mine, options, own);
    });
  }
  for (auto& [name, own] : sums) comm.sum(std::span(own));
  run_collectively(comm, [&] { complete_checkpoint(file, header, sums, comm.rank() == 0 ? Writer::yes : Writer::no); });
  run_collectively(comm, [&] { hdf5::close(std::move(file)); });
  return sums;
}

void check(std::filesystem::path const& path, CheckpointHeader const& header, CheckpointSums const& sums) {
  CheckpointSums found;
  if (read_checkpoint_header(hdf5::open_read_only(path), &found) != header || found != sums) {
    throw Error("'" + path.string() + "' reads back differently from how it was written", "the file system lost data");
  }
}

}  // namespace

std::filesystem::path write_checkpoint(Communicator const& comm, std::filesystem::path const& folder,
                                       CheckpointHeader header, std::span<FlatRuns const> flat,
                                       CheckpointOptions const& options) {
  expects(options.transfer_elements > 0 && options.transfer_elements % sum_block_elements == 0 &&
              options.transfer_elements <= (std::uint64_t{1} << 28),
          "transfers of whole blocks, at most 1 GiB");
  expect_partition(comm, flat);
  header.flat.clear();
  for (auto const& mine : flat) header.flat[mine.dataset] = mine.total;
  auto const path = folder / checkpoint_file_name(comm.broadcast(header.step, 0));
  auto const on_first_rank = [&](auto const& work) {
    run_collectively(comm, [&] {
      if (comm.rank() == 0) work();
    });
  };
  std::optional<AtomicFile> target;
  if (comm.rank() == 0) target.emplace(path);
  on_first_rank([&] {
    std::error_code reason;
    std::filesystem::create_directories(folder, reason);
    if (reason) throw Error("cannot make folder '" + folder.string() + "'", reason.message());
    remove_partial_checkpoints(folder);
    auto file = hdf5::create(target->partial(), alignment_bytes);
    write_checkpoint_header(file, header);
    hdf5::close(std::move(file));
  });
  auto const sums = write_contents(comm, path.string() + ".partial", header, flat, options);
  on_first_rank([&] {
    check(target->partial(), header, sums);
    target->commit();
    prune_checkpoints(folder, options.keep, path);
  });
  return path;
}

}  // namespace isotrain::io
