#include "lib/base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "lib/base/error.h"

namespace isotrain {
namespace {

std::string utc_now() {
  auto const now = std::chrono::system_clock::now();
  std::time_t const seconds = std::chrono::system_clock::to_time_t(now);
  auto const ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char day[32], text[48];
  std::strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text, sizeof(text), "%s.%03dZ", day, static_cast<int>(ms));
  return text;
}

/// Everything in as few calls as the system allows, so that lines of several processes do not mix.
bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    ssize_t const written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

void detail::close_descriptor(int descriptor) noexcept {
  ::close(descriptor);
}

std::string log_file_name(int rank) {
  char name[32];
  std::snprintf(name, sizeof(name), "rank-%05d.log", rank);
  return name;
}

Log::Log(int rank, int size, std::string host) : rank_(rank), size_(size), host_(std::move(host)) {}

void Log::open(std::filesystem::path const& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error("cannot make the folder '" + folder.string() + "'", error.message());
  std::filesystem::path const path = folder / log_file_name(rank_);
  int const descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) throw Error("cannot open the log '" + path.string() + "'", std::strerror(errno));
  std::lock_guard const lock(mutex_);
  file_ = Unique<int, detail::close_descriptor, -1>(descriptor);
  for (std::string const& line : early_lines_) write_line(line);
  early_lines_.clear();
}

void Log::info(std::string_view message) {
  write("info", message);
}
void Log::warning(std::string_view message) {
  write("warning", message);
}
void Log::error(std::string_view message) {
  write("error", message);
}

void Log::write(std::string_view level, std::string_view message) {
  std::string const line = utc_now() + " " + std::string(level) + " " + std::string(message) + "\n";
  std::lock_guard const lock(mutex_);
  if (file_) {
    write_line(line);
  } else {
    early_lines_.push_back(line);
    if (level == "info" && rank_ == 0) write_all(STDOUT_FILENO, std::string(message) + "\n");
  }
  if (level != "info") repeat(level, message);
}

void Log::write_line(std::string const& line) {
  if (write_all(file_.get(), line) || write_failed_) return;
  write_failed_ = true;
  repeat("warning", std::string("cannot write the log (") + std::strerror(errno) + "); the run goes on without it");
}

void Log::repeat(std::string_view level, std::string_view message) const {
  std::string line(level);
  if (size_ > 1) line += " on " + host_ + ", rank " + std::to_string(rank_);
  write_all(STDERR_FILENO, line + ": " + std::string(message) + "\n");
}

}  // namespace isotrain
