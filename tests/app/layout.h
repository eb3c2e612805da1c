#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

/// Layouts of small runs, for the tests that all of them give the same bits.
namespace isotrain::test {

/// How a run of one of TinyWorld's models is laid out, and with what precision.
struct Layout {
  std::string model = "deep-moe";
  std::string precision = "fp32";  // or "tiles" or "pairs", the two bf16 classes
  int tensor = 1;
  int pipeline = 1;
  int data = 1;
  int expert = 1;
  std::string schedule = "1f1b";
  int micro_batch = 4;
  std::string recompute = "none";

  int ranks() const { return tensor * pipeline * data; }
  /// Settings of `train`, without the model's.
  std::vector<std::string> arguments() const;
  /// "moe tiles: tp 2, pp 2, dp 1, ep 1, dualpipev, micro-batch 1, recompute full"
  std::string name() const;
  /// The values of its factors, in an order of their own.
  std::vector<std::string> factors() const;
};

/// Settings of a precision of Layout.
std::vector<std::string> precision_arguments(std::string const& precision);

/// TinyWorld's models that are deep enough for all_layouts, and whether they have experts.
inline std::vector<std::pair<std::string, bool>> const test_models{
    {"deep-moe", true}, {"deep-llama", false}, {"tied", false}, {"v2-lite", true}};

/// All layouts of `model` that fit `max_ranks` ranks: tp {1,2,4}, pp {1,2,3,4}, dp {1,2,3,4}, ep {1,2,4}, the five
/// schedules, micro-batches of {1,2,4} samples, fp32 and both bf16 classes, the three kinds of recomputation. Requires
/// a model of at least 8 layers, the most that 2 chunks on each of 4 stages need.
std::vector<Layout> all_layouts(std::string const& model, bool has_experts, int max_ranks = 8);

/// Few of `layouts`, in which every two values of two different factors that occur together in `layouts` still do. The
/// same every time.
std::vector<Layout> covering_pairs(std::vector<Layout> const& layouts);

/// `count` of them, drawn without repetition by `seed`; all if there are fewer.
std::vector<Layout> sample(std::vector<Layout> layouts, std::size_t count, unsigned seed);

}  // namespace isotrain::test
