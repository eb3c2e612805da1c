#pragma once

#include <string>

#include "lib/train/run_folder.h"

namespace isotrain {

struct RunComparison {
  bool equal = false;  // all steps that both runs have gave the same bits, whatever the settings say
  std::string text;    // for people, several lines
};

/// Compares two run folders: settings and numerics class, then what each step computed, by the ledgers where both runs
/// have one, and by loss and fingerprint. Throws UsageError if there is no run in a folder or there is no step that
/// both have, Error for files that cannot be read.
RunComparison compare_runs(RunFolder const& first, RunFolder const& second);

}  // namespace isotrain
