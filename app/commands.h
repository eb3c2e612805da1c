#pragma once

#include <string>
#include <vector>

/// The sub-commands. Each takes its arguments (without its name) and returns the exit code: 0 done, 75 stopped early
/// with a checkpoint; 1 where two runs differ. Throws Error (exit code 1) or UsageError (2) with one clear message.
namespace isotrain {

int run_prepare(std::vector<std::string> const& arguments);
int run_train(std::vector<std::string> const& arguments);
int run_eval(std::vector<std::string> const& arguments);
int run_generate(std::vector<std::string> const& arguments);
int run_inspect(std::vector<std::string> const& arguments);
int run_diff(std::vector<std::string> const& arguments);
int run_version(std::vector<std::string> const& arguments);

}  // namespace isotrain
