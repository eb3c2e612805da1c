#pragma once

#include <cmath>
#include <vector>

/// Cross-entropy in double: loss = log(sum(exp(logits))) - logits[target], rows of V logits.
namespace isotrain::reference {

inline double log_sum_exp(std::vector<double> const& logits, std::size_t row, std::size_t vocabulary) {
  double sum = 0;
  for (std::size_t v = 0; v < vocabulary; ++v) sum += std::exp(logits[row * vocabulary + v]);
  return std::log(sum);
}

/// The gradient of scale * (sum of losses); rows whose target is negative are left out.
inline std::vector<double> cross_entropy_backward(std::vector<double> const& logits, std::vector<int> const& target,
                                                  std::size_t vocabulary, double scale) {
  std::vector<double> d(logits.size());
  for (std::size_t row = 0; row < target.size(); ++row) {
    if (target[row] < 0) continue;
    double const total = log_sum_exp(logits, row, vocabulary);
    for (std::size_t v = 0; v < vocabulary; ++v) {
      double const is_target = static_cast<int>(v) == target[row];
      d[row * vocabulary + v] = scale * (std::exp(logits[row * vocabulary + v] - total) - is_target);
    }
  }
  return d;
}

inline std::vector<double> cross_entropy(std::vector<double> const& logits, std::vector<int> const& target,
                                         std::size_t vocabulary) {
  std::vector<double> loss(target.size());
  for (std::size_t row = 0; row < target.size(); ++row) {
    if (target[row] < 0) continue;
    loss[row] = log_sum_exp(logits, row, vocabulary) - logits[row * vocabulary + static_cast<std::size_t>(target[row])];
  }
  return loss;
}

}  // namespace isotrain::reference
