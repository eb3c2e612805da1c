#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lib/comm/communicator.h"
#include "lib/io/checkpoint_header.h"
#include "lib/tensor/parameters.h"

namespace isotrain::io {

/// What this rank holds of a flat fp32 dataset of `total` elements: any number of runs, ascending and disjoint, also
/// none. Each run begins and ends at multiples of sum_block_elements, or ends where the dataset does. The runs of all
/// ranks cover the dataset, each element once.
struct FlatRuns {
  std::string dataset;  // "master", "adam_m", "adam_v"
  std::uint64_t total = 0;
  std::vector<FlatRange> runs;
  std::span<float const> data;  // the runs' elements, one run after the other
};

struct CheckpointOptions {
  /// Newest complete checkpoints to leave in the folder, the one being written included; 0: all.
  int keep = 2;
  /// Elements that one call hands to HDF5, a multiple of sum_block_elements; at most 1 GiB.
  std::uint64_t transfer_elements = std::uint64_t{1} << 17;
  /// Threads that this rank may use. With two, checksums are taken beside the writing, else in turn with it.
  int threads = 1;
};

/// Writes `folder`/step-00000100.h5 with all ranks of `comm` and gives its path. The file comes into sight only when
/// complete, verified and durable; then checkpoints beyond `keep` go.
///
/// `header` counts on rank 0 only; its `flat` is filled in here. All ranks pass the same datasets in the same order,
/// one entry each, whatever they hold of them. Throws the same Error on all ranks if any of them fails (disk full,
/// folder not writable, ...): the other checkpoints in the folder are then untouched, nothing half-written is left, and
/// the caller may go on. (An old checkpoint that cannot be removed is an Error too, after the new one is in its place.)
std::filesystem::path write_checkpoint(Communicator const& comm, std::filesystem::path const& folder,
                                       CheckpointHeader header, std::span<FlatRuns const> flat,
                                       CheckpointOptions const& options = {});

/// A complete checkpoint open for reading, by any rank on its own.
class CheckpointReader {
 public:
  /// Reads and checks the header; throws Error as read_checkpoint_header does, and if the file is truncated or no HDF5.
  explicit CheckpointReader(std::filesystem::path const& path);

  CheckpointHeader const& header() const { return header_; }

  /// Elements [begin, begin + out.size()) of a flat dataset, any range. Every piece that the range touches is checked
  /// whole; throws Error naming dataset and piece if one is damaged, or if there is no such dataset or range.
  void read(std::string const& dataset, std::uint64_t begin, std::span<float> out) const;
  /// The same of several runs, ascending and disjoint, into `out` one after the other. No piece is read twice, however
  /// many of the runs lie in it.
  void read(std::string const& dataset, std::vector<FlatRange> const& runs, std::span<float> out) const;

  /// One message for each damaged piece of all flat datasets; none if the file is good.
  std::vector<std::string> find_damage() const;

 private:
  std::vector<std::uint64_t> const& sums_of(std::string const& dataset) const;

  hdf5::File file_;
  CheckpointSums sums_;
  CheckpointHeader header_;
};

}  // namespace isotrain::io
