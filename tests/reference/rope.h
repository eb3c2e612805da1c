#pragma once

#include <cmath>
#include <vector>

/// Rotary embedding in double: element pairs of one head turned by an angle each.
namespace isotrain::reference {

/// Rotates x (dim elements) by angle[j] for pair j: elements (2j, 2j+1), or (j, j + dim/2) where `half_split`.
inline std::vector<double> rope(std::vector<double> x, std::vector<double> const& angle, bool half_split) {
  std::size_t const half = x.size() / 2;
  for (std::size_t j = 0; j < half; ++j) {
    double& a = half_split ? x[j] : x[2 * j];
    double& b = half_split ? x[j + half] : x[2 * j + 1];
    double const turned = a * std::cos(angle[j]) - b * std::sin(angle[j]);
    b = a * std::sin(angle[j]) + b * std::cos(angle[j]);
    a = turned;
  }
  return x;
}

}  // namespace isotrain::reference
