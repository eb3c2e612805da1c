#include "tests/app/layout.h"

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

namespace isotrain::test {
namespace {

using Pair = std::tuple<std::size_t, std::string, std::size_t, std::string>;

std::vector<Pair> pairs_of(Layout const& layout) {
  auto const factors = layout.factors();
  std::vector<Pair> pairs;
  for (std::size_t a = 0; a < factors.size(); ++a) {
    for (std::size_t b = a + 1; b < factors.size(); ++b) pairs.emplace_back(a, factors[a], b, factors[b]);
  }
  return pairs;
}

}  // namespace

std::vector<std::string> precision_arguments(std::string const& precision) {
  if (precision == "fp32") return {"--model.precision", "fp32"};
  return {"--model.precision", "bf16", "--repro.bf16", precision};
}

std::vector<std::string> Layout::arguments() const {
  std::vector<std::string> result{"--tp",
                                  std::to_string(tensor),
                                  "--pp",
                                  std::to_string(pipeline),
                                  "--dp",
                                  std::to_string(data),
                                  "--ep",
                                  std::to_string(expert),
                                  "--parallel.schedule",
                                  schedule,
                                  "--train.micro_batch",
                                  std::to_string(micro_batch),
                                  "--model.recompute",
                                  recompute};
  auto const more = precision_arguments(precision);
  result.insert(result.end(), more.begin(), more.end());
  return result;
}

std::string Layout::name() const {
  return model + " " + precision + ": tp " + std::to_string(tensor) + ", pp " + std::to_string(pipeline) + ", dp " +
         std::to_string(data) + ", ep " + std::to_string(expert) + ", " + schedule + ", micro-batch " +
         std::to_string(micro_batch) + ", recompute " + recompute;
}

std::vector<std::string> Layout::factors() const {
  return {model,
          precision,
          std::to_string(tensor),
          std::to_string(pipeline),
          std::to_string(data),
          std::to_string(expert),
          schedule,
          std::to_string(micro_batch),
          recompute};
}

std::vector<Layout> all_layouts(std::string const& model, bool has_experts, int max_ranks) {
  std::vector<Layout> degrees;
  for (int const tensor : {1, 2, 4}) {
    for (int const pipeline : {1, 2, 3, 4}) {
      for (int const data : {1, 2, 3, 4}) {
        for (int const expert : {1, 2, 4}) {
          Layout const layout{.model = model, .tensor = tensor, .pipeline = pipeline, .data = data, .expert = expert};
          bool const shared_out = expert == 1 || (has_experts && data % expert == 0);
          if (layout.ranks() <= max_ranks && shared_out) degrees.push_back(layout);
        }
      }
    }
  }
  std::vector<Layout> layouts;
  for (Layout layout : degrees) {
    for (char const* const precision : {"fp32", "tiles", "pairs"}) {
      for (char const* const schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "dualpipev"}) {
        for (int const micro_batch : {1, 2, 4}) {
          for (char const* const recompute : {"none", "selective", "full"}) {
            layout.precision = precision;
            layout.schedule = schedule;
            layout.micro_batch = micro_batch;
            layout.recompute = recompute;
            layouts.push_back(layout);
          }
        }
      }
    }
  }
  return layouts;
}

std::vector<Layout> covering_pairs(std::vector<Layout> const& layouts) {
  std::vector<std::vector<Pair>> pairs;
  std::set<Pair> open;
  for (auto const& layout : layouts) {
    pairs.push_back(pairs_of(layout));
    open.insert(pairs.back().begin(), pairs.back().end());
  }
  std::vector<Layout> chosen;
  while (!open.empty()) {
    std::size_t best = 0;
    std::ptrdiff_t most = 0;
    // Not always from the first on, so that factors whose pairs are done go on changing.
    std::size_t const first = chosen.size() * 997;
    for (std::size_t n = 0; n < layouts.size(); ++n) {
      std::size_t const i = (first + n) % layouts.size();
      auto const covered = std::ranges::count_if(pairs[i], [&](Pair const& pair) { return open.contains(pair); });
      if (covered > most) {
        most = covered;
        best = i;
      }
    }
    for (auto const& pair : pairs[best]) open.erase(pair);
    chosen.push_back(layouts[best]);
  }
  return chosen;
}

std::vector<Layout> sample(std::vector<Layout> layouts, std::size_t count, unsigned seed) {
  std::minstd_rand random(seed);
  for (std::size_t i = layouts.size(); i > 1; --i) std::swap(layouts[i - 1], layouts[random() % i]);
  layouts.resize(std::min(count, layouts.size()));
  return layouts;
}

}  // namespace isotrain::test
