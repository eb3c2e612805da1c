#pragma once

#include <vector>

#include "lib/parallel/schedule.h"

namespace isotrain {

/// The forwards and backwards of one stage in the order of its schedule, without messages; make_schedule adds those.
/// May hold micro-batches from M on, where the order is that of a larger number: they are to be left out.
std::vector<ScheduleItem> compute_order(ScheduleSpec const& spec, int stage);

}  // namespace isotrain
