#pragma once

#include "lib/parallel/stages.h"
#include "lib/train/rank_plan.h"
#include "tests/lib/model/tiny.h"

namespace isotrain::test {

/// What a run of a tiny model in the given layout is, without corpus and files.
inline TrainPlan tiny_plan(Json const& json, Degrees const& degrees,
                           ScheduleKind schedule = ScheduleKind::one_f_one_b) {
  RunPlan const run{.steps = 1, .tokens = 64, .warmup_steps = 0, .warmup_tokens = 0};
  TrainPlan plan{.settings = {},
                 .config_json = {},
                 .config = tiny_config(json),
                 .corpus = {},
                 .model = {},
                 .batches = BatchRamp({.start = 0, .full = 8, .ramp_tokens = 0, .multiple = 4, .sequence = 8}),
                 .run = run,
                 .learning_rate = LearningRate({}, run),
                 .degrees = degrees,
                 .schedule = schedule,
                 .virtual_stages = schedule == ScheduleKind::dualpipe_v ? 2 : 1,
                 .chunks = {}};
  plan.settings.repro.lanes = 4;
  plan.settings.repro.slices = 2;
  plan.settings.train.global_batch = 8;
  plan.settings.train.sequence = 8;
  plan.model = tiny_options(plan.config, 8, 1);
  plan.model.slices = 2;
  std::vector<double> const costs(static_cast<std::size_t>(plan.config.num_layers), 1.0);
  plan.chunks = assign_layers(costs, 0, 0, degrees.pipeline * plan.virtual_stages);
  return plan;
}

}  // namespace isotrain::test
