#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace isotrain::test {

/// What the sources under `root` (app, benchmarks, kernels, lib, tests) do against the map: a file includes only what
/// stands in its own or a lower layer; lib/model, lib/optim, lib/data and lib/io do not know each other; an include in
/// quotes is a path from the root and exists; nobody but tests and benchmarks includes those. One line each,
/// "lib/base/x.h:3: includes lib/comm/y.h, which is a higher layer".
std::vector<std::string> include_violations(std::filesystem::path const& root);

/// How many files include_violations looks at.
std::size_t num_sources(std::filesystem::path const& root);

}  // namespace isotrain::test
