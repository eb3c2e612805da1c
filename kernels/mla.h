#pragma once

#include "lib/base/matrix.h"
#include "lib/device/cpu.h"

/// Key assembly of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).
namespace isotrain::kernels {

/// k[t,h] = [nope[t,h] ; shared[t]]: every head gets the one rotated rope key of its token.
///   k (N,H,dn+dr) T out; nope (N,H,dn) T; shared (N,dr) T, rows contiguous. T is float or bfloat16.
template <class T>
void mla_assemble_keys(Cpu const& at, Heads<T> k, Heads<T const> nope, Matrix<T const> shared);

/// The reverse: dnope[t,h] = dk[t,h,:dn]; dshared[t] = sum over heads of dk[t,h,dn:], heads cut into `slices` runs of
/// H/slices (slices divides H): a chain of fp32 adds from +0 in each, Tree over the runs, rounded once to T.
template <class T>
void mla_split_key_gradients(Cpu const& at, Heads<T> dnope, Matrix<T> dshared, Heads<T const> dk, int slices);

/// The same over the heads of one rank, `slices` of them slices, and not rounded: dshared_partial (N,dr) fp32 is a
/// subtree of the tree over all slices if they are an aligned power of two.
template <class T>
void mla_split_key_gradients_partial(Cpu const& at, Heads<T> dnope, Matrix<float> dshared_partial, Heads<T const> dk,
                                     int slices);

}  // namespace isotrain::kernels
