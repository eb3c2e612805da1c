#include "lib/train/replicas.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lib/comm/agree.h"
#include "lib/model/parameter_list.h"
#include "lib/train/step_hashes.h"
#include "lib/train/weights.h"
#include "tests/lib/train/tiny_plan.h"

namespace isotrain::test {
namespace {

/// Four ranks with the weights of a new run.
struct World {
  Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
  TrainPlan plan;
  Mesh mesh;
  RankPlan rank;
  TrainMemory<float> memory;

  explicit World(Degrees const& degrees, Json const& json = tiny_v3())
      : plan(tiny_plan(tiny_config(json), degrees, ScheduleKind::one_f_one_b, 2)),
        mesh(comm, degrees),
        rank(plan, mesh),
        memory(rank) {
    auto weights = memory.optimizer_state().weight;
    for (FlatRange const& run : rank.own()) {
      auto const part = weights.first(static_cast<std::size_t>(run.size()));
      initialize(rank.table(), part, run, 1, 0.1);
      weights = weights.subspan(part.size());
    }
    publish_weights(rank, memory, Cpu());
  }
  void check() const { check_replicas(rank, memory, Cpu(), "a-host"); }
};

std::vector<Degrees> const layouts{{.data = 4},
                                   {.tensor = 2, .data = 2},
                                   {.tensor = 2, .pipeline = 2},
                                   {.pipeline = 2, .data = 2, .expert = 2},
                                   {.data = 4, .expert = 2}};

TEST(Replicas, OfAHealthyRunAreTheSame) {
  for (auto const& degrees : layouts) EXPECT_NO_THROW(World(degrees).check());
}

TEST(Replicas, NameTheRankThatDrifted) {
  World world({.data = 4});
  if (world.comm.rank() == 2) world.memory[world.memory.layout().chunks[0].matrices][100] += 1;
  try {
    world.check();
    ADD_FAILURE() << "nothing was found";
  } catch (AgreedError const& error) {
    std::string const text = error.what();
    EXPECT_NE(text.find("the weights of rank 2 on a-host"), std::string::npos) << text;
    EXPECT_NE(text.find("sliced matrices of layers 0 to 2"), std::string::npos) << text;
  }
}

TEST(Replicas, FindADriftedNormGain) {
  World world({.tensor = 2, .pipeline = 2});
  // The first gain of the second stage: held by ranks 2 and 3, of which one cannot say who is right.
  if (world.comm.rank() == 3) world.memory[world.memory.layout().chunks[0].fp32][0] += 1;
  EXPECT_THROW(world.check(), AgreedError);
}

TEST(Weights, HaveOneFingerprintOnEveryLayout) {
  std::vector<std::uint64_t> fingerprints, routers;
  for (auto const& degrees : layouts) {
    World const world(degrees);
    auto const own = world.memory.optimizer_state().weight;
    fingerprints.push_back(hash_weights(world.rank, Cpu(), own));
    auto const hashes = hash_by_parameter(world.rank, Cpu(), own);
    std::uint64_t sum = 0;
    for (auto const hash : hashes) sum += hash;
    routers.push_back(sum);
  }
  EXPECT_EQ(std::ranges::count(fingerprints, fingerprints[0]), std::ssize(fingerprints));
  EXPECT_EQ(std::ranges::count(routers, routers[0]), std::ssize(routers));
  World other({.data = 4});
  if (other.comm.rank() == 1) other.memory.optimizer_state().weight[0] += 1;
  EXPECT_NE(hash_weights(other.rank, Cpu(), other.memory.optimizer_state().weight), fingerprints[0]);
}

TEST(Weights, OwnRunsAreEveryBlockOnce) {
  for (auto const& degrees : layouts) {
    World const world(degrees);
    std::vector<std::int64_t> owners(static_cast<std::size_t>(world.rank.table().num_blocks()));
    for (auto const& run : world.rank.own()) {
      for (auto block = run.begin / block_elements; block < run.end / block_elements; ++block) {
        owners[static_cast<std::size_t>(block)] += 1;
      }
    }
    world.comm.sum(std::span(owners));
    EXPECT_EQ(std::ranges::count(owners, 1), std::ssize(owners));
  }
}

TEST(Unused, ParametersAreNamedButForExperts) {
  World const world({.tensor = 2, .data = 2});
  std::vector<float> gradient(static_cast<std::size_t>(world.rank.own_size()), 1.0F);
  EXPECT_TRUE(find_unused(world.rank, gradient).empty());
  std::ranges::fill(gradient, 0.0F);
  auto const names = find_unused(world.rank, gradient);
  std::size_t experts = 0;
  for (auto const& parameter : world.rank.table().all()) experts += parameter.expert >= 0 ? 1 : 0;
  EXPECT_EQ(names.size(), world.rank.table().all().size() - experts);
}

}  // namespace
}  // namespace isotrain::test
