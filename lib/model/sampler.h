#pragma once

#include <cstdint>
#include <span>

namespace isotrain {

struct SamplerOptions {
  double temperature = 1;  // 0: always the likeliest token
  int top_k = 0;           // only the k likeliest; 0: all
  double top_p = 1;        // of those, only the likeliest that together reach this probability
  std::uint64_t seed = 0;
};

/// Draws the next token: nucleus sampling (Holtzman et al., arXiv:1904.09751) among the k likeliest. The draw depends
/// on the logits, the options and the position only. Equal logits: the lower token first.
class Sampler {
 public:
  /// Throws UsageError unless temperature >= 0, top_k >= 0 and 0 < top_p <= 1.
  explicit Sampler(SamplerOptions options);

  /// logits (V). Throws Error if they are not finite.
  std::int32_t operator()(std::span<float const> logits, std::int64_t position) const;

 private:
  SamplerOptions options_;
};

}  // namespace isotrain
