#include "lib/comm/degrees.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "lib/base/error.h"

namespace isotrain {
namespace {

std::string text(std::int64_t number) {
  return std::to_string(number);
}

std::string divisors_of_both(std::int64_t a, std::int64_t b) {
  std::string list;
  std::int64_t const common = std::gcd(a, b);
  for (std::int64_t d = 1; d <= common; ++d) {
    if (common % d == 0) list += (list.empty() ? "" : ", ") + text(d);
  }
  return list;
}

bool experts_fit(Degrees const& d, DegreeLimits const& limits) {
  if (limits.experts == 0) return d.expert == 1;
  return d.data % d.expert == 0 && limits.experts % d.expert == 0 &&
         std::int64_t{d.expert} * d.tensor <= limits.experts;
}

bool fits(Degrees const& d, DegreeLimits const& limits) {
  return limits.slices % d.tensor == 0 && d.data <= limits.lanes &&
         d.pipeline * limits.virtual_stages <= limits.layers && experts_fit(d, limits);
}

/// All layouts of `ranks` ranks that can be run, each with the largest expert degree up to the one asked for.
std::vector<Degrees> layouts(int ranks, int expert, DegreeLimits const& limits) {
  std::vector<Degrees> found;
  for (int tensor = 1; tensor <= std::min<std::int64_t>(ranks, limits.slices); ++tensor) {
    if (ranks % tensor != 0) continue;
    for (int pipeline = 1; pipeline <= std::min<std::int64_t>(ranks / tensor, limits.layers); ++pipeline) {
      if (ranks / tensor % pipeline != 0) continue;
      Degrees d{.tensor = tensor, .pipeline = pipeline, .data = ranks / tensor / pipeline, .expert = 1};
      for (d.expert = std::min(expert, d.data); d.expert > 1 && !experts_fit(d, limits);) --d.expert;
      if (fits(d, limits)) found.push_back(d);
    }
  }
  return found;
}

/// Factors between what was asked and what is offered, multiplied, as a logarithm.
double distance(Degrees const& asked, Degrees const& offered) {
  auto const factor = [](int a, int b) { return std::abs(std::log2(static_cast<double>(a) / b)); };
  return factor(asked.tensor, offered.tensor) + factor(asked.pipeline, offered.pipeline) +
         factor(asked.expert, offered.expert) + (asked.data == 0 ? 0 : factor(asked.data, offered.data));
}

std::string describe(Degrees const& d) {
  return text(d.tensor) + " x " + text(d.pipeline) + " x " + text(d.data) +
         (d.expert > 1 ? " with expert " + text(d.expert) : "");
}

/// The way out: layouts of that many ranks, the nearest first, or the most ranks that have one.
std::string nearest_layouts(Degrees const& asked, int ranks, DegreeLimits const& limits) {
  constexpr std::size_t most_shown = 4;
  auto found = layouts(ranks, asked.expert, limits);
  if (found.empty()) {
    int fewer = ranks;
    while (fewer > 1 && layouts(fewer, 1, limits).empty()) --fewer;
    return "no layout of " + text(ranks) + " ranks fits this model and envelope, start at most " + text(fewer);
  }
  std::ranges::stable_sort(found, {}, [&](Degrees const& d) { return distance(asked, d); });
  std::string list;
  for (std::size_t i = 0; i < std::min(found.size(), most_shown); ++i) list += (i > 0 ? ", " : "") + describe(found[i]);
  return "these (tensor x pipeline x data) would do: " + list;
}

/// Up to `ranks`, else anything above.
std::int64_t product(Degrees const& d, int ranks) {
  std::int64_t all = 1;
  for (int const degree : {d.tensor, d.pipeline, std::max(d.data, 1)}) {
    all *= degree;
    if (all > ranks) break;
  }
  return all;
}

void check_product(Degrees const& asked, int ranks, DegreeLimits const& limits) {
  std::int64_t const all = product(asked, ranks);
  if (asked.data == 0 ? ranks % all == 0 : all == ranks) return;
  std::string problem = "--parallel.tensor " + text(asked.tensor) + " --parallel.pipeline " + text(asked.pipeline);
  if (asked.data != 0) problem += " --parallel.data " + text(asked.data);
  throw UsageError(problem + " cannot be run on " + text(ranks) + (ranks == 1 ? " rank" : " ranks"),
                   asked.data == 0 ? "their product does not divide the number of ranks"
                                   : "their product is not the number of ranks",
                   nearest_layouts(asked, ranks, limits));
}

void check_experts(Degrees const& d, DegreeLimits const& limits) {
  std::string const given = "--parallel.expert " + text(d.expert);
  if (limits.experts == 0) {
    if (d.expert == 1) return;
    throw UsageError(given + " cannot be used", "the model has no experts", "leave it at 1");
  }
  if (d.data % d.expert != 0) {
    throw UsageError(given + " does not divide the " + text(d.data) + " data-parallel ranks",
                     "experts are shared out among data-parallel ranks",
                     "use one of " + divisors_of_both(d.data, limits.experts));
  }
  if (limits.experts % d.expert != 0) {
    throw UsageError(given + " does not divide the " + text(limits.experts) + " experts of a layer",
                     "each expert-parallel part holds the same number",
                     "use one of " + divisors_of_both(d.data, limits.experts));
  }
  std::int64_t const sharing = std::int64_t{d.expert} * d.tensor;
  if (sharing > limits.experts) {
    throw UsageError("--parallel.tensor " + text(d.tensor) + " with " + given + " shares " + text(limits.experts) +
                         " experts out among " + text(sharing) + " ranks",
                     "each needs one", "lower one of the two");
  }
}

}  // namespace

MeshCoordinates coordinates(Degrees const& degrees, WorldRank rank) {
  expects(0 <= rank.value && rank.value < degrees.ranks(), "a rank of the mesh");
  int const data = rank.value / degrees.tensor % degrees.data;
  return {.tensor = rank.value % degrees.tensor,
          .pipeline = rank.value / degrees.tensor / degrees.data,
          .data = data,
          .expert = data % degrees.expert,
          .expert_data = data / degrees.expert};
}

WorldRank world_rank(Degrees const& degrees, MeshCoordinates const& at) {
  WorldRank const rank{(at.pipeline * degrees.data + at.data) * degrees.tensor + at.tensor};
  bool const inside = 0 <= rank.value && rank.value < degrees.ranks();
  expects(inside && coordinates(degrees, rank) == at, "coordinates inside the mesh that fit together");
  return rank;
}

Degrees resolve_degrees(Degrees const& asked, int ranks, DegreeLimits const& limits) {
  expects(asked.tensor >= 1 && asked.pipeline >= 1 && asked.data >= 0 && asked.expert >= 1 && ranks >= 1,
          "degrees and ranks of at least 1");
  check_product(asked, ranks, limits);
  Degrees degrees = asked;
  degrees.data = ranks / asked.tensor / asked.pipeline;
  if (limits.slices % degrees.tensor != 0) {
    throw UsageError(
        "--parallel.tensor " + text(degrees.tensor) + " does not divide the " + text(limits.slices) + " slices",
        "each tensor-parallel rank owns the same number",
        "use one of " + divisors_of_both(limits.slices, ranks) +
            ", or another --repro.slices, which changes the results");
  }
  if (degrees.pipeline * limits.virtual_stages > limits.layers) {
    std::string const of_each =
        limits.virtual_stages > 1 ? " of " + text(limits.virtual_stages) + " virtual stages each" : "";
    throw UsageError("--parallel.pipeline " + text(degrees.pipeline) + " is too much for the model",
                     text(limits.layers) + " layers cannot fill " + text(degrees.pipeline) + " stages" + of_each,
                     nearest_layouts(asked, ranks, limits));
  }
  if (degrees.data > limits.lanes) {
    throw UsageError(text(degrees.data) + " data-parallel ranks cannot share " + text(limits.lanes) + " lanes",
                     "a rank owns at least one lane",
                     nearest_layouts(asked, ranks, limits) + "; or raise --repro.lanes, which changes the results");
  }
  check_experts(degrees, limits);
  return degrees;
}

}  // namespace isotrain
