#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace isotrain {

/// The names inside a run folder (`--run.dir`). Touches no file; every rank may make one.
class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path root) : root_(std::move(root)) {}

  std::filesystem::path const& root() const { return root_; }
  std::filesystem::path settings() const { return root_ / "run.cfg"; }       // every setting as resolved
  std::filesystem::path metrics() const { return root_ / "metrics.jsonl"; }  // one JSON object a step
  std::filesystem::path ledger() const { return root_ / "ledger.jsonl"; }    // hashes of what each step computed
  std::filesystem::path logs() const { return root_ / "logs"; }
  std::filesystem::path watchdog() const { return root_ / "watchdog"; }  // reports of a run that hung
  std::filesystem::path checkpoints() const { return root_ / "checkpoints"; }

 private:
  std::filesystem::path root_;
};

/// True if a run left settings, metrics or a checkpoint there.
bool has_run(RunFolder const& folder);

/// Makes the folder of a new run and writes `settings` to run.cfg. One rank calls it, before any other uses the folder.
/// Throws UsageError if a run is there already (nothing is touched), Error if it cannot be made or written.
void create_run_folder(RunFolder const& folder, std::string const& settings);

/// Makes the folder, or goes on with the run in it after `step`: metrics and ledger of later steps and torn lines are
/// removed; where `settings` differ from run.cfg, the old file is kept as run.cfg.1 (or the next free number) first.
/// Each file is replaced whole or not at all, the ledger cut in place. One rank calls it. Throws Error as above.
void resume_run_folder(RunFolder const& folder, std::string const& settings, std::int64_t step);

}  // namespace isotrain
