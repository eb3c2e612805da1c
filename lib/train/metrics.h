#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/unique.h"

namespace isotrain {

/// What is written about one step.
struct StepMetrics {
  std::int64_t step = 0;    // the first is 1
  std::int64_t tokens = 0;  // consumed so far, this step included
  double loss = 0;          // mean per target token, nats
  double grad_norm = 0;     // before clipping
  double lr = 0;
  double tokens_per_s = 0;  // of all ranks together
  double step_s = 0;
  double mfu = 0;                                      // model FLOPs over the kernel's measured rate, 0 to 1
  std::uint64_t fingerprint = 0;                       // of the weights after the step
  std::vector<std::pair<std::string, double>> more{};  // optional ones by name: balance_loss, max_vio, eval_loss, ...
};

/// One JSON object on one line, without the newline: fields as named above, in that order, those of `more` last;
/// doubles in their shortest form that reads back the same, NaN and infinities as null, the fingerprint as 16 hex
/// digits in quotes.
std::string to_json(StepMetrics const& metrics);

/// The loss in the last whole line of a metrics file, NaN if there is none.
double last_loss(std::filesystem::path const& path);

/// metrics.jsonl, appended to line by line, each line visible to readers at once.
class MetricsFile {
 public:
  /// Throws Error if the file cannot be opened for appending. `warn` is told once if a later write fails (a full disk):
  /// the run goes on, the line is lost, the next one is tried again and starts on a line of its own.
  MetricsFile(std::filesystem::path path, std::function<void(std::string const& message)> warn);

  void append(StepMetrics const& metrics);

 private:
  static void close(int file);

  std::filesystem::path path_;
  std::function<void(std::string const&)> warn_;
  Unique<int, close, -1> file_;
  bool warned_ = false;
};

}  // namespace isotrain
