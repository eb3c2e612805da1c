#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lib/base/settings.h"
#include "lib/comm/session.h"

namespace isotrain {

/// Reads the settings of a command and runs it; --help and --dump-defaults are answered instead, with exit code 0.
int run_command(Settings& table, std::vector<std::string> const& arguments, std::function<int()> const& body);

/// The same for a command of all ranks. MPI starts before settings are read, so that what is wrong with them is said
/// once.
int run_mpi_command(Settings& table, std::vector<std::string> const& arguments,
                    std::function<int(MpiSession const&)> const& body);

}  // namespace isotrain
