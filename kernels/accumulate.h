#pragma once

namespace isotrain::kernels {

/// Whether an output is overwritten or added to.
enum class Accumulate { no, yes };

}  // namespace isotrain::kernels
