#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lib/train/line_file.h"

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
  std::vector<std::pair<std::string, std::vector<double>>> lists{};  // the same, with several values
};

/// One JSON object on one line, without the newline: fields as named above, in that order, those of `more` and `lists`
/// last; doubles in their shortest form that reads back the same, NaN and infinities as null, the fingerprint as 16 hex
/// digits in quotes.
std::string to_json(StepMetrics const& metrics);

/// The loss in the last whole line of a metrics file, NaN if there is none.
double last_loss(std::filesystem::path const& path);

/// metrics.jsonl (lib/train/line_file.h says what happens when it cannot be written).
class MetricsFile {
 public:
  MetricsFile(std::filesystem::path path, std::function<void(std::string const& message)> warn)
      : file_("metrics file", std::move(path), std::move(warn)) {}

  void append(StepMetrics const& metrics);

 private:
  LineFile file_;
};

}  // namespace isotrain
