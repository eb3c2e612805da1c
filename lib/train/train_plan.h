#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/tree.h"
#include "lib/comm/degrees.h"
#include "lib/data/corpus.h"
#include "lib/device/cpu.h"
#include "lib/model/config.h"
#include "lib/model/options.h"
#include "lib/optim/batch_ramp.h"
#include "lib/optim/schedule.h"
#include "lib/parallel/schedule.h"
#include "lib/train/settings.h"

namespace isotrain {

/// All that follows from the settings before anything is allocated: every contradiction is found here.
struct TrainPlan {
  TrainSettings settings;
  std::string config_json;
  ModelConfig config;
  data::Corpus corpus;
  ModelOptions model;
  BatchRamp batches;
  RunPlan run;
  LearningRate learning_rate;
  Degrees degrees;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int virtual_stages = 1;
  std::vector<IndexRange> chunks;  // layers of each run of the pipeline

  /// Sequences that a lane takes in a step that `tokens_before` tokens precede.
  std::int64_t lane_samples(std::int64_t tokens_before) const {
    return batches.sequences(tokens_before) / settings.repro.lanes;
  }
};

/// Reads the model's config and corpus.json and works everything out for `ranks` ranks. Throws UsageError for settings
/// that are missing, out of range, contradictory or not built yet, Error for files that cannot be read.
TrainPlan make_train_plan(TrainSettings const& settings, int ranks);

/// The place that the settings ask for, with threads chosen from OMP_NUM_THREADS or the cores that each of the
/// `ranks_here` ranks of this host can have. Throws UsageError if there is no such place.
Cpu make_place(TrainSettings const& settings, int ranks_here);

/// "tiles" or "pairs"; "auto", "on" or "off": the settings table lets nothing else pass.
Bf16Class parse_bf16_class(std::string const& name);
Yarn parse_yarn(std::string const& name);

}  // namespace isotrain
