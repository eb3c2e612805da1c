#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/comm/session.h"
#include "lib/device/cpu.h"
#include "lib/tensor/parameters.h"
#include "lib/train/train_plan.h"

namespace isotrain {

/// What a run consists of, a few lines: processes, model, corpus, batch, envelope. Ends with a newline.
std::string banner(TrainPlan const& plan, Cpu const& at, MpiSession const& session, ParameterTable const& table);

/// Who owns what, one line a rank (of many ranks the first and last ones): lanes, samples, part of the optimizer state,
/// memory.
std::string layout_table(TrainPlan const& plan, ParameterTable const& table,
                         std::vector<std::int64_t> const& memory_bytes);

}  // namespace isotrain
