#include <cstdio>
#include <fstream>

#include "app/command_line.h"
#include "app/commands.h"
#include "app/describe.h"
#include "lib/base/error.h"
#include "lib/base/hdf5.h"
#include "lib/base/settings.h"
#include "lib/data/corpus.h"
#include "lib/io/checkpoint.h"
#include "lib/io/checkpoint_folder.h"
#include "lib/train/run_folder.h"

namespace isotrain {
namespace {

/// The last whole line of metrics.jsonl, or "none".
std::string last_metrics(std::filesystem::path const& path) {
  std::ifstream stream(path);
  std::string last = "none";
  for (std::string line; std::getline(stream, line);) {
    if (!stream.eof()) last = line;
  }
  return last;
}

void describe_run(RunFolder const& folder, Verify verify) {
  std::printf("run '%s'\n", folder.root().c_str());
  print_row("settings", std::filesystem::exists(folder.settings()) ? folder.settings().string() : "none");
  print_row("last metrics", last_metrics(folder.metrics()));
  std::size_t damaged = 0;
  std::string first;
  bool newest = true;
  for (auto const& path : io::list_checkpoints(folder.checkpoints())) {
    auto const name = path.filename().string();
    try {
      io::CheckpointReader const reader(path);
      auto const damage = verify == Verify::yes ? reader.find_damage() : std::vector<std::string>();
      if (!damage.empty()) throw Error(damage[0], "its checksum differs");
      print_row(name, "complete, step " + std::to_string(reader.header().step) + ", " +
                          format_bytes(std::filesystem::file_size(path)) + (verify == Verify::yes ? ", verified" : "") +
                          (newest ? ", the newest" : ""));
      newest = false;
    } catch (Error const& e) {
      print_row(name, std::string("not usable: ") + e.what());
      if (damaged++ == 0) first = e.what();
    }
  }
  if (newest) print_row("checkpoints", "none that is complete");
  if (verify == Verify::yes && damaged > 0) {
    throw Error("run '" + folder.root().string() + "' has " + std::to_string(damaged) + " damaged checkpoints",
                "the first: " + first);
  }
}

/// By its own content, not by its name.
void describe_file(std::filesystem::path const& path, Verify verify) {
  bool const shard = [&] {
    auto const file = hdf5::open_read_only(path);
    return hdf5::exists(file.get(), "/tokens");
  }();
  if (shard) {
    describe_shard(path, verify);
  } else {
    describe_checkpoint(path, verify);
  }
}

}  // namespace

int run_inspect(std::vector<std::string> const& arguments) {
  std::filesystem::path path;
  bool verify_contents = false;
  Settings table("isotrain inspect PATH", "Describes a corpus, a shard, a checkpoint or a run folder.");
  table.add("path", path, {.help = "Corpus or run folder, or file of a shard or checkpoint."});
  table.positional("path", Settings::Presence::required);
  table.add("verify", verify_contents,
            {.help = "Read everything and compare it with its checksums; damage is exit code 1."});
  return run_command(table, arguments, [&] {
    auto const verify = verify_contents ? Verify::yes : Verify::no;
    std::error_code reason;
    if (!std::filesystem::exists(path, reason)) {
      throw Error("cannot find '" + path.string() + "'", reason ? reason.message() : "there is no such file or folder");
    }
    if (!std::filesystem::is_directory(path)) {
      describe_file(path, verify);
    } else if (std::filesystem::exists(path / data::Corpus::file_name)) {
      describe_corpus(path, verify);
    } else if (RunFolder const folder(path); has_run(folder)) {
      describe_run(folder, verify);
    } else {
      throw Error(
          "'" + path.string() + "' holds nothing to inspect",
          std::string("it has no ") + data::Corpus::file_name + " and no run.cfg, metrics.jsonl or checkpoints");
    }
    return 0;
  });
}

}  // namespace isotrain
