#include "lib/parallel/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "lib/base/error.h"

namespace isotrain::test {
namespace {

std::vector<std::int64_t> sizes(std::vector<IndexRange> const& ranges) {
  std::vector<std::int64_t> result;
  for (IndexRange const& range : ranges) result.push_back(range.size());
  return result;
}

std::vector<std::int64_t> assigned(int num_layers, double embedding, double head, int num_chunks, double layer = 1) {
  return sizes(assign_layers(std::vector<double>(num_layers, layer), embedding, head, num_chunks));
}

std::string message_of_error(std::function<void()> const& act) {
  try {
    act();
  } catch (UsageError const& error) {
    return error.what();
  }
  return "no UsageError";
}

/// Costs of the chunks of a cut.
std::vector<double> chunk_costs(std::vector<IndexRange> const& ranges, std::vector<double> const& layers,
                                double embedding, double head) {
  std::vector<double> costs;
  for (IndexRange const& range : ranges) {
    double cost = 0;
    for (auto i = range.begin; i < range.end; ++i) cost += layers[i];
    costs.push_back(cost);
  }
  costs.front() += embedding;
  costs.back() += head;
  return costs;
}

/// Calls `visit` with every cut of layers [begin, end) into `chunks` that are not empty.
void for_all_cuts(std::vector<IndexRange>& ranges, std::int64_t begin, std::int64_t end, int chunks,
                  std::function<void()> const& visit) {
  if (chunks == 1) {
    ranges.push_back({begin, end});
    visit();
    ranges.pop_back();
    return;
  }
  for (std::int64_t next = begin + 1; next <= end - (chunks - 1); ++next) {
    ranges.push_back({begin, next});
    for_all_cuts(ranges, next, end, chunks - 1, visit);
    ranges.pop_back();
  }
}

TEST(AssignLayers, EqualLayersDifferByOneAndEarlierChunksHaveFewer) {
  EXPECT_EQ(assigned(27, 0, 0, 4), (std::vector<std::int64_t>{6, 7, 7, 7}));
  EXPECT_EQ(assigned(61, 0, 0, 8), (std::vector<std::int64_t>{7, 7, 7, 8, 8, 8, 8, 8}));
  EXPECT_EQ(assigned(60, 0, 0, 16), (std::vector<std::int64_t>{3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(assigned(3, 0, 0, 3), (std::vector<std::int64_t>{1, 1, 1}));
  EXPECT_EQ(assigned(3, 5, 5, 1), (std::vector<std::int64_t>{3}));
  // Costs that are not whole numbers round the same way wherever they lie.
  EXPECT_EQ(assigned(61, 0, 0, 8, 0.1), assigned(61, 0, 0, 8));
}

TEST(AssignLayers, EmbeddingAndHeadTakeThePlaceOfLayers) {
  EXPECT_EQ(assigned(27, 1, 2, 4), (std::vector<std::int64_t>{6, 7, 8, 6}));
  EXPECT_EQ(assigned(12, 0, 3, 3), (std::vector<std::int64_t>{5, 5, 2}));
  EXPECT_EQ(assigned(12, 0, 100, 3), (std::vector<std::int64_t>{5, 6, 1}));
}

TEST(AssignLayers, IsTheBestOfAllCuts) {
  std::mt19937 random(11);
  std::uniform_int_distribution<int> some(0, 9);
  for (int repeat = 0; repeat < 300; ++repeat) {
    int const num_layers = 1 + repeat % 10;
    int const num_chunks = 1 + repeat / 10 % std::min(num_layers, 5);
    std::vector<double> layers;
    for (int i = 0; i < num_layers; ++i) layers.push_back(some(random));
    double const embedding = some(random);
    double const head = some(random);
    double best_largest = std::numeric_limits<double>::infinity();
    double best_smallest = 0;
    std::vector<IndexRange> ranges;
    for_all_cuts(ranges, 0, num_layers, num_chunks, [&] {
      auto const costs = chunk_costs(ranges, layers, embedding, head);
      double const largest = *std::max_element(costs.begin(), costs.end());
      double const smallest = *std::min_element(costs.begin(), costs.end());
      if (largest < best_largest) best_smallest = 0;
      if (largest <= best_largest) best_smallest = std::max(best_smallest, smallest);
      best_largest = std::min(best_largest, largest);
    });
    auto const costs = chunk_costs(assign_layers(layers, embedding, head, num_chunks), layers, embedding, head);
    EXPECT_EQ(*std::max_element(costs.begin(), costs.end()), best_largest);
    EXPECT_EQ(*std::min_element(costs.begin(), costs.end()), best_smallest);
  }
}

TEST(AssignLayers, CoversAllLayersOfLargeModels) {
  for (int num_layers : {27, 60, 61, 126, 300}) {
    for (int num_chunks : {2, 3, 4, 5, 7, 8, 12, 15, 16, 27}) {
      auto const ranges = assign_layers(std::vector<double>(num_layers, 1.5), 0.5, 4, num_chunks);
      ASSERT_EQ(ranges.size(), std::size_t(num_chunks));
      std::int64_t next = 0;
      for (IndexRange const& range : ranges) {
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), 1);
        next = range.end;
      }
      EXPECT_EQ(next, num_layers);
    }
  }
}

TEST(AssignLayers, MoreChunksThanLayersIsAUsageError) {
  std::string const message =
      "3 layers cannot be cut into 4 pipeline chunks (each chunk needs a layer); use at most 3 stages times chunks per "
      "stage";
  EXPECT_EQ(message_of_error([] { assigned(3, 0, 0, 4); }), message);
  EXPECT_EQ(message_of_error([] { parse_layer_cut("1,1,1,0", 3, 4); }), message);
}

TEST(AssignLayers, WantsCostsThatCanBeCompared) {
  EXPECT_THROW(assigned(3, 0, 0, 0), std::logic_error);
  EXPECT_THROW(assigned(3, -1, 0, 2), std::logic_error);
  EXPECT_THROW(assigned(3, 0, std::numeric_limits<double>::quiet_NaN(), 2), std::logic_error);
  EXPECT_THROW(assigned(3, 0, 0, 2, std::numeric_limits<double>::infinity()), std::logic_error);
}

TEST(ParseLayerCut, IsCountsOfLayers) {
  EXPECT_EQ(parse_layer_cut("3,3,2", 8, 3), (std::vector<IndexRange>{{0, 3}, {3, 6}, {6, 8}}));
  EXPECT_EQ(parse_layer_cut("61", 61, 1), (std::vector<IndexRange>{{0, 61}}));
}

TEST(ParseLayerCut, SaysWhatIsWrong) {
  auto const error_of = [](std::string const& text) { return message_of_error([&] { parse_layer_cut(text, 8, 3); }); };
  std::string const hint = "); give the layers of each chunk with commas between, such as 3,3,2";
  EXPECT_EQ(error_of("3,x,2"), "'3,x,2' is not a cut of layers ('x' is not a number of layers" + hint);
  EXPECT_EQ(error_of("3,3,2 "), "'3,3,2 ' is not a cut of layers ('2 ' is not a number of layers" + hint);
  EXPECT_EQ(error_of("3,5,"), "'3,5,' is not a cut of layers ('' is not a number of layers" + hint);
  EXPECT_EQ(error_of(""), "'' is not a cut of layers ('' is not a number of layers" + hint);
  EXPECT_EQ(error_of("3,99999999999,2"),
            "'3,99999999999,2' is not a cut of layers ('99999999999' is not a number of layers" + hint);
  EXPECT_EQ(error_of("8,0,0"),
            "the cut of layers '8,0,0' leaves a chunk without layers (each chunk needs a layer); give 3 numbers from 1 "
            "up");
  EXPECT_EQ(
      error_of("8,1,-1"),
      "the cut of layers '8,1,-1' leaves a chunk without layers (each chunk needs a layer); give 3 numbers from 1 "
      "up");
  EXPECT_EQ(error_of("4,4"),
            "the cut of layers '4,4' has 2 chunks (stages times chunks per stage are 3); give 3 numbers that add up to "
            "8");
  EXPECT_EQ(error_of("3,3,3"),
            "the cut of layers '3,3,3' has 9 layers (the model has 8); give 3 numbers that add up to 8");
}

}  // namespace
}  // namespace isotrain::test
