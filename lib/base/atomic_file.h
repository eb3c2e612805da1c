#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace isotrain {

/// A file that becomes visible under its name only when complete. Write partial() by any means and close it, then
/// commit(). Without a commit the destructor removes the partial file, and what stood under the name stays.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(AtomicFile const&) = delete;
  AtomicFile& operator=(AtomicFile const&) = delete;

  /// "<path>.partial", in the same folder.
  std::filesystem::path const& partial() const { return partial_; }

  /// Makes the partial file durable, gives it its name and makes that durable. Throws Error.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  bool committed_ = false;
};

/// Replaces the file by `content`: a reader sees the old or the new one, also after a crash. Throws Error.
void write_file_atomically(std::filesystem::path const& path, std::string_view content);

/// Waits until a file or folder is on the disk. Throws Error.
void sync_to_disk(std::filesystem::path const& path);

/// The whole file. Throws Error.
std::string read_file(std::filesystem::path const& path);

}  // namespace isotrain
