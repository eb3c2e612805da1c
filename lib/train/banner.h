#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/comm/session.h"
#include "lib/device/cpu.h"
#include "lib/tensor/parameters.h"
#include "lib/train/rank_plan.h"
#include "lib/train/train_plan.h"

namespace isotrain {

/// What a run consists of, a few lines: processes, model, corpus, batch, envelope. Ends with a newline.
std::string banner(TrainPlan const& plan, Cpu const& at, MpiSession const& session, ParameterTable const& table);

/// What one rank holds and does.
struct RankRow {
  std::int64_t first_lane = 0, end_lane = 0;
  std::int64_t held_parameters = 0;   // that it computes with
  std::int64_t owned_parameters = 0;  // that it updates
  std::int64_t memory_bytes = 0;
};
/// Of all ranks, by rank. Collective.
std::vector<RankRow> gather_rows(RankPlan const& rank, std::int64_t memory_bytes);

/// Who is where and owns what, one line a rank (of many ranks the first and last ones); the layers of each run of the
/// pipeline and how long its ranks wait for each other if all goes as the model's FLOPs say.
std::string layout_table(RankPlan const& rank, std::vector<RankRow> const& rows, std::vector<std::string> const& hosts);

}  // namespace isotrain
