#pragma once

#include <span>

#include "lib/parallel/schedule.h"

namespace isotrain {

/// How many micro-batches of `chunk` are alive at once on the stage that has these items: from when the chunk's input
/// comes to the stage (its receive, the forward of the chunk below on the same stage, or else its own forward) until
/// its weight gradient is done. The executor plans that many sets of activations, and micro-batch m uses set
/// m % num_slots: inputs come and weight gradients go in ascending order, so those alive at once are consecutive.
/// Requires a chunk of that stage.
int num_slots(std::span<ScheduleItem const> items, int chunk);

/// The same for the gradient of the chunk's output, which lives from when it comes (its receive, the backward of the
/// chunk above on the same stage, or else its own backward) until the weight gradient is done. Never more than
/// num_slots; micro-batch m may use buffer m % num_gradient_slots.
int num_gradient_slots(std::span<ScheduleItem const> items, int chunk);

}  // namespace isotrain
