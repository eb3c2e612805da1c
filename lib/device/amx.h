#pragma once

namespace isotrain {

/// True if this process may use the AMX tiles with bf16 products: the processor has them and Linux, asked once, allows
/// it.
bool amx_granted();
/// True if kernels are to use them now: granted, and no lower instruction set is forced.
bool amx_usable();

}  // namespace isotrain
