#include "lib/base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "lib/base/error.h"

namespace isotrain {

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)), partial_(path_) {
  partial_ += ".partial";
}

AtomicFile::~AtomicFile() {
  std::error_code ignored;
  if (!committed_) std::filesystem::remove(partial_, ignored);
}

void AtomicFile::commit() {
  sync_to_disk(partial_);
  std::error_code error;
  std::filesystem::rename(partial_, path_, error);
  if (error) throw Error("cannot rename '" + partial_.string() + "' to '" + path_.string() + "'", error.message());
  committed_ = true;
  std::filesystem::path const folder = path_.parent_path();
  sync_to_disk(folder.empty() ? "." : folder);
}

void write_file_atomically(std::filesystem::path const& path, std::string_view content) {
  AtomicFile file(path);
  errno = 0;
  std::ofstream stream(file.partial(), std::ios::binary | std::ios::trunc);
  stream.write(content.data(), static_cast<std::streamsize>(content.size()));
  stream.close();
  if (!stream) throw Error("cannot write '" + file.partial().string() + "'", std::strerror(errno));
  file.commit();
}

void sync_to_disk(std::filesystem::path const& path) {
  int const descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw Error("cannot open '" + path.string() + "' to make it durable", std::strerror(errno));
  int const failed = ::fsync(descriptor);
  int const reason = errno;
  ::close(descriptor);
  if (failed) throw Error("cannot make '" + path.string() + "' durable", std::strerror(reason));
}

std::string read_file(std::filesystem::path const& path) {
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw Error("cannot open '" + path.string() + "'", std::strerror(errno));
  std::ostringstream content;
  // An empty file sets failbit here, so the source's own state is what counts.
  content << stream.rdbuf();
  if (stream.bad() || std::filesystem::is_directory(path)) {
    throw Error("cannot read '" + path.string() + "'", std::strerror(errno ? errno : EIO));
  }
  return content.str();
}

}  // namespace isotrain
