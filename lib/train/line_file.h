#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "lib/base/unique.h"

namespace isotrain {

/// A text file of a run that is appended to line by line, each line visible to readers at once.
class LineFile {
 public:
  /// `what` names it in messages: "metrics file". Throws Error if it cannot be opened for appending. `warn` is told
  /// once if a later write fails (a full disk): the run goes on, the line is lost, the next one is tried again and
  /// starts on a line of its own.
  LineFile(std::string what, std::filesystem::path path, std::function<void(std::string const& message)> warn);

  /// `line` without the newline.
  void append(std::string line);

 private:
  static void close(int file);

  std::string what_;
  std::filesystem::path path_;
  std::function<void(std::string const&)> warn_;
  Unique<int, close, -1> file_;
  bool warned_ = false;
};

}  // namespace isotrain
