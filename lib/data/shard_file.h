#pragma once

#include <filesystem>
#include <memory>

#include "lib/base/hdf5.h"

namespace isotrain::data {

/// An HDF5 file that is being written, and may fail to be, as on a full disk. HDF5 1.10 cannot let go of such a file:
/// what it could not close it closes once more when the program ends, and crashes. So its writes go through a file
/// driver of ours, which notes the first failure and lets HDF5 go on as if nothing were; check() and close() tell.
class ShardFile {
 public:
  /// Replaces an existing file. Throws Error if it cannot be made.
  explicit ShardFile(std::filesystem::path const& path);
  ShardFile(ShardFile const&) = delete;
  ShardFile& operator=(ShardFile const&) = delete;

  hid_t get() const { return file_.get(); }

  /// Throws Error if anything could not be written so far.
  void check() const;
  /// Closes and checks. Ids of what is inside must be gone by then.
  void close();

 private:
  std::filesystem::path path_;
  std::unique_ptr<int> failure_;  // errno of the first write that failed; 0: none did
  hdf5::File file_;
};

}  // namespace isotrain::data
