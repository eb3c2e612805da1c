#include "lib/model/decoder-inl.h"

#include "lib/device/cpu.h"

namespace isotrain {

template class Decoder<Cpu, float>;
template class Decoder<Cpu, bfloat16>;

}  // namespace isotrain
