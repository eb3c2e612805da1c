#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

/// The gates of DeepSeek-V2 (softmax) and V3 (sigmoid) in double, one token.
namespace isotrain::reference {

using Doubles = std::vector<double>;

struct Router {
  int top_k;
  int num_groups = 1;
  int top_groups = 1;
  bool v3 = true;  // sigmoid, bias, groups by their best two; else softmax, groups by their best
  bool normalize = true;
  double scaling = 1;

  Doubles scores(Doubles const& logits) const {
    Doubles s;
    double sum = 0;
    for (double const l : logits) sum += std::exp(l);
    for (double const l : logits) s.push_back(v3 ? 1 / (1 + std::exp(-l)) : std::exp(l) / sum);
    return s;
  }

  static std::vector<int> best(Doubles const& x, int count) {
    std::vector<int> ids(x.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return x[a] > x[b]; });
    ids.resize(count);
    return ids;
  }

  std::vector<int> choose(Doubles choice) const {
    std::size_t const size = choice.size() / num_groups;
    Doubles group_scores;
    for (int g = 0; g < num_groups; ++g) {
      Doubles group(choice.begin() + g * size, choice.begin() + (g + 1) * size);
      std::sort(group.rbegin(), group.rend());
      group_scores.push_back(v3 && size > 1 ? group[0] + group[1] : group[0]);
    }
    auto const kept = best(group_scores, top_groups);
    for (std::size_t e = 0; e < choice.size(); ++e) {
      bool const in_kept = std::find(kept.begin(), kept.end(), static_cast<int>(e / size)) != kept.end();
      if (!in_kept) choice[e] = -std::numeric_limits<double>::infinity();
    }
    return best(choice, top_k);
  }

  /// V3 always scales; V2 where it does not normalise, which it does only for more than one expert.
  bool normalizes() const { return normalize && (v3 || top_k > 1); }
  double factor() const { return !v3 && normalizes() ? 1 : scaling; }

  Doubles weights(Doubles const& logits, std::vector<int> const& chosen) const {
    auto const s = scores(logits);
    double sum = 1e-20;
    for (int const e : chosen) sum += s[e];
    Doubles w;
    for (int const e : chosen) w.push_back(factor() * s[e] / (normalizes() ? sum : 1));
    return w;
  }

  /// Gradient of <dweight, weights> + <dscore, scores>.
  Doubles backward(Doubles const& dweight, Doubles dscore, Doubles const& logits,
                   std::vector<int> const& chosen) const {
    auto const s = scores(logits);
    double sum = 0, along = 0;
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      sum += s[chosen[k]];
      along += dweight[k] * s[chosen[k]];
    }
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      dscore[chosen[k]] += factor() * (normalizes() ? (dweight[k] - along / sum) / sum : dweight[k]);
    }
    double mean = 0;
    for (std::size_t e = 0; e < s.size(); ++e) mean += s[e] * dscore[e];
    Doubles d;
    for (std::size_t e = 0; e < s.size(); ++e)
      d.push_back(v3 ? dscore[e] * s[e] * (1 - s[e]) : s[e] * (dscore[e] - mean));
    return d;
  }
};

}  // namespace isotrain::reference
