#pragma once

#include <cstdint>
#include <span>

#include "lib/base/bfloat16.h"
#include "lib/device/cpu.h"

namespace isotrain::kernels {

/// Sum of squares in fp64: 16 partial sums by index mod 16 from +0, ascending, then a fixed tree (distance 8, 4, 2, 1).
/// For one block of a parameter. Subnormal elements count as 0. Runs in the calling thread.
double sum_of_squares(std::span<float const> x);
/// sums[b] = sum_of_squares of block b of x, blocks of `block` elements (the last may be shorter).
void block_sums_of_squares(Cpu const& at, std::span<double> sums, std::span<float const> x, std::int64_t block);

/// y += x, elementwise in fp32: one node of a tree of partial sums, y the left operand.
void add(Cpu const& at, std::span<float> y, std::span<float const> x);
/// y = round(a + b), the sum in fp32. T is float or bfloat16; y may alias a or b.
template <class T>
void add(Cpu const& at, std::span<T> y, std::span<T const> a, std::span<T const> b);
/// y = round(sum + residual) in fp32; residual may be empty: y = round(sum). T and R are float or bfloat16; y may alias
/// sum or residual.
template <class T, class R>
void add_rounded(Cpu const& at, std::span<T> y, std::span<float const> sum, std::span<R const> residual);
/// y *= factor.
void scale(Cpu const& at, std::span<float> y, float factor);
void fill_zero(Cpu const& at, std::span<float> y);

/// Index of the first element that is NaN or infinite, or -1.
std::int64_t first_non_finite(Cpu const& at, std::span<float const> x);

/// bf16 <-> fp32, rounding to nearest even; bits as to_bfloat16 and to_float give them (nothing is flushed).
void convert(Cpu const& at, std::span<bfloat16> y, std::span<float const> x);
void convert(Cpu const& at, std::span<float> y, std::span<bfloat16 const> x);
/// Plain copy, so that code templated on T reads the same.
void convert(Cpu const& at, std::span<float> y, std::span<float const> x);

/// The two halves of hash_mix: z before the element's bits are added, and what makes the hash of z.
constexpr std::uint64_t hash_base(std::uint64_t position) {
  return (position << 32) + ((position >> 32) + 1) * 0x9e3779b97f4a7c15u;
}
constexpr std::uint64_t hash_finish(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// 64 well mixed bits of a position and the bits of the element there. With the position's upper half p1 and lower half
/// p0:
///   z = (p0 * 2^32 + bits) + (p1 + 1) * 0x9e3779b97f4a7c15
///   z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;  z = (z ^ z >> 27) * 0x94d049bb133111eb;  z ^ z >> 31
/// A bijection of (p0, bits) for each p1: elements of one tensor below 2^32 never collide, and one changed element
/// always changes the hash. The last line is the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
constexpr std::uint64_t hash_mix(std::uint64_t position, std::uint32_t bits) {
  return hash_finish(hash_base(position) + bits);
}

/// Position-keyed, order-free 64-bit hash: the sum modulo 2^64 over elements of hash_mix(first_position + i, bits of
/// x[i]). Hashes of disjoint ranges add up to the hash of the union, so it does not depend on how a tensor is sharded.
/// Elements count by their bits: -0 differs from +0. Not meant against forgery.
std::uint64_t hash(Cpu const& at, std::span<float const> x, std::uint64_t first_position);

}  // namespace isotrain::kernels
