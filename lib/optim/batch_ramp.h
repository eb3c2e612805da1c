#pragma once

#include <cstdint>

namespace isotrain {

/// How many sequences each step takes: a ramp from `start` to `full`, linear in consumed tokens, then constant.
///
/// A step that `n` tokens precede takes
///     full                                                            if n >= ramp_tokens
///     start + (full - start) n / ramp_tokens, rounded down to a multiple of `multiple`, otherwise
/// in integers, so that every machine agrees. DeepSeek-V2 ramps 2304 -> 9216 over 225e9 tokens, V3 3072 -> 15360 over
/// 469e9 (arXiv:2405.04434, arXiv:2412.19437); neither says by what shape.
class BatchRamp {
 public:
  struct Settings {
    std::int64_t start = 0;        // sequences of the first step; 0: no ramp
    std::int64_t full = 1;         // sequences of a step after the ramp
    std::int64_t ramp_tokens = 0;  // length of the ramp
    std::int64_t multiple = 1;     // what every batch is a multiple of: what lanes and micro-batches need
    std::int64_t sequence = 1;     // tokens of a sequence
  };

  /// Throws UsageError if a size is not positive, `start` is above `full`, either is no multiple of `multiple` (naming
  /// the nearest that would do), or only one of `start` and `ramp_tokens` is given.
  explicit BatchRamp(Settings const& settings);

  /// Sequences of a step that `tokens_before` tokens precede.
  std::int64_t sequences(std::int64_t tokens_before) const;
  /// Tokens of the first `steps` steps together. Takes as many iterations as the ramp has steps.
  std::int64_t tokens_after(std::int64_t steps) const;

 private:
  Settings settings_;
};

}  // namespace isotrain
