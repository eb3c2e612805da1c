#pragma once

#include <cstdint>
#include <span>

namespace isotrain {

/// Where a micro-batch adds the gradients of the parameters of a shard, by region. Sums that every rank of a
/// tensor-parallel group has a part of, because it has a part of the tokens, are kept apart for each of its token
/// slices; experts' gradients for each data-parallel rank (and so lane) that sends tokens.
struct Gradients {
  std::span<float> sliced;                       // region `sliced`
  std::span<std::span<float> const> experts;     // region `experts`, for each source
  std::span<float> tied;                         // (V of this rank,d) of the embedding's input side, if it is tied
  std::span<std::span<float> const> replicated;  // regions `replicated` and `fp32` together, for each own token slice
};

}  // namespace isotrain
