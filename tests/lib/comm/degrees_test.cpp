#include "lib/comm/degrees.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <tuple>

#include "lib/base/error.h"

namespace isotrain::test {
namespace {

/// Of a model and an envelope that let everything through up to 8.
constexpr DegreeLimits roomy{.slices = 8, .lanes = 8, .experts = 16, .layers = 8};

TEST(Degrees, TensorRanksAreNeighboursThenDataThenPipeline) {
  Degrees const degrees{.tensor = 2, .pipeline = 3, .data = 4, .expert = 2};
  EXPECT_EQ(degrees.ranks(), 24);
  EXPECT_EQ(degrees.expert_data(), 2);
  EXPECT_EQ(coordinates(degrees, WorldRank{1}), (MeshCoordinates{.tensor = 1}));
  EXPECT_EQ(coordinates(degrees, WorldRank{2}), (MeshCoordinates{.data = 1, .expert = 1}));
  EXPECT_EQ(coordinates(degrees, WorldRank{4}), (MeshCoordinates{.data = 2, .expert_data = 1}));
  EXPECT_EQ(coordinates(degrees, WorldRank{8}), (MeshCoordinates{.pipeline = 1}));
  EXPECT_EQ(coordinates(degrees, WorldRank{23}),
            (MeshCoordinates{.tensor = 1, .pipeline = 2, .data = 3, .expert = 1, .expert_data = 1}));
}

TEST(Degrees, CoordinatesAreOneToOne) {
  for (Degrees const& degrees :
       {Degrees{}, Degrees{.tensor = 4}, Degrees{.pipeline = 5}, Degrees{.data = 6, .expert = 3},
        Degrees{.tensor = 2, .pipeline = 3, .data = 6, .expert = 2}}) {
    std::set<std::tuple<int, int, int, int>> seen;
    for (int rank = 0; rank < degrees.ranks(); ++rank) {
      auto const at = coordinates(degrees, WorldRank{rank});
      EXPECT_EQ(world_rank(degrees, at), WorldRank{rank});
      EXPECT_EQ(at.data, at.expert_data * degrees.expert + at.expert);
      EXPECT_LT(at.tensor, degrees.tensor);
      EXPECT_LT(at.pipeline, degrees.pipeline);
      EXPECT_LT(at.data, degrees.data);
      EXPECT_LT(at.expert, degrees.expert);
      seen.emplace(at.tensor, at.pipeline, at.expert, at.expert_data);
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(degrees.ranks()));
  }
}

TEST(Degrees, RefuseWhatIsOutside) {
  Degrees const degrees{.tensor = 2, .data = 2, .expert = 2};
  EXPECT_THROW(coordinates(degrees, WorldRank{-1}), std::logic_error);
  EXPECT_THROW(coordinates(degrees, WorldRank{4}), std::logic_error);
  EXPECT_THROW(world_rank(degrees, {.pipeline = 1}), std::logic_error);
  EXPECT_THROW(world_rank(degrees, {.tensor = 2}), std::logic_error);  // would be the next data rank
  EXPECT_THROW(world_rank(degrees, {.data = 1}), std::logic_error);    // whose expert is 1
  EXPECT_NO_THROW(world_rank(degrees, {.data = 1, .expert = 1}));
}

TEST(ResolveDegrees, TakesWhatFits) {
  Degrees const all{.tensor = 2, .pipeline = 2, .data = 2, .expert = 2};
  EXPECT_EQ(resolve_degrees(all, 8, roomy), all);
  EXPECT_EQ(resolve_degrees({.data = 0}, 1, {}), Degrees{});
  EXPECT_EQ(resolve_degrees({.data = 0}, 3, {.lanes = 8}).data, 3);
  // Each limit reached, none passed.
  EXPECT_EQ(resolve_degrees({.tensor = 4}, 4, {.slices = 4}).tensor, 4);
  EXPECT_EQ(resolve_degrees({.data = 4}, 4, {.lanes = 4}).data, 4);
  EXPECT_EQ(resolve_degrees({.pipeline = 4}, 4, {.layers = 8, .virtual_stages = 2}).pipeline, 4);
  Degrees const experts{.tensor = 2, .data = 2, .expert = 2};
  EXPECT_EQ(resolve_degrees(experts, 4, {.slices = 2, .lanes = 2, .experts = 4}), experts);
}

TEST(ResolveDegrees, ChoosesDataFromWhatIsLeft) {
  EXPECT_EQ(resolve_degrees({.tensor = 2, .pipeline = 2, .data = 0, .expert = 2}, 16, roomy),
            (Degrees{.tensor = 2, .pipeline = 2, .data = 4, .expert = 2}));
}

/// The message of the UsageError, or "" if there was none.
std::string refusal(Degrees const& asked, int ranks, DegreeLimits const& limits) {
  try {
    resolve_degrees(asked, ranks, limits);
  } catch (UsageError const& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
  return "";
}

TEST(ResolveDegrees, RefusesAProductThatIsNotTheNumberOfRanks) {
  EXPECT_EQ(
      refusal({.tensor = 2, .pipeline = 1, .data = 2}, 8, roomy),
      "--parallel.tensor 2 --parallel.pipeline 1 --parallel.data 2 cannot be run on 8 ranks (their product is not "
      "the number of ranks); these (tensor x pipeline x data) would do: 2 x 1 x 4, 2 x 2 x 2, 4 x 1 x 2, 1 x 1 x 8");
  EXPECT_EQ(
      refusal({.tensor = 4, .data = 0}, 6, roomy),
      "--parallel.tensor 4 --parallel.pipeline 1 cannot be run on 6 ranks (their product does not divide the number "
      "of ranks); these (tensor x pipeline x data) would do: 2 x 1 x 3, 1 x 1 x 6, 2 x 3 x 1, 1 x 2 x 3");
  EXPECT_EQ(
      refusal({.tensor = 2, .data = 0}, 1, roomy),
      "--parallel.tensor 2 --parallel.pipeline 1 cannot be run on 1 rank (their product does not divide the number "
      "of ranks); these (tensor x pipeline x data) would do: 1 x 1 x 1");
}

TEST(ResolveDegrees, OffersOnlyWhatTheLimitsAllow) {
  EXPECT_EQ(
      refusal({.data = 4}, 8, {.slices = 2, .lanes = 4, .layers = 1}),
      "--parallel.tensor 1 --parallel.pipeline 1 --parallel.data 4 cannot be run on 8 ranks (their product is not "
      "the number of ranks); these (tensor x pipeline x data) would do: 2 x 1 x 4");
  EXPECT_EQ(
      refusal({.data = 4, .expert = 4}, 12, {.slices = 1, .lanes = 12, .experts = 6, .layers = 1}),
      "--parallel.tensor 1 --parallel.pipeline 1 --parallel.data 4 cannot be run on 12 ranks (their product is not "
      "the number of ranks); these (tensor x pipeline x data) would do: 1 x 1 x 12 with expert 3");
  EXPECT_EQ(
      refusal({.data = 4}, 7, {.slices = 2, .lanes = 2, .layers = 1}),
      "--parallel.tensor 1 --parallel.pipeline 1 --parallel.data 4 cannot be run on 7 ranks (their product is not "
      "the number of ranks); no layout of 7 ranks fits this model and envelope, start at most 4");
}

TEST(ResolveDegrees, SurvivesDegreesWhoseProductOverflows) {
  int const huge = 2147483647;
  EXPECT_NE(refusal({.tensor = huge, .pipeline = huge, .data = huge}, 4, roomy), "");
  EXPECT_NE(refusal({.tensor = huge, .pipeline = huge, .data = 0}, 4, roomy), "");
}

TEST(ResolveDegrees, RefusesTensorThatDoesNotDivideTheSlices) {
  EXPECT_EQ(
      refusal({.tensor = 3}, 3, {.slices = 8}),
      "--parallel.tensor 3 does not divide the 8 slices (each tensor-parallel rank owns the same number); use one "
      "of 1, or another --repro.slices, which changes the results");
}

TEST(ResolveDegrees, RefusesMoreDataRanksThanLanes) {
  EXPECT_EQ(
      refusal({.data = 0}, 8, {.slices = 2, .lanes = 4, .layers = 2}),
      "8 data-parallel ranks cannot share 4 lanes (a rank owns at least one lane); these (tensor x pipeline x data) "
      "would do: 1 x 2 x 4, 2 x 1 x 4, 2 x 2 x 2; or raise --repro.lanes, which changes the results");
  EXPECT_EQ(
      refusal({.data = 3}, 3, {.lanes = 2}),
      "3 data-parallel ranks cannot share 2 lanes (a rank owns at least one lane); no layout of 3 ranks fits this "
      "model and envelope, start at most 2; or raise --repro.lanes, which changes the results");
}

TEST(ResolveDegrees, RefusesMoreStagesThanLayers) {
  EXPECT_EQ(
      refusal({.pipeline = 4}, 4, {.lanes = 8, .layers = 3}),
      "--parallel.pipeline 4 is too much for the model (3 layers cannot fill 4 stages); these (tensor x pipeline x "
      "data) would do: 1 x 2 x 2, 1 x 1 x 4");
  EXPECT_EQ(refusal({.pipeline = 4}, 4, {.lanes = 8, .layers = 6, .virtual_stages = 2}),
            "--parallel.pipeline 4 is too much for the model (6 layers cannot fill 4 stages of 2 virtual stages each); "
            "these (tensor x pipeline x data) would do: 1 x 2 x 2, 1 x 1 x 4");
}

TEST(ResolveDegrees, RefusesExpertsThatCannotBeSharedOut) {
  EXPECT_EQ(refusal({.data = 2, .expert = 2}, 2, {.lanes = 8}),
            "--parallel.expert 2 cannot be used (the model has no experts); leave it at 1");
  EXPECT_EQ(refusal({.data = 4, .expert = 3}, 4, roomy),
            "--parallel.expert 3 does not divide the 4 data-parallel ranks (experts are shared out among data-parallel "
            "ranks); use one of 1, 2, 4");
  EXPECT_EQ(refusal({.data = 4, .expert = 4}, 4, {.lanes = 8, .experts = 6}),
            "--parallel.expert 4 does not divide the 6 experts of a layer (each expert-parallel part holds the same "
            "number); use one of 1, 2");
  EXPECT_EQ(
      refusal({.tensor = 4, .data = 2, .expert = 2}, 8, {.slices = 4, .lanes = 8, .experts = 4}),
      "--parallel.tensor 4 with --parallel.expert 2 shares 4 experts out among 8 ranks (each needs one); lower one "
      "of the two");
  EXPECT_NE(refusal({.tensor = 4}, 4, {.slices = 4, .experts = 2}), "");  // also without expert parallelism
}

TEST(ResolveDegrees, ExpectsDegreesOfAtLeastOne) {
  EXPECT_THROW(resolve_degrees({.tensor = 0}, 1, roomy), std::logic_error);
  EXPECT_THROW(resolve_degrees({.pipeline = -1}, 1, roomy), std::logic_error);
  EXPECT_THROW(resolve_degrees({.data = -1}, 1, roomy), std::logic_error);
  EXPECT_THROW(resolve_degrees({.expert = 0}, 1, roomy), std::logic_error);
  EXPECT_THROW(resolve_degrees({}, 0, roomy), std::logic_error);
}

}  // namespace
}  // namespace isotrain::test
