#pragma once

#include <string>

#include "lib/comm/session.h"
#include "lib/train/settings.h"

namespace isotrain {

/// What a run that was asked to stop ends with, after its checkpoint is written.
inline constexpr int exit_stopped_early = 75;

/// A whole run of `train`: plans, checks, resumes or begins, trains, writes checkpoints and metrics. `settings_ini` are
/// the settings as resolved. Collective. Returns 0 when all steps are done (or for a dry run), exit_stopped_early after
/// a signal or when the time is up. Throws AgreedError for what all ranks agreed upon.
int run_training(TrainSettings const& settings, std::string const& settings_ini, MpiSession const& session);

}  // namespace isotrain
