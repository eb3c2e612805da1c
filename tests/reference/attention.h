#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

/// Causal softmax attention of one head in double: q, k (T, dq), v, o (T, dv), row-major.
namespace isotrain::reference {

struct AttentionSizes {
  std::int64_t T, dq, dv;
  double scale;
};

using Numbers = std::vector<double>;

/// p (T, T): softmax of scale * q k^T over the keys up to the query.
inline Numbers attention_probabilities(Numbers const& q, Numbers const& k, AttentionSizes n) {
  Numbers p(n.T * n.T, 0.0);
  for (std::int64_t t = 0; t < n.T; ++t) {
    double maximum = -INFINITY, sum = 0;
    for (std::int64_t s = 0; s <= t; ++s) {
      double& z = p[t * n.T + s];
      for (std::int64_t i = 0; i < n.dq; ++i) z += q[t * n.dq + i] * k[s * n.dq + i];
      z *= n.scale;
      maximum = std::max(maximum, z);
    }
    for (std::int64_t s = 0; s <= t; ++s) sum += p[t * n.T + s] = std::exp(p[t * n.T + s] - maximum);
    for (std::int64_t s = 0; s <= t; ++s) p[t * n.T + s] /= sum;
  }
  return p;
}

inline Numbers attention_forward(Numbers const& q, Numbers const& k, Numbers const& v, AttentionSizes n) {
  Numbers const p = attention_probabilities(q, k, n);
  Numbers o(n.T * n.dv, 0.0);
  for (std::int64_t t = 0; t < n.T; ++t) {
    for (std::int64_t s = 0; s <= t; ++s) {
      for (std::int64_t j = 0; j < n.dv; ++j) o[t * n.dv + j] += p[t * n.T + s] * v[s * n.dv + j];
    }
  }
  return o;
}

/// log of the sum over keys of exp(scale * q k^T), one for each query.
inline Numbers attention_lse(Numbers const& q, Numbers const& k, AttentionSizes n) {
  Numbers const p = attention_probabilities(q, k, n);
  Numbers lse(n.T);
  for (std::int64_t t = 0; t < n.T; ++t) {
    // p = exp(z - lse), taken at the key where p is largest: others may be 0.
    std::int64_t const best = std::max_element(&p[t * n.T], &p[t * n.T] + t + 1) - &p[t * n.T];
    double z = 0;
    for (std::int64_t i = 0; i < n.dq; ++i) z += q[t * n.dq + i] * k[best * n.dq + i];
    lse[t] = n.scale * z - std::log(p[t * n.T + best]);
  }
  return lse;
}

struct AttentionGradients {
  Numbers dq, dk, dv;
};

/// Gradients of <go, o>.
inline AttentionGradients attention_backward(Numbers const& go, Numbers const& q, Numbers const& k, Numbers const& v,
                                             AttentionSizes n) {
  Numbers const p = attention_probabilities(q, k, n);
  AttentionGradients g{Numbers(n.T * n.dq, 0.0), Numbers(n.T * n.dq, 0.0), Numbers(n.T * n.dv, 0.0)};
  for (std::int64_t t = 0; t < n.T; ++t) {
    Numbers dp(t + 1, 0.0);
    double mean = 0;
    for (std::int64_t s = 0; s <= t; ++s) {
      for (std::int64_t j = 0; j < n.dv; ++j) {
        dp[s] += go[t * n.dv + j] * v[s * n.dv + j];
        g.dv[s * n.dv + j] += p[t * n.T + s] * go[t * n.dv + j];
      }
      mean += p[t * n.T + s] * dp[s];
    }
    for (std::int64_t s = 0; s <= t; ++s) {
      double const dz = n.scale * p[t * n.T + s] * (dp[s] - mean);
      for (std::int64_t i = 0; i < n.dq; ++i) {
        g.dq[t * n.dq + i] += dz * k[s * n.dq + i];
        g.dk[s * n.dq + i] += dz * q[t * n.dq + i];
      }
    }
  }
  return g;
}

}  // namespace isotrain::reference
