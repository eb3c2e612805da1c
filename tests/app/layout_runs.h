#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/app/layout.h"
#include "tests/app/tiny_run.h"

namespace isotrain::test {

/// Runs of the program on layouts, each compared with that of the same model and precision on one rank.
class LayoutRuns {
 public:
  explicit LayoutRuns(int steps) : steps_(steps) {}

  /// Empty if every step is the same on both, else what is not. `more`: settings beyond the layout's.
  std::string difference(Layout const& layout, std::vector<std::string> const& more = {});

  /// The steps of a run. Throws std::runtime_error if it fails.
  std::vector<TinyWorld::Step> steps(Layout const& layout, std::vector<std::string> const& more = {});

  /// The steps of one rank. Throws std::runtime_error if that run fails.
  std::vector<TinyWorld::Step> const& expected(std::string const& model, std::string const& precision);

 private:
  int steps_;
  TinyWorld world_;
  std::map<std::pair<std::string, std::string>, std::vector<TinyWorld::Step>> expected_;
};

}  // namespace isotrain::test
