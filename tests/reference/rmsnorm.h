#pragma once

#include <cmath>
#include <vector>

/// Root-mean-square normalisation in double: y = gain * x / sqrt(mean(x^2) + epsilon), rows of d elements.
namespace isotrain::reference {

using Doubles = std::vector<double>;

struct Rmsnorm {
  Doubles gain;
  double epsilon;

  std::size_t d() const { return gain.size(); }

  double rstd(Doubles const& x, std::size_t row) const {
    double squares = 0;
    for (std::size_t j = 0; j < d(); ++j) squares += x[row * d() + j] * x[row * d() + j];
    return 1 / std::sqrt(squares / static_cast<double>(d()) + epsilon);
  }

  Doubles forward(Doubles const& x) const {
    Doubles y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = gain[i % d()] * x[i] * rstd(x, i / d());
    return y;
  }

  Doubles backward_input(Doubles const& dy, Doubles const& x) const {
    Doubles dx(x.size());
    for (std::size_t row = 0; row < x.size() / d(); ++row) {
      double const r = rstd(x, row);
      double along = 0;
      for (std::size_t j = 0; j < d(); ++j) along += gain[j] * dy[row * d() + j] * x[row * d() + j];
      for (std::size_t j = 0; j < d(); ++j) {
        std::size_t const i = row * d() + j;
        dx[i] = r * gain[j] * dy[i] - x[i] * r * r * r / static_cast<double>(d()) * along;
      }
    }
    return dx;
  }

  Doubles backward_gain(Doubles const& dy, Doubles const& x) const {
    Doubles dgain(d());
    for (std::size_t i = 0; i < x.size(); ++i) dgain[i % d()] += dy[i] * x[i] * rstd(x, i / d());
    return dgain;
  }
};

}  // namespace isotrain::reference
