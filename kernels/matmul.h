#pragma once

#include <cstdint>
#include <span>

#include "kernels/accumulate.h"
#include "lib/base/bfloat16.h"
#include "lib/base/matrix.h"
#include "lib/device/cpu.h"

namespace isotrain::kernels {

/// What products keep for each thread between calls, about; more only for K beyond 65 000. In no BufferPlan.
inline constexpr std::int64_t workspace_bytes_per_thread = std::int64_t{14} << 20;

/// How the sum along K is cut. Part of the numerics contract: an element of C depends on its row of A, its column of
/// B, C_in and these numbers, and on nothing else (not on M, N, strides, alignment, threads or instruction set).
struct MatmulSum {
  /// K is cut into `slices` runs of ceil(K / slices) (the last ones shorter or empty); each is summed from zero, then
  /// Tree over the runs, empty ones skipped. 1: no cut. Needs Accumulate::no if > 1.
  int slices = 1;
  /// Every `leaf` steps along K the blocks of 32 (tiles) and the pairs restart, as if the call had been cut there.
  /// 0: never. Without meaning in fp32.
  std::int64_t leaf = 0;
};

/// C (M,N) = round([C_in +] sum_k A (M,K) * B (K,N) [+ residual (M,N)])
///
/// T is float or bfloat16; the sum is fp32:
///   float     one chain of fused multiply-adds over ascending k, starting from C_in or +0
///   bfloat16  the place's class, tiles or pairs (docs/numerics.md); subnormals flushed to zero
/// Out is float or (T bfloat16, Accumulate::no) bfloat16: rounded once, to nearest even, after everything is added.
/// `residual`, if given, is added in fp32 after the sum. It may alias C. Not together with Accumulate::yes.
/// Any strides, so every transposition is a call with A.transposed(). K = 0 gives C_in or +0.
/// C must not overlap A or B.
template <class T, class Out>
void matmul(Cpu const& at, Matrix<Out> c, Matrix<T const> a, Matrix<T const> b, Accumulate accumulate = Accumulate::no,
            MatmulSum sum = {}, Matrix<Out const> residual = {});

/// A (M,K) and B (K,N); K may be 0.
template <class T>
struct Product {
  Matrix<T const> a;
  Matrix<T const> b;
};

/// C (M,N) = round(sum [+ residual (M,N)]), the sum along K given in pieces that may lie anywhere: `slices` equal runs
/// of products, run s being products[s * per_slice], .... A run is one sum through all its products in their order,
/// from +0; in bf16 blocks and pairs restart at each product. Then Tree over the runs; those without steps are skipped,
/// and the others keep their places in the tree. All else as in matmul, which gives the same bits with
/// MatmulSum{slices} where the products are the slices of one A and one B.
template <class T, class Out>
void matmul_sliced(Cpu const& at, Matrix<Out> c, std::span<Product<T> const> products, int slices,
                   Matrix<Out const> residual = {});

/// One product per group (expert), rows of group g being [offsets[g], offsets[g + 1]) of A and C:
///   C_g (m_g, N) = A_g (m_g, K) * W_g^T, W_g (N,K) row-major and dense at weights[g].
/// Groups may be empty. Each C_g equals the single matmul call, bit for bit. offsets has groups + 1 entries.
template <class T, class Out>
void grouped_matmul(Cpu const& at, Matrix<Out> c, Matrix<T const> a, std::span<T const* const> weights,
                    std::span<std::int64_t const> offsets);

/// The input gradient of grouped_matmul: dA_g (m_g, K) = dC_g (m_g, N) * W_g, W_g (N,K).
template <class T, class Out>
void grouped_matmul_input(Cpu const& at, Matrix<Out> da, Matrix<T const> dc, std::span<T const* const> weights,
                          std::span<std::int64_t const> offsets);

/// The weight gradient of grouped_matmul, accumulated: dW_g (N,K) fp32 += dC_g^T * A_g. Each group consists of
/// `segments` runs of rows (one per sample; none on a rank without tokens): run s of group g is [offsets[g * segments +
/// s], offsets[g * segments + s + 1]); blocks and pairs restart at each run. offsets has groups * segments + 1 entries.
/// A group without rows is not touched.
template <class T>
void grouped_matmul_weight(Cpu const& at, std::span<float* const> dw, Matrix<T const> dc, Matrix<T const> a,
                           std::span<std::int64_t const> offsets, int segments);

}  // namespace isotrain::kernels
