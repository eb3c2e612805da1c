#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lib/data/text_source.h"

namespace isotrain::data {

/// Draws about `budget_bytes` of a source's text, line by line, each with the same chance, keyed by (seed, number of
/// the line); all of it if it is no more than that. The same source and seed give the same sample.
class TextSampler {
 public:
  /// `source` is at its start and outlives this.
  TextSampler(TextSource& source, std::uint64_t seed, std::int64_t budget_bytes);

  /// The next part of the sample, nothing at the end.
  std::optional<std::string> operator()();

 private:
  TextSource& source_;
  std::uint64_t seed_;
  double chance_;
  std::uint64_t num_lines_ = 0;
};

}  // namespace isotrain::data
