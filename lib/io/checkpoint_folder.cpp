#include "lib/io/checkpoint_folder.h"

#include <algorithm>
#include <cstdio>
#include <functional>

#include "lib/base/error.h"
#include "lib/io/checkpoint_header.h"

namespace isotrain::io {
namespace {

char const* const prefix = "step-";
char const* const suffix = ".h5";
char const* const partial_suffix = ".h5.partial";

/// The step in a name of the form prefix, digits, `end`.
std::optional<std::uint64_t> step_in(std::string const& name, std::string const& end) {
  std::string const begin = prefix;
  if (!name.starts_with(begin) || !name.ends_with(end) || name.size() <= begin.size() + end.size()) return {};
  auto const digits = name.substr(begin.size(), name.size() - begin.size() - end.size());
  if (digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) return {};
  return std::stoull(digits);
}

std::vector<std::filesystem::path> list(std::filesystem::path const& folder, std::string const& end) {
  std::vector<std::pair<std::uint64_t, std::filesystem::path>> found;
  std::error_code none;
  for (auto const& entry : std::filesystem::directory_iterator(folder, none)) {
    if (auto const step = step_in(entry.path().filename(), end)) found.emplace_back(*step, entry.path());
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  std::vector<std::filesystem::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

void remove_file(std::filesystem::path const& path) {
  std::error_code reason;
  std::filesystem::remove(path, reason);
  if (reason) throw Error("cannot remove '" + path.string() + "'", reason.message());
}

/// Why a checkpoint will not do, if so.
std::optional<std::string> fault_in(std::filesystem::path const& path) try {
  read_checkpoint_header(hdf5::open_read_only(path));
  return {};
} catch (Error const& e) {
  return e.what();
}

}  // namespace

std::string checkpoint_file_name(std::uint64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "%s%08llu%s", prefix, static_cast<unsigned long long>(step), suffix);
  return name;
}

std::vector<std::filesystem::path> list_checkpoints(std::filesystem::path const& folder) {
  return list(folder, suffix);
}

NewestCheckpoint newest_complete_checkpoint(std::filesystem::path const& folder,
                                            std::optional<std::filesystem::path> const& older_than) {
  NewestCheckpoint newest;
  for (auto const& path : list_checkpoints(folder)) {
    if (older_than && step_in(path.filename(), suffix) >= step_in(older_than->filename(), suffix)) continue;
    auto fault = fault_in(path);
    if (!fault) {
      newest.path = path;
      break;
    }
    newest.skipped.push_back(std::move(*fault));
  }
  return newest;
}

void remove_partial_checkpoints(std::filesystem::path const& folder) {
  for (auto const& path : list(folder, partial_suffix)) remove_file(path);
}

void prune_checkpoints(std::filesystem::path const& folder, int keep, std::filesystem::path const& newest) {
  if (keep <= 0) return;
  int kept = 1;
  for (auto const& path : list_checkpoints(folder)) {
    if (path == newest || fault_in(path)) continue;
    if (kept < keep) {
      ++kept;
    } else {
      remove_file(path);
    }
  }
}

}  // namespace isotrain::io
