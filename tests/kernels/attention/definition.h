#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/cpu/math-inl.h"
#include "tests/kernels/attention/support.h"

/// The text at the top of kernels/cpu/attention_forward.cpp as plain loops: what the bits have to be.
namespace isotrain::kernels::test {

enum class Sum { chain, tiles, pairs };
using Row = std::vector<float>;
using Element = std::function<float(std::int64_t k)>;

/// c + sum over k < n of a(k) b(k), as kernels/matmul.h defines it.
inline float product(Sum sum, float c, std::int64_t n, Element const& a, Element const& b) {
  if (sum == Sum::chain) {
    for (std::int64_t k = 0; k < n; ++k) c = std::fma(a(k), b(k), c);
  } else if (sum == Sum::pairs) {
    for (std::int64_t k = 0; k < n; k += 2) {
      if (k + 1 < n) c = std::fma(a(k + 1), b(k + 1), c);
      c = std::fma(a(k), b(k), c);
    }
  } else {
    for (std::int64_t block = 0; block < n; block += 32) {
      float chain[2] = {0, 0};
      for (std::int64_t k = block; k < std::min(n, block + 32); ++k) chain[k % 2] = std::fma(a(k), b(k), chain[k % 2]);
      c = c + (chain[0] + chain[1]);
    }
  }
  return c;
}

/// 16 partial sums, then the tree.
inline float row_sum(std::int64_t n, std::function<float(std::int64_t i, float partial)> const& add) {
  float partial[16] = {};
  for (std::int64_t i = 0; i < n; ++i) partial[i % 16] = add(i, partial[i % 16]);
  for (int distance = 8; distance > 0; distance /= 2) {
    for (int i = 0; i < distance; ++i) partial[i] += partial[i + distance];
  }
  return partial[0];
}

template <class T>
float through(float x) {
  return to_float(from_float<T>(x));
}

/// Fills o, lse, dq, dk, dv of `x`.
template <class T>
void define(Attention<T>& x, Sum sum) {
  FlushToZero const mode;
  using namespace HWY_NAMESPACE;
  Case const c = x.c;
  float const scale = x.shape.scale;
  std::int64_t const group = c.H / c.G;
  for (std::int64_t b = 0; b < c.B; ++b) {
    for (std::int64_t g = 0; g < c.G; ++g) {
      Row dk(c.T * c.dq, 0.0F), dv(c.T * c.dv, 0.0F);
      for (std::int64_t h = g * group; h < (g + 1) * group; ++h) {
        auto const q = [&](std::int64_t t, std::int64_t i) { return to_float(x.q.at(b * c.T + t, h, i)); };
        auto const k = [&](std::int64_t s, std::int64_t i) { return to_float(x.k.at(b * c.T + s, g, i)); };
        auto const v = [&](std::int64_t s, std::int64_t j) { return to_float(x.v.at(b * c.T + s, g, j)); };
        auto const go = [&](std::int64_t t, std::int64_t j) { return to_float(x.go.at(b * c.T + t, h, j)); };
        std::vector<Row> p(c.T, Row(c.T, 0.0F)), ds(c.T, Row(c.T, 0.0F));
        for (std::int64_t t = 0; t < c.T; ++t) {
          Row z(t + 1), e(t + 1);
          for (std::int64_t s = 0; s <= t; ++s) {
            z[s] = scale * product(sum, 0, c.dq, std::bind_front(q, t), std::bind_front(k, s));
          }
          float const m = *std::max_element(z.begin(), z.end());
          for (std::int64_t s = 0; s <= t; ++s) e[s] = exponential(z[s] - m);
          float const l = row_sum(t + 1, [&](std::int64_t s, float partial) { return partial + e[s]; });
          float const lse = x.lse[(b * c.H + h) * c.T + t] = m + logarithm(l);
          for (std::int64_t j = 0; j < c.dv; ++j) {
            float const o = product(
                sum, 0, t + 1, [&](std::int64_t s) { return through<T>(e[s]); },
                [&](std::int64_t s) { return v(s, j); });
            x.o.at(b * c.T + t, h, j) = from_float<T>(o * (1.0F / l) + 0.0F);
          }
          float const d = row_sum(c.dv, [&](std::int64_t j, float partial) {
            return std::fma(go(t, j), to_float(x.o.at(b * c.T + t, h, j)), partial);
          });
          for (std::int64_t s = 0; s <= t; ++s) {
            float const weight = exponential(z[s] - lse);
            float const dp = product(sum, 0, c.dv, std::bind_front(go, t), std::bind_front(v, s));
            p[t][s] = through<T>(weight);
            ds[t][s] = through<T>(weight * (dp - d));
          }
          for (std::int64_t i = 0; i < c.dq; ++i) {
            float const dq = product(
                sum, 0, t + 1, [&](std::int64_t s) { return ds[t][s]; }, [&](std::int64_t s) { return k(s, i); });
            x.dq.at(b * c.T + t, h, i) = from_float<T>(scale * dq + 0.0F);
          }
        }
        for (std::int64_t s = 0; s < c.T; ++s) {
          for (std::int64_t i = 0; i < c.dq; ++i) {
            float& sum_of_heads = dk[s * c.dq + i];
            sum_of_heads = product(
                sum, sum_of_heads, c.T, [&](std::int64_t t) { return ds[t][s]; },
                [&](std::int64_t t) { return q(t, i); });
            x.dk.at(b * c.T + s, g, i) = from_float<T>(scale * sum_of_heads + 0.0F);
          }
          for (std::int64_t j = 0; j < c.dv; ++j) {
            float& sum_of_heads = dv[s * c.dv + j];
            sum_of_heads = product(
                sum, sum_of_heads, c.T, [&](std::int64_t t) { return p[t][s]; },
                [&](std::int64_t t) { return go(t, j); });
            x.dv.at(b * c.T + s, g, j) = from_float<T>(sum_of_heads + 0.0F);
          }
        }
      }
    }
  }
}

}  // namespace isotrain::kernels::test
