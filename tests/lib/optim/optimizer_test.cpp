#include "lib/optim/optimizer.h"

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "lib/base/digest.h"
#include "lib/base/error.h"
#include "lib/base/random.h"

namespace isotrain::test {
namespace {

constexpr double eps = 0x1p-24;

/// Eight blocks: parameters of one block exactly, with gaps, of several blocks, with and without decay, in both
/// segments.
ParameterTable small_table() {
  return ParameterTable({{.name = "embed", .shape = {100, 64}},
                         {.name = "norm", .shape = {64}, .segment = Segment::fp32, .decay = false},
                         {.name = "square", .shape = {64, 64}},
                         {.name = "frozen_scale", .shape = {10, 10}, .decay = false},
                         {.name = "head", .shape = {33, 130}},
                         {.name = "gate", .shape = {8, 64}, .segment = Segment::fp32}},
                        1);
}

std::int64_t offset_of(ParameterTable const& table, Parameter const& parameter) {
  return table.pieces_of(parameter).front().offset;
}
std::int64_t offset_of(ParameterTable const& table, std::string const& name) {
  return offset_of(table, table.find(name));
}

/// Normal numbers where there are parameters, zeros in the gaps.
std::vector<float> flat_normal(ParameterTable const& table, std::string const& kind, double stddev) {
  std::vector<float> flat(static_cast<std::size_t>(table.flat_size()));
  for (auto const& p : table.all()) {
    fill_normal(std::span(flat).subspan(offset_of(table, p), p.size()), 0, 7, stream_id(kind + p.name), stddev);
  }
  return flat;
}

/// The blocks of rank `rank` of `ranks`, as runs.
using Ownership = std::vector<FlatRange> (*)(ParameterTable const& table, int ranks, int rank);

std::vector<FlatRange> one_run(ParameterTable const& table, int ranks, int rank) {
  return {
      {table.num_blocks() * rank / ranks * block_elements, table.num_blocks() * (rank + 1) / ranks * block_elements}};
}
/// Blocks dealt out one by one.
std::vector<FlatRange> dealt(ParameterTable const& table, int ranks, int rank) {
  std::vector<FlatRange> runs;
  for (std::int64_t b = rank; b < table.num_blocks(); b += ranks)
    runs.push_back({b * block_elements, (b + 1) * block_elements});
  return runs;
}
/// Runs of two blocks in a row, then three, some empty, all of them of the last ranks first; the first rank gets none
/// if there are several.
std::vector<FlatRange> uneven(ParameterTable const& table, int ranks, int rank) {
  std::vector<FlatRange> runs;
  int owner = ranks - 1;
  for (std::int64_t b = 0, length = 2; b < table.num_blocks(); b += length, length = 5 - length) {
    std::int64_t const end = std::min(b + length, table.num_blocks());
    if (owner == rank) runs.push_back({b * block_elements, end * block_elements});
    if (owner == rank) runs.push_back({end * block_elements, end * block_elements});
    owner = owner > 1 ? owner - 1 : ranks - 1;
  }
  return runs;
}
constexpr std::array ownerships = {one_run, dealt, uneven};

/// One rank's optimizer with its state, over the ranks of `comm`.
struct Shard {
  Shard(ParameterTable const& table, Communicator const& comm, AdamW::Settings const& settings, int threads = 1,
        Ownership owned = one_run)
      : table(table),
        comm(comm),
        at(threads),
        own(owned(table, comm.size(), comm.rank())),
        weight(part(flat_normal(table, "weight", 0.02))),
        m(weight.size()),
        v(weight.size()),
        adamw(settings, table, own) {
    for (FlatRange const& run : own)
      for (std::int64_t i = run.begin; i < run.end; ++i) place.push_back(i);
  }

  std::vector<float> part(std::vector<float> const& flat) const {
    std::vector<float> values;
    for (FlatRange const& run : own) values.insert(values.end(), flat.begin() + run.begin, flat.begin() + run.end);
    return values;
  }
  AdamW::StepResult step(std::int64_t number, double learning_rate, std::vector<float> const& flat_gradient) {
    std::vector<float> const gradient = part(flat_gradient);
    return adamw.step(at, comm, number, learning_rate, {weight, m, v}, gradient);
  }

