#pragma once

#include <cstdint>
#include <span>

#include "lib/base/matrix.h"
#include "lib/device/cpu.h"

/// Causal softmax attention without the score matrix (Dao et al., arXiv:2205.14135 and 2307.08691).
/// Letters: B samples, T positions of each (rows are sample-major: row = sample * T + position), H query heads, G
/// key/value heads (G divides H; query head h uses key head h / (H/G)), dq width of queries and keys, dv width of
/// values. Per (sample, head); key blocks in ascending order from position 0, never split over keys; bits depend on
/// neither B nor threads nor on the strides.
namespace isotrain::kernels {

struct AttentionShape {
  std::int64_t samples = 1;   // B
  std::int64_t sequence = 0;  // T
  float scale = 1;            // multiplies q . k
};

/// o = softmax(scale * q k^T + causal mask) v
///   o (B*T, H, dv) T out;  lse (B, H, T) fp32 out: log of the sum of exponentials, for the backward pass
///   q (B*T, H, dq), k (B*T, G, dq), v (B*T, G, dv) T
template <class T>
void attention_forward(Cpu const& at, Heads<T> o, std::span<float> lse, Heads<T const> q, Heads<T const> k,
                       Heads<T const> v, AttentionShape shape);

/// Gradients of attention_forward; overwrites dq, dk, dv. With G < H, dk and dv sum over the query heads of a group in
/// ascending order, in fp32, rounded once.
template <class T>
void attention_backward(Cpu const& at, Heads<T> dq, Heads<T> dk, Heads<T> dv, Heads<T const> d_o, Heads<T const> o,
                        std::span<float const> lse, Heads<T const> q, Heads<T const> k, Heads<T const> v,
                        AttentionShape shape);

/// One new token of one sequence against a key/value cache: o (1,H,dv) from q (1,H,dq) and the `k.rows` cached keys and
/// values; the same bits as the last row of attention_forward over the same tokens.
template <class T>
void attention_decode(Cpu const& at, Heads<T> o, Heads<T const> q, Heads<T const> k, Heads<T const> v, float scale);

}  // namespace isotrain::kernels
