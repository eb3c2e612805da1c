#pragma once

#include "lib/comm/communicator.h"
#include "lib/device/cpu.h"

namespace isotrain {

/// What the matrix kernel reaches on all ranks together, FLOP/s: the yardstick of the MFU that is shown. All ranks
/// measure at once, since they share hosts; takes about a tenth of a second. Collective. T is float or bfloat16.
template <class T>
double measured_kernel_rate(Cpu const& at, Communicator const& comm);

}  // namespace isotrain
