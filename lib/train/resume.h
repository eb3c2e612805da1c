#pragma once

#include <filesystem>
#include <optional>

#include "lib/base/log.h"
#include "lib/comm/communicator.h"
#include "lib/io/checkpoint.h"
#include "lib/tensor/parameters.h"
#include "lib/train/run_folder.h"
#include "lib/train/train_plan.h"

namespace isotrain {

/// The checkpoint that `resume` (auto, none or a path) means, the same on all ranks; nothing for a new run. Collective;
/// newer checkpoints that cannot be used are warned about. `auto` takes the newest one, or, after that turned out to be
/// damaged, the newest of those `older_than` it. Throws AgreedError if a path was given and there is no checkpoint, or
/// if the folder has checkpoints of which none can be used.
std::optional<std::filesystem::path> find_checkpoint(Communicator const& comm, std::string const& resume,
                                                     RunFolder const& folder, Log& log,
                                                     std::optional<std::filesystem::path> const& older_than = {});

/// Throws UsageError naming everything in which the run that wrote the checkpoint was another computation: model,
/// precision, envelope, seed, sequence length, tokenizer. What only changes the future (steps, learning rate, batch)
/// may differ.
void check_same_run(io::CheckpointHeader const& header, TrainPlan const& plan, ParameterTable const& table,
                    std::vector<std::uint8_t> const& tokenizer);

/// The settings of the run that wrote a checkpoint.
TrainSettings settings_of(io::CheckpointHeader const& header);

/// Where the pieces of each parameter lie in the flat space, for a checkpoint.
io::CheckpointIndex checkpoint_index(ParameterTable const& table);

}  // namespace isotrain
