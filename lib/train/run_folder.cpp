#include "lib/train/run_folder.h"

#include <nlohmann/json.hpp>
#include <system_error>

#include "lib/base/atomic_file.h"
#include "lib/base/error.h"
#include "lib/train/ledger.h"

namespace isotrain {
namespace {

namespace fs = std::filesystem;

void make_folder(fs::path const& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw Error("cannot make the folder '" + path.string() + "'", error.message(), "is --run.dir where you can write?");
  }
}

void make_folders(RunFolder const& folder) {
  make_folder(folder.root());
  make_folder(folder.logs());
  make_folder(folder.checkpoints());
}

bool is_there(fs::path const& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// True for a whole object of a step up to `step`.
bool belongs(std::string const& line, std::int64_t step) {
  auto const object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return false;
  auto const found = object.find("step");
  return found != object.end() && found->is_number_integer() && found->get<std::int64_t>() <= step;
}

void cut_metrics(fs::path const& path, std::int64_t step) {
  if (!is_there(path)) return;
  std::string const before = read_file(path);
  std::string after;
  for (std::size_t begin = 0; begin < before.size();) {
    std::size_t const newline = before.find('\n', begin);
    if (newline == std::string::npos) break;
    std::string const line = before.substr(begin, newline + 1 - begin);
    if (belongs(line, step)) after += line;
    begin = newline + 1;
  }
  if (after != before) write_file_atomically(path, after);
}

/// run.cfg.1, or the first that is free.
fs::path next_copy(fs::path const& path) {
  for (int n = 1;; ++n) {
    fs::path copy = path;
    copy += std::string(".").append(std::to_string(n));
    if (!is_there(copy)) return copy;
  }
}

}  // namespace

bool has_run(RunFolder const& folder) {
  std::error_code ignored;
  return is_there(folder.settings()) || is_there(folder.metrics()) ||
         (is_there(folder.checkpoints()) && !fs::is_empty(folder.checkpoints(), ignored));
}

void create_run_folder(RunFolder const& folder, std::string const& settings) {
  if (has_run(folder)) {
    throw UsageError("the folder '" + folder.root().string() + "' already has a run", "--resume none starts a new one",
                     "choose another --run.dir, remove the folder, or use --resume auto to go on with that run");
  }
  make_folders(folder);
  write_file_atomically(folder.settings(), settings);
}

void resume_run_folder(RunFolder const& folder, std::string const& settings, std::int64_t step) {
  make_folders(folder);
  cut_metrics(folder.metrics(), step);
  cut_ledger(folder.ledger(), step);
  if (is_there(folder.settings())) {
    std::string const before = read_file(folder.settings());
    if (before == settings) return;
    write_file_atomically(next_copy(folder.settings()), before);
  }
  write_file_atomically(folder.settings(), settings);
}

}  // namespace isotrain
