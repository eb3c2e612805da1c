#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "lib/train/ledger.h"

/// Finds the first step, and in it the first tensor, in which two runs differ.
namespace isotrain {

enum class Side { forward, backward, update };

/// "forward"
char const* name_of(Side side);

struct TensorDifference {
  std::int64_t step = 0;
  Side side = Side::forward;
  std::string what;  // "activation of layer 2", "gradient of layers.2.mlp.up_proj.weight"
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  int others = 0;  // that differ on this side of this step, too

  bool operator==(TensorDifference const&) const = default;
};

/// In the order of cause: activations with ascending layers; their gradients with descending ones, then gradients of
/// weights, the last parameter first; weights. Both steps have the sizes of `header`.
std::optional<TensorDifference> first_difference(LedgerHeader const& header, LedgerStep const& first,
                                                 LedgerStep const& second);

/// The steps that were in both.
struct StepRange {
  std::int64_t count = 0;
  std::int64_t begin = 0;  // the first and
  std::int64_t end = 0;    // the last one, inclusive

  void add(std::int64_t step);
};

struct LedgerComparison {
  bool same_model = true;  // the names of layers and parameters; nothing is compared where they differ
  StepRange compared;      // up to the first that differs
  std::optional<TensorDifference> difference;
};

/// Throws Error if one of them is no ledger.
LedgerComparison compare_ledgers(std::filesystem::path const& first, std::filesystem::path const& second);

struct MetricsDifference {
  std::int64_t step = 0;
  std::string first_loss, second_loss;  // as written
  std::string first_fingerprint, second_fingerprint;

  bool operator==(MetricsDifference const&) const = default;
};

struct MetricsComparison {
  StepRange compared;            // up to the first that differs
  std::int64_t first_last = 0;   // last step of the first run; 0: none
  std::int64_t second_last = 0;  // and of the second
  std::optional<MetricsDifference> difference;
};

/// Compares loss and fingerprint of metrics.jsonl files. What is no whole line of a step is passed over; a file that is
/// not there has no steps.
MetricsComparison compare_metrics(std::filesystem::path const& first, std::filesystem::path const& second);

}  // namespace isotrain
