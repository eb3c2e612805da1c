#pragma once

#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/unique.h"

namespace isotrain {

namespace detail {
void close_descriptor(int descriptor) noexcept;
}

/// The log of one rank. Passed by reference; safe to use from several threads.
///
/// Lines of the file: "2026-12-01T12:00:00.000Z warning message". Until open() is called there is no file: lines are
/// kept and written to it then, and infos of rank 0 go to stdout meanwhile. Warnings and errors of every rank always go
/// to stderr too, in one write: "warning on node7, rank 3: message" (in a run of one rank just "warning: message"). A
/// log that cannot be written (disk full) says so once on stderr and the run goes on.
class Log {
 public:
  /// Of rank `rank` of `size`, on host `host`.
  Log(int rank, int size, std::string host);

  /// Logs to folder/rank-00003.log from now on, after what is there already. Makes the folder. Throws Error.
  void open(std::filesystem::path const& folder);

  void info(std::string_view message);
  void warning(std::string_view message);
  void error(std::string_view message);

 private:
  void write(std::string_view level, std::string_view message);
  void write_line(std::string const& line);
  void repeat(std::string_view level, std::string_view message) const;

  int rank_;
  int size_;
  std::string host_;
  std::mutex mutex_;
  Unique<int, detail::close_descriptor, -1> file_;
  std::vector<std::string> early_lines_;
  bool write_failed_ = false;
};

/// "rank-00003.log"
std::string log_file_name(int rank);

}  // namespace isotrain
