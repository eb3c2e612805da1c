#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/matmul.h"

/// The matrix product, element by element. Letters as in kernels/matmul.h. The exact forms are to be called in the
/// contract's floating-point mode (FlushToZero).
namespace isotrain::test {

enum class SumKind { chain, tiles, pairs };

/// One uncut sum over [begin, end) of K from `c`: the definitions in section "Matrix products on the CPU" of
/// docs/numerics.md.
template <class A, class B>
float uncut_sum(SumKind kind, A const& a, B const& b, std::int64_t begin, std::int64_t end, float c) {
  auto const left = [&](std::int64_t k) { return k < end ? a(k) : 0.0F; };
  auto const right = [&](std::int64_t k) { return k < end ? b(k) : 0.0F; };
  if (kind == SumKind::chain) {
    for (std::int64_t k = begin; k < end; ++k) c = std::fma(a(k), b(k), c);
  } else if (kind == SumKind::pairs) {
    for (std::int64_t k = begin; k < end; k += 2) {
      c = std::fma(left(k + 1), right(k + 1), c);
      c = std::fma(left(k), right(k), c);
    }
  } else {
    for (std::int64_t block = begin; block < end; block += 32) {
      float even = 0;
      float odd = 0;
      for (std::int64_t k = block; k < block + 32; k += 2) {
        even = std::fma(left(k), right(k), even);
        odd = std::fma(left(k + 1), right(k + 1), odd);
      }
      c = c + (even + odd);
    }
  }
  return c;
}

/// Tree over [first, first + width): width a power of two, missing leaves skipped, lower index left.
inline std::optional<float> tree(std::vector<float> const& leaves, std::size_t first, std::size_t width) {
  if (first >= leaves.size()) return std::nullopt;
  if (width == 1) return leaves[first];
  auto const left = tree(leaves, first, width / 2);
  auto const right = tree(leaves, first + width / 2, width / 2);
  return right ? *left + *right : *left;
}

/// One element of C before the residual.
template <class A, class B>
float element_of_product(SumKind kind, A const& a, B const& b, std::int64_t k, float c_in,
                         kernels::MatmulSum sum = {}) {
  if (k == 0) return c_in;
  std::int64_t const run = (k + sum.slices - 1) / sum.slices;
  std::vector<float> partial;
  for (std::int64_t begin = 0; begin < k; begin += run) {
    std::int64_t const end = std::min(k, begin + run);
    std::int64_t const leaf = sum.leaf > 0 ? sum.leaf : end - begin;
    float c = sum.slices == 1 ? c_in : 0.0F;
    for (std::int64_t at = begin; at < end; at += leaf) c = uncut_sum(kind, a, b, at, std::min(end, at + leaf), c);
    partial.push_back(c);
  }
  std::size_t width = 1;
  while (width < partial.size()) width *= 2;
  return *tree(partial, 0, width);
}

/// In double, with the sum of magnitudes that an error bound needs.
struct DoubleSum {
  double value = 0;
  double magnitude = 0;
};
template <class A, class B>
DoubleSum double_sum(A const& a, B const& b, std::int64_t k) {
  DoubleSum sum;
  for (std::int64_t i = 0; i < k; ++i) {
    double const product = double{a(i)} * double{b(i)};
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

}  // namespace isotrain::test
