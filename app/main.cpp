// isotrain COMMAND [arguments]: finds the command and reports what stopped it.

#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "app/commands.h"
#include "lib/base/error.h"
#include "lib/base/nearest.h"

namespace {

struct Command {
  char const* name;
  char const* summary;
  int (*run)(std::vector<std::string> const& arguments);
};

constexpr std::array commands{
    Command{"prepare", "text files, folders, JSONL -> a corpus of HDF5 shards", isotrain::run_prepare},
    Command{"train", "train a model; started with mpirun -np N or srun", isotrain::run_train},
    Command{"eval", "loss and perplexity of a checkpoint on a split", isotrain::run_eval},
    Command{"generate", "continue a prompt from a checkpoint", isotrain::run_generate},
    Command{"inspect", "describe and verify a corpus, shard, checkpoint or run folder", isotrain::run_inspect},
    Command{"diff", "first step, layer and tensor in which two runs differ", isotrain::run_diff},
    Command{"version", "version, commit, and what it was built with", isotrain::run_version},
};

std::string overview() {
  std::string text = "isotrain: trains DeepSeek-class language models, with the same bits on every layout\n\n";
  for (auto const& command : commands) {
    std::string line = std::string("  isotrain ") + command.name;
    line.resize(20, ' ');
    text += line + command.summary + "\n";
  }
  return text + "\nisotrain COMMAND --help lists the settings of a command.\n";
}

int dispatch(std::string const& name, std::vector<std::string> const& arguments) {
  std::vector<std::string> names;
  for (auto const& command : commands) {
    if (name == command.name) return command.run(arguments);
    names.emplace_back(command.name);
  }
  auto const near = isotrain::nearest(name, names);
  throw isotrain::UsageError("unknown command '" + name + "'", "",
                             near ? "did you mean '" + *near + "'?" : "isotrain --help lists the commands");
}

}  // namespace

int main(int argc, char** argv) {
  // A file size limit is then an error like a full disk, which a run survives.
  std::signal(SIGXFSZ, SIG_IGN);
  std::vector<std::string> const arguments(argv + 1, argv + argc);
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    std::fputs(overview().c_str(), arguments.empty() ? stderr : stdout);
    return arguments.empty() ? 2 : 0;
  }
  try {
    return dispatch(arguments[0] == "--version" ? "version" : arguments[0], {arguments.begin() + 1, arguments.end()});
  } catch (isotrain::Error const& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return error.exit_code();
  } catch (std::exception const& error) {
    std::fprintf(stderr, "error: internal error: %s\n", error.what());
    return 1;
  }
}
