#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/train/line_file.h"

/// ledger.jsonl of a run folder: hashes of what a step computed, the same however it is sharded. The first line is the
/// header, {"format":1,"layers":[names],"parameters":[names]}; then one object a step, {"step":1,"activation":["16 hex
/// digits", ... by layer],"activation_gradient":[by layer],"weight_gradient":[by parameter],"weight":[by
/// parameter],"fingerprint":"16 hex digits"}.
namespace isotrain {

struct LedgerHeader {
  std::vector<std::string> layers;  // "embedding", "layer 0", ..., "head"
  std::vector<std::string> parameters;

  bool operator==(LedgerHeader const&) const = default;
};

struct LedgerStep {
  std::int64_t step = 0;
  std::vector<std::uint64_t> activation;           // what each layer hands on
  std::vector<std::uint64_t> activation_gradient;  // of what each layer hands on
  std::vector<std::uint64_t> weight_gradient;      // of each parameter, summed over the batch
  std::vector<std::uint64_t> weight;               // of each parameter, after the step
  std::uint64_t fingerprint = 0;                   // of all weights, as in metrics.jsonl

  bool operator==(LedgerStep const&) const = default;
};

/// Written by one rank.
class LedgerWriter {
 public:
  /// Begins the file or goes on with it. Throws Error if it cannot be opened or belongs to another model. `warn`: see
  /// lib/train/line_file.h.
  LedgerWriter(std::filesystem::path path, LedgerHeader const& header,
               std::function<void(std::string const& message)> warn);

  /// Requires as many hashes as the header has layers (the first two) and parameters.
  void append(std::int64_t step, std::span<std::uint64_t const> activation,
              std::span<std::uint64_t const> activation_gradient, std::span<std::uint64_t const> weight_gradient,
              std::span<std::uint64_t const> weight, std::uint64_t fingerprint);

 private:
  std::size_t num_layers_;
  std::size_t num_parameters_;
  LineFile file_;
};

/// Removes what a resumed run will write again: steps after `step`, and torn lines. Nothing happens if there is no
/// file.
void cut_ledger(std::filesystem::path const& path, std::int64_t step);

class LedgerReader {
 public:
  /// Throws Error if there is no such file, it is no ledger, or one of a newer format.
  explicit LedgerReader(std::filesystem::path path);

  LedgerHeader const& header() const { return header_; }

  struct Line {
    std::int64_t step = 0;
    std::string text;
  };
  /// The next step as it is written, none after the last; a torn last line does not count. Throws Error for what is no
  /// step.
  std::optional<Line> next();
  /// Throws Error if the line has other fields than it should.
  LedgerStep parse(Line const& line) const;

 private:
  [[noreturn]] void refuse(std::string const& why) const;

  std::filesystem::path path_;
  std::ifstream stream_;
  LedgerHeader header_;
};

}  // namespace isotrain
