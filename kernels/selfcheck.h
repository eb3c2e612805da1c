#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "lib/base/bfloat16.h"
#include "lib/base/matrix.h"
#include "lib/device/cpu.h"

/// The start-up check: do the kernels, on this processor and as built, give the bits that they are defined to give?
namespace isotrain::kernels {

enum class ProductInput { fp32, bf16 };

/// One product that a model will use: C (M, n) fp32 = A (M, k) B (k, n), for any M.
struct ProductShape {
  std::string name;
  std::int64_t n = 0;
  std::int64_t k = 0;
  ProductInput input = ProductInput::fp32;
  MatmulSum sum = {};
};

/// The three products of a linear layer y = x W^T, W (out, in): forward (k = in, cut into `forward_slices`), the
/// input's gradient (k = out, cut into `backward_slices`) and the weights' (k = tokens, restarting every `leaf`).
/// The fingerprint depends on `tokens`: pass a few leaves, not what one layout happens to have in a micro-batch.
std::vector<ProductShape> linear_products(std::string const& name, std::int64_t out, std::int64_t in,
                                          ProductInput input, int forward_slices, int backward_slices,
                                          std::int64_t tokens, std::int64_t leaf);

/// What is checked; a test puts a wrong one in.
template <class T>
using ProductFunction = std::function<void(Cpu const& at, Matrix<float> c, Matrix<T const> a, Matrix<T const> b,
                                           Accumulate accumulate, MatmulSum sum)>;
/// As a model calls it: matmul; matmul_sliced if the sum has slices (and no leaves), those of small A and B in memory
/// of their own.
template <class T>
void product_of_model(Cpu const& at, Matrix<float> c, Matrix<T const> a, Matrix<T const> b, Accumulate accumulate,
                      MatmulSum sum);
struct CheckedProducts {
  ProductFunction<float> fp32 = product_of_model<float>;
  ProductFunction<bfloat16> bf16 = product_of_model<bfloat16>;
};

/// Runs every distinct product of `products` on numbers whose order of summation shows, N(0,1) * 2^U(-8,8): elements
/// against the scalar definition; all bits the same for many M, N, offsets, strides, transpositions, for 1, 2 and all
/// threads, and for K cut into several calls. Then rows of normalisation, activation and attention; and whether every
/// thread flushes subnormals. Takes well under a second for a usual model.
///
/// Returns a 64-bit fingerprint of all results. It is the same wherever the contract holds, for the same list of
/// products and bf16 class; so ranks compare it, and the one that differs is named. Pass the products of the whole
/// model, not of a stage. Throws Error with product, call and first differing element.
std::uint64_t numerics_selfcheck(Cpu const& at, std::span<ProductShape const> products,
                                 CheckedProducts const& checked = {});

}  // namespace isotrain::kernels
