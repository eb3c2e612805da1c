#include "lib/train/line_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lib/base/error.h"

namespace isotrain {

LineFile::LineFile(std::string what, std::filesystem::path path, std::function<void(std::string const&)> warn)
    : what_(std::move(what)),
      path_(std::move(path)),
      warn_(std::move(warn)),
      file_(open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)) {
  if (!file_) throw Error("cannot write the " + what_ + " '" + path_.string() + "'", std::strerror(errno));
}

void LineFile::close(int file) {
  ::close(file);
}

void LineFile::append(std::string line) {
  line += '\n';
  off_t const end = lseek(file_.get(), 0, SEEK_END);
  std::size_t written = 0;
  while (written < line.size()) {
    ssize_t const count = write(file_.get(), line.data() + written, line.size() - written);
    if (count >= 0) {
      written += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      break;
    }
  }
  if (written == line.size()) return;
  int const why = errno;
  std::string message = "cannot write the " + what_ + " '" + path_.string() + "' (" + std::strerror(why) +
                        "); the run goes on, lines of it are lost";
  if (written > 0 && ftruncate(file_.get(), end) != 0) message += ", one is torn";
  if (!warned_) warn_(message);
  warned_ = true;
}

}  // namespace isotrain
