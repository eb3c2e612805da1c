#pragma once

#include <cmath>

/// AdamW (Loshchilov and Hutter, arXiv:1711.05101, algorithm 2) of one weight, in double.
namespace isotrain::reference {

struct Adamw {
  double beta1, beta2, epsilon, weight_decay;
  double w, m = 0, v = 0;

  void step(int t, double learning_rate, double g) {
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    double const m_hat = m / (1 - std::pow(beta1, t));
    double const v_hat = v / (1 - std::pow(beta2, t));
    w -= learning_rate * (m_hat / (std::sqrt(v_hat) + epsilon) + weight_decay * w);
  }
};

}  // namespace isotrain::reference
