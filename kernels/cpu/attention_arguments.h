#pragma once

#include <cstdint>

#include "lib/base/matrix.h"

/// What the entry points of attention hand to the code of an instruction set.
namespace isotrain::kernels {

template <class T>
struct AttentionForward {
  Heads<T> o;
  float* lse;  // (samples, heads, sequence), or null: not wanted
  Heads<T const> q, k, v;
  std::int64_t sequence;  // keys of a sample
  std::int64_t queries;   // of a sample: all tokens, or the last one
  float scale;
};

template <class T>
struct AttentionBackward {
  Heads<T> dq, dk, dv;
  Heads<T const> d_o, o;
  float const* lse;  // (samples, heads, sequence)
  Heads<T const> q, k, v;
  std::int64_t sequence;
  float scale;
};

}  // namespace isotrain::kernels
