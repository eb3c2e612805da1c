#include "lib/train/resume.h"

#include <nlohmann/json.hpp>

#include <sstream>

#include "lib/base/error.h"
#include "lib/comm/agree.h"
#include "lib/io/checkpoint_folder.h"

namespace isotrain {
namespace {

struct Differences {
  std::string text;

  template <class U>
  void compare(char const* what, U const& then, U const& now) {
    if (then == now) return;
    std::ostringstream line;
    line << what << " (" << then << " then, " << now << " now)";
    add(line.str());
  }
  void add(std::string const& what) { text += (text.empty() ? "" : ", ") + what; }
};

}  // namespace

TrainSettings settings_of(io::CheckpointHeader const& header) {
  TrainSettings settings;
  Settings table("", "");
  declare(table, settings);
  std::istringstream text(header.settings_ini);
  table.read_ini(text, "the checkpoint's settings");
  return settings;
}

io::CheckpointIndex checkpoint_index(ParameterTable const& table) {
  io::CheckpointIndex index;
  for (auto const& parameter : table.all()) {
    auto& entry =
        index.emplace_back(io::CheckpointIndexEntry{.name = parameter.name, .shape = parameter.shape, .pieces = {}});
    for (auto const& piece : table.pieces_of(parameter)) {
      entry.pieces.push_back({piece.offset, piece.first_row, piece.first_column, piece.rows, piece.columns});
    }
  }
  return index;
}

std::optional<std::filesystem::path> find_checkpoint(Communicator const& comm, std::string const& resume,
                                                     RunFolder const& folder, Log& log,
                                                     std::optional<std::filesystem::path> const& older_than) {
  std::string const found = run_collectively(comm, [&]() -> std::string {
    if (resume == "none" || comm.rank() != 0) return {};
    if (resume != "auto") {
      if (!std::filesystem::exists(resume)) {
        throw UsageError("there is no checkpoint '" + resume + "'", "--resume names it",
                         "use --resume auto for the newest one of the run folder");
      }
      return resume;
    }
    auto const newest = io::newest_complete_checkpoint(folder.checkpoints(), older_than);
    if (!newest.path && (older_than || !newest.skipped.empty())) {
      throw Error("no checkpoint in '" + folder.checkpoints().string() + "' can be used",
                  newest.skipped.empty() ? "" : newest.skipped.front(),
                  "to start again from step 0, remove the run folder or choose another --run.dir");
    }
    for (auto const& why : newest.skipped) log.warning(why + "; an older checkpoint is taken");
    if (newest.path) return newest.path->string();
    return {};
  });
  std::string const path = comm.broadcast(found, 0);
  if (path.empty()) return std::nullopt;
  return path;
}

void check_same_run(io::CheckpointHeader const& header, TrainPlan const& plan, ParameterTable const& table,
                    std::vector<std::uint8_t> const& tokenizer) {
  auto const& s = plan.settings;
  TrainSettings const then = settings_of(header);
  Differences differences;
  if (nlohmann::json::parse(header.config_json) != nlohmann::json::parse(plan.config_json) ||
      header.index != checkpoint_index(table)) {
    differences.add("the model's config");
  }
  differences.compare("model.precision", header.precision, s.model.precision);
  differences.compare("model.yarn", then.model.yarn, s.model.yarn);
  differences.compare("repro.lanes", header.lanes, s.repro.lanes);
  differences.compare("repro.slices", header.slices, s.repro.slices);
  differences.compare("repro.bf16", header.bf16, s.repro.bf16);
  differences.compare("train.seed", header.seed, static_cast<std::uint64_t>(s.train.seed));
  differences.compare("train.sequence", then.train.sequence, s.train.sequence);
  if (header.tokenizer != tokenizer) differences.add("the corpus's tokenizer");
  if (differences.text.empty()) return;
  throw UsageError("the checkpoint belongs to another computation", "these differ: " + differences.text,
                   "give the settings of its run, or start a new one in another --run.dir");
}

}  // namespace isotrain
