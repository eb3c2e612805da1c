#pragma once

#include <vector>

#include "tests/reference/router.h"

/// Balancing losses of DeepSeek-V2 (arXiv:2405.04434, 2.2.3) and V3's sequence-wise one (arXiv:2412.19437, 2.1.2) in
/// double, one sequence of T tokens, as functions of the scores (T, E).
namespace isotrain::reference {

struct Balance {
  int experts, top_k;
  bool v3;
  double expert_alpha, device_alpha, comm_alpha;
  int devices, max_devices;

  /// Which tokens count for an expert, and which are sent to a device: constants for the gradient.
  struct Counts {
    Doubles of_expert, of_device;
  };
  Counts count(Doubles const& score, std::vector<int> const& chosen) const {
    Counts c{Doubles(experts), Doubles(devices)};
    for (std::size_t t = 0; t < score.size() / experts; ++t) {
      std::vector<int> ids(chosen.begin() + t * top_k, chosen.begin() + (t + 1) * top_k);
      std::vector<int> sent(devices);
      for (int const e : ids) sent[e / (experts / devices)] = 1;
      for (int g = 0; g < devices; ++g) c.of_device[g] += sent[g];
      if (v3) ids = Router::best({score.begin() + t * experts, score.begin() + (t + 1) * experts}, top_k);
      for (int const e : ids) c.of_expert[e] += 1;
    }
    return c;
  }

  double loss(Doubles const& score, Counts const& counts) const {
    double const tokens = static_cast<double>(score.size()) / experts;
    Doubles p(experts);
    for (std::size_t t = 0; t < score.size() / experts; ++t) {
      double sum = 0;
      for (int e = 0; e < experts; ++e) sum += score[t * experts + e];
      for (int e = 0; e < experts; ++e) p[e] += score[t * experts + e] / (v3 ? sum : 1) / tokens;
    }
    double total = 0;
    int const size = experts / devices;
    for (int g = 0; g < devices; ++g) {
      double mean_f = 0, sum_p = 0;
      for (int e = g * size; e < (g + 1) * size; ++e) {
        double const f = experts / (top_k * tokens) * counts.of_expert[e];
        total += expert_alpha * f * p[e];
        mean_f += f / size;
        sum_p += p[e];
      }
      total += device_alpha * mean_f * sum_p;
      total += comm_alpha * devices / (max_devices * tokens) * counts.of_device[g] * sum_p;
    }
    return total;
  }
};

}  // namespace isotrain::reference
