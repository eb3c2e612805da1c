#include <cstdio>
#include <filesystem>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/base/error.h"
#include "lib/base/settings.h"
#include "lib/train/diff.h"

namespace isotrain {

int run_diff(std::vector<std::string> const& arguments) {
  std::filesystem::path first, second;
  Settings table(
      "isotrain diff RUN RUN",
      "Finds the first step, layer and tensor in which two runs differ, whatever their layouts. Exit code 0: "
      "the same bits; 1: they differ; 2: they cannot be compared.");
  table.add("first", first, {.help = "Run folder A."});
  table.add("second", second, {.help = "Run folder B."});
  table.positional("first", Settings::Presence::required);
  table.positional("second", Settings::Presence::required);
  return run_command(table, arguments, [&] {
    try {
      auto const comparison = compare_runs(RunFolder(first), RunFolder(second));
      std::fputs(comparison.text.c_str(), stdout);
      return comparison.equal ? 0 : 1;
    } catch (Error const& error) {
      // Exit code 1 would say that the runs differ.
      throw UsageError(error.what());
    }
  });
}

}  // namespace isotrain
