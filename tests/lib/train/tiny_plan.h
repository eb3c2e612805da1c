#pragma once

#include <vector>

#include "lib/parallel/stages.h"
#include "lib/train/rank_plan.h"
#include "tests/lib/model/tiny.h"

namespace isotrain::test {

/// What follows from settings as far as a RankPlan reads it; without corpus and files.
inline TrainPlan tiny_plan(ModelConfig const& config, Degrees const& degrees,
                           ScheduleKind schedule = ScheduleKind::one_f_one_b, int slices = 4) {
  TrainSettings settings;
  settings.repro.slices = slices;
  int const virtual_stages = schedule == ScheduleKind::dualpipe_v || schedule == ScheduleKind::interleaved ? 2 : 1;
  std::vector<double> const costs(static_cast<std::size_t>(config.num_layers), 1.0);
  auto options = tiny_options(config, 16, 1);
  options.slices = slices;
  BatchRamp const batches(
      {.start = 0, .full = settings.train.global_batch, .ramp_tokens = 0, .multiple = 8, .sequence = 16});
  RunPlan const run = plan_run(settings.train.steps, batches, settings.optim.warmup);
  return {.settings = settings,
          .config_json = "",
          .config = config,
          .corpus = {},
          .model = options,
          .batches = batches,
          .run = run,
          .learning_rate = LearningRate({.schedule = "constant",
                                         .peak = 1,
                                         .floor = 0,
                                         .step_first = 0.5,
                                         .step_second = 0.6,
                                         .step_factor = 0.5,
                                         .decay_fraction = 0.1,
                                         .decay_shape = "linear"},
                                        run),
          .degrees = degrees,
          .schedule = schedule,
          .virtual_stages = virtual_stages,
          .chunks = assign_layers(costs, 1, 1, degrees.pipeline * virtual_stages)};
}

}  // namespace isotrain::test
