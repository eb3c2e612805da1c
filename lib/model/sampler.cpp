#include "lib/model/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/portable_math.h"
#include "lib/base/random.h"

namespace isotrain {

Sampler::Sampler(SamplerOptions options) : options_(options) {
  if (!(options.temperature >= 0) || std::isinf(options.temperature)) {
    throw UsageError("temperature " + std::to_string(options.temperature), "must be 0 or a positive number");
  }
  if (options.top_k < 0) throw UsageError("top-k " + std::to_string(options.top_k), "must be 0 (all tokens) or more");
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    throw UsageError("top-p " + std::to_string(options.top_p), "must be above 0 and at most 1");
  }
}

std::int32_t Sampler::operator()(std::span<float const> logits, std::int64_t position) const {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) {
      throw Error("cannot choose a next token", "the model's output for token " + std::to_string(i) + " is not finite");
    }
  }
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto const likelier = [&](std::int32_t a, std::int32_t b) {
    float const x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  if (options_.temperature == 0) return *std::min_element(order.begin(), order.end(), likelier);

  auto const kept =
      options_.top_k == 0 ? order.size() : std::min(order.size(), static_cast<std::size_t>(options_.top_k));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), likelier);
  order.resize(kept);
  std::vector<double> weight;
  double const highest = static_cast<double>(logits[static_cast<std::size_t>(order.front())]);
  for (auto const token : order) {
    double const logit = static_cast<double>(logits[static_cast<std::size_t>(token)]);
    weight.push_back(portable::exp((logit - highest) / options_.temperature));
  }
  double const total = std::accumulate(weight.begin(), weight.end(), 0.0);
  double nucleus = 0;
  std::size_t count = 0;
  while (count < kept && (count == 0 || nucleus < options_.top_p * total)) nucleus += weight[count++];

  double left = Random(options_.seed, "next token").uniform_double(static_cast<std::uint64_t>(position)) * nucleus;
  for (std::size_t i = 0; i < count; ++i) {
    if (left < weight[i]) return order[i];
    left -= weight[i];
  }
  return order[count - 1];
}

}  // namespace isotrain
