#pragma once

#include <cstdint>
#include <span>

#include "lib/base/bfloat16.h"
#include "lib/device/cpu.h"

namespace isotrain::kernels {

/// Sum of squares in fp64: 16 partial sums by index mod 16, then a fixed tree. For one block of a parameter.
double sum_of_squares(std::span<float const> x);
/// sums[b] = sum_of_squares of block b of x, blocks of `block` elements (the last may be shorter).
void block_sums_of_squares(Cpu const& at, std::span<double> sums, std::span<float const> x, std::int64_t block);

/// y += x, elementwise in fp32: one node of a tree of partial sums, y the left operand.
void add(Cpu const& at, std::span<float> y, std::span<float const> x);
/// y = round(a + b).
template <class T>
void add(Cpu const& at, std::span<T> y, std::span<T const> a, std::span<T const> b);
void scale(Cpu const& at, std::span<float> y, float factor);
void fill_zero(Cpu const& at, std::span<float> y);

/// Index of the first element that is NaN or infinite, or -1.
std::int64_t first_non_finite(Cpu const& at, std::span<float const> x);

/// bf16 <-> fp32, rounding to nearest even.
void convert(Cpu const& at, std::span<bfloat16> y, std::span<float const> x);
void convert(Cpu const& at, std::span<float> y, std::span<bfloat16 const> x);
/// Plain copy, so that code templated on T reads the same.
void convert(Cpu const& at, std::span<float> y, std::span<float const> x);

/// Position-keyed, order-free 64-bit hash: the sum modulo 2^64 over elements of mix(first_position + i, bits of x[i]).
/// Hashes of disjoint ranges add up to the hash of the union, so it does not depend on how a tensor is sharded.
std::uint64_t hash(Cpu const& at, std::span<float const> x, std::uint64_t first_position);

}  // namespace isotrain::kernels
