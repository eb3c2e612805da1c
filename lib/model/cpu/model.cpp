#include "lib/device/cpu.h"
#include "lib/model/model-inl.h"

namespace isotrain {

template class Model<Cpu, float>;
template class Model<Cpu, bfloat16>;

}  // namespace isotrain
