#pragma once

#include <cmath>
#include <vector>

/// Gated SiLU unit in double: y = gate / (1 + exp(-gate)) * up.
namespace isotrain::reference {

using Doubles = std::vector<double>;

inline Doubles swiglu(Doubles const& gate, Doubles const& up) {
  Doubles y(gate.size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  return y;
}

struct SwigluGradient {
  Doubles gate;
  Doubles up;
};

inline SwigluGradient swiglu_backward(Doubles const& dy, Doubles const& gate, Doubles const& up) {
  SwigluGradient d{Doubles(dy.size()), Doubles(dy.size())};
  for (std::size_t i = 0; i < dy.size(); ++i) {
    double const s = 1 / (1 + std::exp(-gate[i]));
    d.up[i] = dy[i] * gate[i] * s;
    d.gate[i] = dy[i] * up[i] * (s + gate[i] * s * (1 - s));
  }
  return d;
}

}  // namespace isotrain::reference
