#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/model/config.h"
#include "lib/tensor/parameters.h"

namespace isotrain {

/// Every parameter under its Hugging Face name, routed experts one by one. Matrices are Segment::matrix; norm gains
/// (initially one) and router gates are Segment::fp32. Norm gains do not decay. With tied embeddings there is no
/// lm_head.
std::vector<Parameter> model_parameters(ModelConfig const& config);

/// Writes the initial values of `range` of the flat space to `flat` (range.size() elements), gaps between parameters as
/// zeros: ones, or normal numbers times `stddev` that depend on (seed, name, element) only, so that any cut of the
/// space gives the same weights.
void initialize(ParameterTable const& table, std::span<float> flat, FlatRange range, std::uint64_t seed, double stddev);

}  // namespace isotrain
