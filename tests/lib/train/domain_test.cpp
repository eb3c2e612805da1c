// Who reduces, updates and holds what, for every mesh of the ranks there are: each block of the flat space has one
// owner in the whole world, so no parameter is updated, counted in a norm or written to a checkpoint twice or never.
#include "lib/train/domain.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lib/comm/communicator.h"
#include "lib/model/parameter_list.h"
#include "tests/lib/train/tiny_plan.h"

namespace isotrain::test {
namespace {

/// All meshes of `ranks` ranks for a model of 8 layers and 4 slices.
std::vector<Degrees> meshes(int ranks, bool has_experts) {
  std::vector<Degrees> result;
  for (int const tensor : {1, 2, 4}) {
    for (int pipeline = 1; pipeline <= 4; ++pipeline) {
      if (ranks % (tensor * pipeline) != 0) continue;
      int const data = ranks / (tensor * pipeline);
      for (int const expert : {1, 2, 4, 8}) {
        bool const shared_out = expert == 1 || (has_experts && data % expert == 0 && expert * tensor <= 8);
        if (shared_out) result.push_back({.tensor = tensor, .pipeline = pipeline, .data = data, .expert = expert});
      }
    }
  }
  return result;
}

std::string name_of(Degrees const& d) {
  return "tp " + std::to_string(d.tensor) + " pp " + std::to_string(d.pipeline) + " dp " + std::to_string(d.data) +
         " ep " + std::to_string(d.expert);
}

class DomainTest : public testing::Test {
 protected:
  /// Calls body with the plan of this rank for every mesh, schedule and kind of model.
  template <class Body>
  void for_each_plan(Body const& body) const {
    for (Json const& json : {tiny_v3(), tiny_v2(), tiny_llama(), with(tiny_llama(), {{"tie_word_embeddings", true}})}) {
      auto const config = tiny_config(with(json, {{"num_hidden_layers", 8}, {"num_attention_heads", 4}}));
      for (auto const& degrees : meshes(world_.size(), config.num_experts > 0)) {
        Mesh const mesh(world_, degrees);
        for (auto const schedule : {ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::dualpipe_v}) {
          SCOPED_TRACE(name_of(degrees) + ", " + isotrain::name_of(schedule));
          auto const plan = tiny_plan(config, degrees, schedule);
          body(RankPlan(plan, mesh));
        }
      }
    }
  }

  /// The runs of all ranks.
  std::vector<FlatRange> gather(std::vector<FlatRange> const& mine) const {
    auto const counts = world_.all_gather(static_cast<std::int64_t>(mine.size()));
    std::int64_t total = 0;
    for (auto const count : counts) total += count;
    std::vector<FlatRange> all(static_cast<std::size_t>(total));
    world_.all_gather(std::span(mine), std::span(all), std::span<std::int64_t const>(counts));
    return all;
  }

  static bool is_partition(std::vector<FlatRange> runs, FlatRange whole) {
    std::erase_if(runs, [](FlatRange const& run) { return run.size() == 0; });
    std::ranges::sort(runs, {}, &FlatRange::begin);
    std::int64_t end = whole.begin;
    for (auto const& run : runs) {
      if (run.begin != end) return false;
      end = run.end;
    }
    return end == whole.end;
  }

  Communicator const world_ = Communicator::duplicate(MPI_COMM_WORLD);
};

TEST_F(DomainTest, EveryBlockHasOneOwner) {
  int plans = 0;
  for_each_plan([&](RankPlan const& rank) {
    ++plans;
    auto const all = gather(rank.own());
    EXPECT_TRUE(is_partition(all, {0, rank.table().flat_size()}));
    std::int64_t size = 0;
    for (auto const& run : rank.own()) {
      EXPECT_EQ(run.begin % block_elements, 0);
      size += run.size();
    }
    EXPECT_EQ(size, rank.own_size());
  });
  EXPECT_GT(plans, 50);
}

TEST_F(DomainTest, DomainsPartWhatAChunkHolds) {
  for_each_plan([&](RankPlan const& rank) {
    auto const& config = rank.train().config;
    for (std::size_t c = 0; c < rank.chunks().size(); ++c) {
      auto const& chunk = rank.chunks()[c];
      std::vector<FlatRange> locals;
      for (auto const& domain : chunk.domains) locals.push_back(domain.local);
      // The last chunk owns a tied embedding.
      bool const owned_elsewhere = config.tied_embeddings && chunk.part.has_embedding() && !chunk.part.has_head(config);
      std::int64_t const begin = owned_elsewhere ? embedding_range(chunk.shard).end : 0;
      EXPECT_TRUE(is_partition(locals, {begin, chunk.shard.flat_size()}));
    }
  });
}

TEST_F(DomainTest, SharesOfADomainAreThoseOfItsGroups) {
  for_each_plan([&](RankPlan const& rank) {
    for (auto const& chunk : rank.chunks()) {
      for (auto const& domain : chunk.domains) {
        EXPECT_TRUE(is_partition(domain.reduced, domain.part));
        ASSERT_EQ(domain.reduced.size(), static_cast<std::size_t>(domain.reducers->size()));
        EXPECT_EQ(domain.own, domain.reduced[static_cast<std::size_t>(domain.reducers->rank())]);
        ASSERT_EQ(domain.held.size(), static_cast<std::size_t>(domain.holders->size()));
        std::int64_t before = domain.local.begin, all = 0;
        for (int r = 0; r < domain.holders->size(); ++r) {
          if (r < domain.holders->rank()) before += domain.held[static_cast<std::size_t>(r)];
          all += domain.held[static_cast<std::size_t>(r)];
        }
        EXPECT_EQ(all, domain.local.size());
        if (domain.own.size() > 0) {
          EXPECT_EQ(before, domain.own.begin);
        }
        EXPECT_EQ(domain.held[static_cast<std::size_t>(domain.holders->rank())], domain.own.size());
      }
    }
  });
}

/// Experts are on as many ranks of the world as there are groups of them, everything replicated on all of its stage.
TEST_F(DomainTest, PiecesAreHeldByTheRanksThatComputeWithThem) {
  for_each_plan([&](RankPlan const& rank) {
    auto const& table = rank.table();
    std::vector<std::int64_t> holders(table.pieces().size());
    for (auto const& chunk : rank.chunks()) {
      for (auto const& held : chunk.shard.all())
        ++holders[static_cast<std::size_t>(held.piece - table.pieces().data())];
    }
    world_.sum(std::span(holders));
    auto const& degrees = rank.mesh().degrees();
    for (std::size_t i = 0; i < holders.size(); ++i) {
      auto const& parameter = table.parameter(table.pieces()[i]);
      bool const twice = rank.train().config.tied_embeddings && parameter.layer == -1 && rank.num_chunks() > 1;
      int const expected = parameter.expert >= 0        ? degrees.expert_data()
                           : parameter.cut == Cut::none ? degrees.tensor * degrees.data
                                                        : degrees.data;
      EXPECT_EQ(holders[i], expected * (twice ? 2 : 1)) << parameter.name;
    }
  });
}

TEST_F(DomainTest, NegativeControl) {
  EXPECT_TRUE(is_partition({{8, 12}, {0, 8}, {12, 12}}, {0, 12}));
  EXPECT_FALSE(is_partition({{0, 8}, {6, 12}}, {0, 12}));
  EXPECT_FALSE(is_partition({{0, 8}, {9, 12}}, {0, 12}));
  EXPECT_FALSE(is_partition({{0, 8}}, {0, 12}));
}

}  // namespace
}  // namespace isotrain::test
