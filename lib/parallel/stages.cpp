#include "lib/parallel/stages.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "lib/base/error.h"

namespace isotrain {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

void check_num_chunks(int num_layers, int num_chunks) {
  expects(num_chunks >= 1, "at least one chunk");
  if (num_chunks <= num_layers) return;
  throw UsageError(
      std::to_string(num_layers) + " layers cannot be cut into " + std::to_string(num_chunks) + " pipeline chunks",
      "each chunk needs a layer", "use at most " + std::to_string(num_layers) + " stages times chunks per stage");
}

/// Costs of runs of layers. Each is a chain over its layers, so that runs of equal layers cost exactly the same.
class RunCosts {
 public:
  RunCosts(std::span<double const> layer_costs, double embedding_cost, double head_cost)
      : num_layers_(static_cast<int>(layer_costs.size())), costs_((num_layers_ + 1) * (num_layers_ + 1)) {
    for (int begin = 0; begin < num_layers_; ++begin) {
      double cost = 0;
      for (int end = begin + 1; end <= num_layers_; ++end) {
        cost += layer_costs[end - 1];
        costs_[begin * (num_layers_ + 1) + end] =
            cost + (begin == 0 ? embedding_cost : 0) + (end == num_layers_ ? head_cost : 0);
      }
    }
  }

  double operator()(int begin, int end) const { return costs_[begin * (num_layers_ + 1) + end]; }

 private:
  int num_layers_;
  std::vector<double> costs_;
};

/// (chunks left + 1, layers + 1): the best value for the layers from the second index on.
using Table = std::vector<std::vector<double>>;

/// The smallest possible largest cost.
double smallest_largest(RunCosts const& cost, int num_layers, int num_chunks) {
  Table best(num_chunks + 1, std::vector<double>(num_layers + 1, infinity));
  best[0][num_layers] = 0;
  for (int left = 1; left <= num_chunks; ++left) {
    for (int begin = 0; begin < num_layers; ++begin) {
      for (int end = begin + 1; end <= num_layers; ++end) {
        best[left][begin] = std::min(best[left][begin], std::max(cost(begin, end), best[left - 1][end]));
      }
    }
  }
  return best[num_chunks][0];
}

/// The largest possible smallest cost of cuts without a cost above `bound`; -infinity where there is no such cut.
Table largest_smallest(RunCosts const& cost, int num_layers, int num_chunks, double bound) {
  Table best(num_chunks + 1, std::vector<double>(num_layers + 1, -infinity));
  best[0][num_layers] = infinity;
  for (int left = 1; left <= num_chunks; ++left) {
    for (int begin = 0; begin < num_layers; ++begin) {
      for (int end = begin + 1; end <= num_layers && cost(begin, end) <= bound; ++end) {
        best[left][begin] = std::max(best[left][begin], std::min(cost(begin, end), best[left - 1][end]));
      }
    }
  }
  return best;
}

}  // namespace

std::vector<IndexRange> assign_layers(std::span<double const> layer_costs, double embedding_cost, double head_cost,
                                      int num_chunks) {
  int const num_layers = static_cast<int>(layer_costs.size());
  check_num_chunks(num_layers, num_chunks);
  auto const is_cost = [](double cost) { return std::isfinite(cost) && cost >= 0; };
  expects(std::all_of(layer_costs.begin(), layer_costs.end(), is_cost) && is_cost(embedding_cost) && is_cost(head_cost),
          "finite costs that are not negative");
  RunCosts const cost(layer_costs, embedding_cost, head_cost);
  double const bound = smallest_largest(cost, num_layers, num_chunks);
  Table const smallest = largest_smallest(cost, num_layers, num_chunks, bound);

  std::vector<IndexRange> ranges;
  int begin = 0;
  for (int left = num_chunks; left > 0; --left) {
    int end = begin + 1;
    while (cost(begin, end) < smallest[num_chunks][0] || smallest[left - 1][end] < smallest[num_chunks][0]) ++end;
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

std::vector<IndexRange> parse_layer_cut(std::string const& text, int num_layers, int num_chunks) {
  check_num_chunks(num_layers, num_chunks);
  std::vector<IndexRange> ranges;
  std::int64_t next_layer = 0;
  for (std::size_t from = 0; from <= text.size();) {
    std::size_t const to = std::min(text.find(',', from), text.size());
    int count = 0;
    auto const [end, error] = std::from_chars(text.data() + from, text.data() + to, count);
    if (error != std::errc{} || end != text.data() + to) {
      throw UsageError("'" + text + "' is not a cut of layers",
                       "'" + text.substr(from, to - from) + "' is not a number of layers",
                       "give the layers of each chunk with commas between, such as 3,3,2");
    }
    if (count < 1) {
      throw UsageError("the cut of layers '" + text + "' leaves a chunk without layers", "each chunk needs a layer",
                       "give " + std::to_string(num_chunks) + " numbers from 1 up");
    }
    ranges.push_back({next_layer, next_layer + count});
    next_layer += count;
    from = to + 1;
  }
  if (static_cast<int>(ranges.size()) != num_chunks) {
    throw UsageError("the cut of layers '" + text + "' has " + std::to_string(ranges.size()) + " chunks",
                     "stages times chunks per stage are " + std::to_string(num_chunks),
                     "give " + std::to_string(num_chunks) + " numbers that add up to " + std::to_string(num_layers));
  }
  if (next_layer != num_layers) {
    throw UsageError("the cut of layers '" + text + "' has " + std::to_string(next_layer) + " layers",
                     "the model has " + std::to_string(num_layers),
                     "give " + std::to_string(num_chunks) + " numbers that add up to " + std::to_string(num_layers));
  }
  return ranges;
}

}  // namespace isotrain