  ParameterTable const& table;
  Communicator const& comm;
  Cpu at;
  std::vector<FlatRange> own;
  std::vector<std::int64_t> place;  // of each own element in the flat space
  std::vector<float> weight, m, v;
  AdamW adamw;
};

class AdamWTest : public testing::Test {
 protected:
  Communicator world_ = Communicator::duplicate(MPI_COMM_WORLD);
  Communicator self_ = Communicator::duplicate(MPI_COMM_SELF);
  ParameterTable table_ = small_table();
};

bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// The definition in double: plain loops over one flat vector.
struct Reference {
  std::vector<double> weight, m, v;

  double step(ParameterTable const& table, AdamW::Settings const& s, int number, double lr,
              std::vector<float> const& g) {
    double squares = 0;
    for (double const x : g) squares += x * x;
    double const norm = std::sqrt(squares);
    double const scale = s.clip > 0 ? std::min(1.0, s.clip / norm) : 1;
    for (auto const& p : table.all()) {
      for (std::int64_t i = offset_of(table, p); i < offset_of(table, p) + p.size(); ++i) {
        m[i] = s.beta1 * m[i] + (1 - s.beta1) * scale * g[i];
        v[i] = s.beta2 * v[i] + (1 - s.beta2) * scale * g[i] * scale * g[i];
        double const m_hat = m[i] / (1 - std::pow(s.beta1, number));
        double const v_hat = v[i] / (1 - std::pow(s.beta2, number));
        weight[i] -= lr * (p.decay ? s.weight_decay : 0) * weight[i] + lr * m_hat / (std::sqrt(v_hat) + s.epsilon);
      }
    }
    return norm;
  }
};

TEST_F(AdamWTest, FollowsItsDefinition) {
  for (double const clip : {0.0, 1.0}) {
    AdamW::Settings const settings{.clip = clip};
    Shard shard(table_, world_, settings);
    auto const start = flat_normal(table_, "weight", 0.02);
    Reference reference{
        {start.begin(), start.end()}, std::vector<double>(start.size()), std::vector<double>(start.size())};
    for (int number = 1; number <= 5; ++number) {
      double const lr = 1e-3 * number;
      auto const gradient = flat_normal(table_, "gradient" + std::to_string(number), 0.1 * number);
      auto const result = shard.step(number, lr, gradient);
      double const norm = reference.step(table_, settings, number, lr, gradient);
      EXPECT_NEAR(result.gradient_norm, norm, 1e-12 * norm);
      EXPECT_EQ(result.clip_scale, clip == 0 ? 1 : static_cast<float>(clip / result.gradient_norm));
    }
    // A step rounds each of w, m and v a few times; the update is at most about lr, and decays are far below w.
    double worst = 0;
    for (std::size_t i = 0; i < shard.weight.size(); ++i) {
      auto const k = static_cast<std::size_t>(shard.place[i]);
      EXPECT_NEAR(shard.weight[i], reference.weight[k], 5 * eps * (2 * std::abs(reference.weight[k]) + 32 * 5e-3)) << k;
      EXPECT_NEAR(shard.v[i], reference.v[k], 5 * 8 * eps * reference.v[k]) << k;
      worst = std::max(worst, std::abs(reference.weight[k] - start[k]));
    }
    EXPECT_GT(worst, 1e-3);  // the weights did move
  }
}

TEST_F(AdamWTest, GivesTheSameBitsOnAnyNumberOfRanksAndThreadsForAnyOwners) {
  Shard whole(table_, self_, {}, 1);
  std::vector<AdamW::StepResult> alone;
  for (int number = 1; number <= 4; ++number) {
    alone.push_back(whole.step(number, 1e-3, flat_normal(table_, "gradient" + std::to_string(number), 0.1)));
    EXPECT_LT(alone.back().clip_scale, 1);  // so that the norm has a say in the weights
  }
  for (Ownership const owned : ownerships) {
    Shard shard(table_, world_, {}, 2, owned);
    for (int number = 1; number <= 4; ++number) {
      auto const on_ranks = shard.step(number, 1e-3, flat_normal(table_, "gradient" + std::to_string(number), 0.1));
      EXPECT_EQ(on_ranks.gradient_norm, alone[number - 1].gradient_norm);
      EXPECT_EQ(on_ranks.clip_scale, alone[number - 1].clip_scale);
    }
    EXPECT_TRUE(same_bits(shard.weight, shard.part(whole.weight)));
    EXPECT_TRUE(same_bits(shard.m, shard.part(whole.m)));
    EXPECT_TRUE(same_bits(shard.v, shard.part(whole.v)));
    // Negative control: one gradient element a little larger.
    Shard other(table_, world_, {}, 1, owned);
    for (int number = 1; number <= 4; ++number) {
      auto gradient = flat_normal(table_, "gradient" + std::to_string(number), 0.1);
      if (number == 2) gradient[5000] *= 1.001F;
      other.step(number, 1e-3, gradient);
    }
    EXPECT_EQ(world_.any(!same_bits(other.weight, shard.weight)), true);
  }
  // And on any machine and instruction set.
  EXPECT_EQ(Digest().update(std::span<float const>(whole.weight)).hex(), "d7bb7c46ae143d20");
}

TEST_F(AdamWTest, TheNormIsExactOverBlocksWhateverTheRanks) {
  // One block's sum of squares is 1, those of the 63 others are a quarter of its last digit: added one by one they
  // vanish, exactly they are 15.75 digits.
  ParameterTable const table({{.name = "w", .shape = {64, block_elements}}}, 1);
  std::vector<float> gradient(static_cast<std::size_t>(table.flat_size()));
  for (std::int64_t b = 0; b < 64; ++b) gradient[b * block_elements + 17 * b] = b == 0 ? 1 : 0x1p-27F;
  double const exact = std::sqrt(1 + 16 * 0x1p-52);
  EXPECT_GT(exact, 1);
  for (Ownership const owned : ownerships) {
    EXPECT_EQ(Shard(table, world_, {}, 1, owned).step(1, 1e-3, gradient).gradient_norm, exact);
  }
  // Negative control: blocks one by one in fp64.
  double total = 0;
  for (double const x : gradient) total += x * x;
  EXPECT_EQ(std::sqrt(total), 1);
}

TEST_F(AdamWTest, ManyBlocksOfOneRankAreAddedInSeveralPieces) {
  ParameterTable const table({{.name = "w", .shape = {2500, block_elements}}}, 1);
  std::vector<float> gradient(static_cast<std::size_t>(table.flat_size()));
  for (std::int64_t b = 0; b < 2500; ++b) gradient[b * block_elements + b] = static_cast<float>(b + 1);
  double exact = 0;
  for (int b = 1; b <= 2500; ++b) exact += double{1} * b * b;
  EXPECT_EQ(Shard(table, self_, {}).step(1, 1e-3, gradient).gradient_norm, std::sqrt(exact));
}

TEST_F(AdamWTest, ClipsToTheLargestNormAllowed) {
  std::vector<float> gradient(static_cast<std::size_t>(table_.flat_size()));
  auto const scale_of = [&](double clip, float element) {
    gradient[offset_of(table_, "head")] = element;
    Shard shard(table_, world_, {.clip = clip});
    return shard.step(1, 1e-3, gradient).clip_scale;
  };
  EXPECT_EQ(scale_of(1, 4), 0.25F);
  EXPECT_EQ(scale_of(2, -4), 0.5F);
  EXPECT_EQ(scale_of(1, 3), static_cast<float>(1.0 / 3));
  EXPECT_EQ(scale_of(1, 1), 1);
  EXPECT_EQ(scale_of(1, 0.5), 1);
  EXPECT_EQ(scale_of(1, 0), 1);
  EXPECT_EQ(scale_of(0, 4), 1);
}

TEST_F(AdamWTest, AClippedStepIsAStepWithTheScaledGradient) {
  std::vector<float> large(static_cast<std::size_t>(table_.flat_size()));
  for (auto const& p : table_.all()) large[offset_of(table_, p) + p.size() / 2] = 4 / std::sqrt(6.0F);
  auto small = large;
  for (float& x : small) x *= 0.25F;
  Shard clipped(table_, world_, {});
  auto const result = clipped.step(1, 1e-3, large);
  Shard scaled(table_, world_, {.clip = 0});
  scaled.step(1, 1e-3, small);
  Shard unclipped(table_, world_, {.clip = 0});
  unclipped.step(1, 1e-3, large);
  EXPECT_NEAR(result.clip_scale, 0.25, 1e-6);
  for (std::size_t i = 0; i < clipped.m.size(); ++i)
    EXPECT_NEAR(clipped.m[i], scaled.m[i], 1e-6 * std::abs(scaled.m[i]));
  EXPECT_TRUE(world_.any(!same_bits(clipped.m, unclipped.m)));
}

TEST_F(AdamWTest, OnlyParametersThatDecayShrinkWithoutAGradient) {
  Shard shard(table_, world_, {.weight_decay = 0.5});
  auto const before = shard.weight;
  shard.step(1, 0.25, std::vector<float>(static_cast<std::size_t>(table_.flat_size())));
  for (std::size_t i = 0; i < before.size(); ++i) {
    Parameter const& p = table_.parameter(table_.at(shard.place[i]));
    EXPECT_EQ(shard.weight[i], p.decay ? before[i] * 0.875F : before[i]) << p.name;
    EXPECT_EQ(shard.m[i], 0);
    EXPECT_EQ(shard.v[i], 0);
  }
}

TEST_F(AdamWTest, GapsStayZero) {
  Shard shard(table_, world_, {});
  for (int number = 1; number <= 3; ++number) shard.step(number, 1e-2, flat_normal(table_, "gradient", 1));
  for (std::size_t i = 0; i < shard.weight.size(); ++i) {
    std::int64_t const offset = shard.place[i];
    Piece const& piece = table_.at(offset);
    if (offset < piece.offset + piece.size()) continue;
    EXPECT_EQ(std::bit_cast<std::uint32_t>(shard.weight[i]), 0u) << offset;
    EXPECT_EQ(shard.m[i], 0) << offset;
  }
}

TEST_F(AdamWTest, ANonFiniteGradientChangesNothingAndIsNamedOnAllRanks) {
  float const infinity = std::numeric_limits<float>::infinity();
  for (Ownership const owned : ownerships) {
    for (float const bad : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}) {
      Shard shard(table_, world_, {}, 1, owned);
      shard.step(1, 1e-3, flat_normal(table_, "gradient", 1));
      Shard const before = shard;
      auto gradient = flat_normal(table_, "gradient", 1);
      auto const found = [&] {
        auto const where = find_non_finite(shard.at, world_, table_, shard.own, shard.part(gradient));
        return where ? where->parameter + " " + std::to_string(where->element) : "none";
      };
      gradient[offset_of(table_, table_.all().front())] = bad;
      gradient[offset_of(table_, "head") + 4200] = bad;
      gradient[offset_of(table_, "head") + 4201] = bad;
      auto const result = shard.step(2, 1e-3, gradient);
      EXPECT_FALSE(result.finite());
      EXPECT_TRUE(same_bits(shard.weight, before.weight));
      EXPECT_TRUE(same_bits(shard.m, before.m));
      EXPECT_TRUE(same_bits(shard.v, before.v));
      EXPECT_EQ(found(), "head 4200");
      gradient[offset_of(table_, "head") + 3] = bad;  // in another block of the same parameter
      EXPECT_EQ(found(), "head 3");
      gradient[offset_of(table_, "norm") + 63] = bad;  // the fp32 segment is last
      EXPECT_EQ(found(), "norm 63");
    }
  }
}

TEST_F(AdamWTest, FiniteGradientsAreNotNamed) {
  Shard shard(table_, world_, {}, 1, uneven);
  auto gradient = flat_normal(table_, "gradient", 1);
  gradient[0] = std::numeric_limits<float>::max();
  EXPECT_FALSE(find_non_finite(shard.at, world_, table_, shard.own, shard.part(gradient)).has_value());
  auto const result = shard.step(1, 1e-3, gradient);  // its square is no fp32 number
  EXPECT_TRUE(result.finite());
  EXPECT_GT(result.gradient_norm, 3e38);
}

TEST_F(AdamWTest, PlansWhatItHolds) {
  for (Ownership const owned : ownerships) {
    Shard const shard(table_, world_, {}, 1, owned);
    BufferPlan plan;
    auto const names = OptimizerBuffers::plan(plan, shard.own);
    std::size_t bytes = 0;
    for (auto const& entry : plan.entries()) bytes += entry.bytes;
    EXPECT_EQ(bytes, 3 * 4 * shard.weight.size());
    Buffers const buffers(plan);
    auto const state = names.state(buffers);
    EXPECT_EQ(state.weight.size(), shard.weight.size());
    EXPECT_TRUE(state.m.empty() || state.m.data() != state.v.data());
    EXPECT_EQ(world_.sum(static_cast<std::int64_t>(state.v.size())), table_.flat_size());
  }
}

TEST_F(AdamWTest, WrongSettingsAreNamed) {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  auto const message_of = [&](AdamW::Settings const& settings) -> std::string {
    try {
      Shard const shard(table_, self_, settings);
    } catch (UsageError const& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message_of({.beta1 = 1}), "--optim.beta1 = 1 is out of range (it must be from 0 to below 1)");
  EXPECT_EQ(message_of({.beta2 = -0.5}), "--optim.beta2 = -0.5 is out of range (it must be from 0 to below 1)");
  EXPECT_EQ(message_of({.beta2 = 1 - 0x1p-40}).find("--optim.beta2"), 0u);  // 1 as an fp32 number
  EXPECT_EQ(message_of({.epsilon = 0}), "--optim.epsilon = 0 is out of range (it must be above 0 and at most 1)");
  EXPECT_EQ(message_of({.weight_decay = -1}), "--optim.weight_decay = -1 is out of range (it must be 0 or more)");
  EXPECT_EQ(message_of({.clip = nan}), "--optim.clip = nan is out of range (it must be 0 (no clipping) or more)");
}

TEST_F(AdamWTest, BrokenContractsAreCaught) {
  Shard shard(table_, self_, {});
  std::vector<float> gradient(shard.weight.size());
  auto const step = [&](std::int64_t number, std::span<float const> g) {
    shard.adamw.step(shard.at, self_, number, 1e-3, {shard.weight, shard.m, shard.v}, g);
  };
  step(1, gradient);
  EXPECT_THROW(step(0, gradient), std::logic_error);
  EXPECT_THROW(step(1, std::span(gradient).first(4096)), std::logic_error);
  EXPECT_THROW(find_non_finite(shard.at, self_, table_, shard.own, std::span(gradient).first(4096)), std::logic_error);
  auto const runs = [&](std::vector<FlatRange> const& own) { AdamW({}, table_, own); };
  runs({{0, 4096}, {4096, 4096}, {8192, 16384}});
  EXPECT_THROW(runs({{0, 4096}, {0, 4096}}), std::logic_error);
  EXPECT_THROW(runs({{4096, 8192}, {0, 4096}}), std::logic_error);
  EXPECT_THROW(runs({{0, 4000}}), std::logic_error);
  EXPECT_THROW(runs({{100, 4096}}), std::logic_error);
  EXPECT_THROW(runs({{8192, 4096}}), std::logic_error);
  EXPECT_THROW(runs({{0, table_.flat_size() + 4096}}), std::logic_error);
}

TEST_F(AdamWTest, BlocksWithoutAnOwnerOrWithTwoAreCaughtOnAllRanks) {
  Ownership const without_the_last = [](ParameterTable const& table, int ranks, int rank) {
    auto runs = dealt(table, ranks, rank);
    if (rank == 0) runs.pop_back();
    return runs;
  };
  Ownership const first_twice = [](ParameterTable const& table, int ranks, int rank) {
    auto runs = dealt(table, ranks, rank);
    if (rank == 1) runs.insert(runs.begin(), {0, block_elements});
    return runs;
  };
  std::vector<float> const gradient(static_cast<std::size_t>(table_.flat_size()));
  EXPECT_THROW(Shard(table_, world_, {}, 1, without_the_last).step(1, 1e-3, gradient), std::logic_error);
  if (world_.size() > 1) {
    EXPECT_THROW(Shard(table_, world_, {}, 1, first_twice).step(1, 1e-3, gradient), std::logic_error);
  }
}

}  // namespace
}  // namespace isotrain::test
