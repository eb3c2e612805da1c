#include "lib/optim/optimizer.h"

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
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
                         {.name = "gate", .shape = {8, 64}, .segment = Segment::fp32}});
}

/// Normal numbers where there are parameters, zeros in the gaps.
std::vector<float> flat_normal(ParameterTable const& table, std::string const& kind, double stddev) {
  std::vector<float> flat(static_cast<std::size_t>(table.flat_size()));
  for (auto const& p : table.all()) {
    fill_normal(std::span(flat).subspan(p.offset, p.size()), 0, 7, stream_id(kind + p.name), stddev);
  }
  return flat;
}

/// One rank's optimizer with its state, over the ranks of `comm`.
struct Shard {
  Shard(ParameterTable const& table, Communicator const& comm, AdamW::Settings const& settings, int threads = 1)
      : table(table),
        comm(comm),
        at(threads),
        range(flat_range(table, comm.size(), comm.rank())),
        sums(static_cast<std::size_t>(table.num_blocks())),
        weight(part(flat_normal(table, "weight", 0.02))),
        m(weight.size()),
        v(weight.size()),
        compute(static_cast<std::size_t>(
            std::max<std::int64_t>(std::min(range.end, table.matrix_size()) - range.begin, 0))),
        adamw(settings, table, range, sums) {}

  std::vector<float> part(std::vector<float> const& flat) const {
    return {flat.begin() + range.begin, flat.begin() + range.end};
  }
  AdamW::StepResult step(std::int64_t number, double learning_rate, std::vector<float> const& flat_gradient) {
    std::vector<float> const gradient = part(flat_gradient);
    return adamw.step(at, comm, number, learning_rate, {weight, m, v}, gradient, compute);
  }

  ParameterTable const& table;
  Communicator const& comm;
  Cpu at;
  FlatRange range;
  std::vector<double> sums;
  std::vector<float> weight, m, v;
  std::vector<bfloat16> compute;
  AdamW adamw;
};

class AdamWTest : public testing::Test {
 protected:
  Communicator world_ = Communicator::duplicate(MPI_COMM_WORLD);
  Communicator self_ = Communicator::duplicate(MPI_COMM_SELF);
  ParameterTable table_ = small_table();
};

template <class T>
bool same_bits(std::span<T const> a, std::span<T const> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}
template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return same_bits(std::span<T const>(a), std::span<T const>(b));
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
      for (std::int64_t i = p.offset; i < p.offset + p.size(); ++i) {
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
      std::size_t const k = i + shard.range.begin;
      EXPECT_NEAR(shard.weight[i], reference.weight[k], 5 * eps * (2 * std::abs(reference.weight[k]) + 32 * 5e-3)) << k;
      EXPECT_NEAR(shard.v[i], reference.v[k], 5 * 8 * eps * reference.v[k]) << k;
      worst = std::max(worst, std::abs(reference.weight[k] - start[k]));
    }
    EXPECT_GT(worst, 1e-3);  // the weights did move
  }
}

TEST_F(AdamWTest, GivesTheSameBitsOnAnyNumberOfRanksAndThreads) {
  Shard shard(table_, world_, {}, 2);
  Shard whole(table_, self_, {}, 1);
  for (int number = 1; number <= 4; ++number) {
    auto const gradient = flat_normal(table_, "gradient" + std::to_string(number), 0.1);
    auto const on_ranks = shard.step(number, 1e-3, gradient);
    auto const alone = whole.step(number, 1e-3, gradient);
    EXPECT_EQ(on_ranks.gradient_norm, alone.gradient_norm);
    EXPECT_EQ(on_ranks.clip_scale, alone.clip_scale);
    EXPECT_LT(alone.clip_scale, 1);  // so that the norm has a say in the weights
  }
  EXPECT_TRUE(same_bits(shard.weight, shard.part(whole.weight)));
  EXPECT_TRUE(same_bits(shard.m, shard.part(whole.m)));
  EXPECT_TRUE(same_bits(shard.v, shard.part(whole.v)));
  EXPECT_TRUE(same_bits(shard.sums, whole.sums));
  EXPECT_TRUE(
      same_bits(std::span<bfloat16 const>(shard.compute),
                std::span<bfloat16 const>(whole.compute)
                    .subspan(std::min<std::size_t>(shard.range.begin, whole.compute.size()), shard.compute.size())));
  // And on any machine and instruction set.
  EXPECT_EQ(Digest().update(std::span<float const>(whole.weight)).hex(), "d7bb7c46ae143d20");
  // Negative control: one gradient element a little larger.
  Shard other(table_, self_, {});
  for (int number = 1; number <= 4; ++number) {
    auto gradient = flat_normal(table_, "gradient" + std::to_string(number), 0.1);
    if (number == 2) gradient[5000] *= 1.001F;
    other.step(number, 1e-3, gradient);
  }
  EXPECT_FALSE(same_bits(whole.weight, other.weight));
}

TEST_F(AdamWTest, TheNormIsAddedBlockByBlockWhateverTheRanks) {
  // One block's sum of squares is 1, those of 63 others are a quarter of its last digit: added one by one they vanish.
  ParameterTable const table({{.name = "w", .shape = {64, block_elements}}});
  std::vector<float> gradient(static_cast<std::size_t>(table.flat_size()));
  for (std::int64_t b = 0; b < 64; ++b) gradient[b * block_elements + 17 * b] = b == 0 ? 1 : 0x1p-27F;
  Shard shard(table, world_, {});
  EXPECT_EQ(shard.step(1, 1e-3, gradient).gradient_norm, 1);
  // Negative control: each rank's own sum first, then the ranks.
  double mine = 0;
  for (double const x : shard.part(gradient)) mine += x * x;
  double total = 0;
  for (double const sum : world_.all_gather(mine)) total += sum;
  EXPECT_EQ(std::sqrt(total) != 1, world_.size() > 1);
}

TEST_F(AdamWTest, ClipsToTheLargestNormAllowed) {
  std::vector<float> gradient(static_cast<std::size_t>(table_.flat_size()));
  auto const scale_of = [&](double clip, float element) {
    gradient[table_.find("head").offset] = element;
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
  for (auto const& p : table_.all()) large[p.offset + p.size() / 2] = 4 / std::sqrt(6.0F);
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
    Parameter const& p = table_.at(static_cast<std::int64_t>(i) + shard.range.begin);
    EXPECT_EQ(shard.weight[i], p.decay ? before[i] * 0.875F : before[i]) << p.name;
    EXPECT_EQ(shard.m[i], 0);
    EXPECT_EQ(shard.v[i], 0);
  }
}

TEST_F(AdamWTest, GapsStayZero) {
  Shard shard(table_, world_, {});
  for (int number = 1; number <= 3; ++number) shard.step(number, 1e-2, flat_normal(table_, "gradient", 1));
  for (std::size_t i = 0; i < shard.weight.size(); ++i) {
    std::int64_t const offset = static_cast<std::int64_t>(i) + shard.range.begin;
    Parameter const& p = table_.at(offset);
    if (offset < p.offset + p.size()) continue;
    EXPECT_EQ(std::bit_cast<std::uint32_t>(shard.weight[i]), 0u) << offset;
    EXPECT_EQ(shard.m[i], 0) << offset;
  }
}

TEST_F(AdamWTest, WritesTheRoundedMatrices) {
  Shard shard(table_, world_, {});
  std::ranges::fill(shard.compute, bfloat16{0x7fc0});
  shard.step(1, 1e-3, flat_normal(table_, "gradient", 1));
  for (std::size_t i = 0; i < shard.compute.size(); ++i) EXPECT_EQ(shard.compute[i], to_bfloat16(shard.weight[i])) << i;
  EXPECT_EQ(world_.sum(static_cast<std::int64_t>(shard.compute.size())), table_.matrix_size());
  // An fp32 model wants none, and gets the same weights.
  Shard without(table_, world_, {});
  without.compute.clear();
  without.step(1, 1e-3, flat_normal(table_, "gradient", 1));
  EXPECT_TRUE(same_bits(shard.weight, without.weight));
}

TEST_F(AdamWTest, ANonFiniteGradientChangesNothingAndIsNamedOnAllRanks) {
  float const infinity = std::numeric_limits<float>::infinity();
  for (float const bad : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}) {
    Shard shard(table_, world_, {});
    shard.step(1, 1e-3, flat_normal(table_, "gradient", 1));
    Shard const before = shard;
    auto gradient = flat_normal(table_, "gradient", 1);
    gradient[table_.all().front().offset] = bad;
    gradient[table_.find("head").offset + 4200] = bad;
    gradient[table_.find("head").offset + 4201] = bad;
    auto const result = shard.step(2, 1e-3, gradient);
    EXPECT_FALSE(result.finite());
    EXPECT_TRUE(same_bits(shard.weight, before.weight));
    EXPECT_TRUE(same_bits(shard.m, before.m));
    EXPECT_TRUE(same_bits(shard.v, before.v));
    EXPECT_TRUE(same_bits(shard.compute, before.compute));
    auto const where = find_non_finite(shard.at, world_, table_, shard.range, shard.part(gradient));
    EXPECT_EQ(where.value_or(NonFinite{}).parameter, "head");
    EXPECT_EQ(where.value_or(NonFinite{}).element, 4200);
  }
}

TEST_F(AdamWTest, FiniteGradientsAreNotNamed) {
  Shard shard(table_, world_, {});
  auto gradient = flat_normal(table_, "gradient", 1);
  gradient[0] = std::numeric_limits<float>::max();
  EXPECT_FALSE(find_non_finite(shard.at, world_, table_, shard.range, shard.part(gradient)).has_value());
  auto const result = shard.step(1, 1e-3, gradient);  // its square is no fp32 number
  EXPECT_TRUE(result.finite());
  EXPECT_GT(result.gradient_norm, 3e38);
}

TEST_F(AdamWTest, ReportsTheNormOfEachParameter) {
  Shard shard(table_, world_, {});
  auto const gradient = flat_normal(table_, "gradient", 1);
  double const norm = shard.step(1, 1e-3, gradient).gradient_norm;
  auto const norms = shard.adamw.parameter_norms();
  ASSERT_EQ(norms.size(), table_.all().size());
  double squares = 0;
  for (std::size_t i = 0; i < norms.size(); ++i) {
    Parameter const& p = table_.all()[i];
    double expected = 0;
    for (std::int64_t k = 0; k < p.size(); ++k) expected += double{gradient[p.offset + k]} * gradient[p.offset + k];
    EXPECT_NEAR(norms[i], std::sqrt(expected), 1e-12 * std::sqrt(expected)) << p.name;
    squares += norms[i] * norms[i];
  }
  EXPECT_NEAR(std::sqrt(squares), norm, 1e-12 * norm);
}

TEST_F(AdamWTest, PlansWhatItHolds) {
  FlatRange const range = flat_range(table_, world_.size(), world_.rank());
  BufferPlan plan;
  auto const names = OptimizerBuffers::plan(plan, table_, range);
  EXPECT_EQ(plan.total_bytes("optimizer"), static_cast<std::size_t>(3 * 4 * range.size() + 8 * table_.num_blocks()));
  Buffers const buffers(plan);
  auto const state = names.state(buffers);
  EXPECT_EQ(state.weight.size(), static_cast<std::size_t>(range.size()));
  EXPECT_NE(state.m.data(), state.v.data());
  EXPECT_EQ(buffers[names.block_sums].size(), static_cast<std::size_t>(table_.num_blocks()));
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
  auto const step = [&](std::int64_t number, std::span<float const> g, std::span<bfloat16> compute) {
    shard.adamw.step(shard.at, self_, number, 1e-3, {shard.weight, shard.m, shard.v}, g, compute);
  };
  EXPECT_THROW(step(0, gradient, {}), std::logic_error);
  EXPECT_THROW(step(1, std::span(gradient).first(4096), {}), std::logic_error);
  EXPECT_THROW(step(1, gradient, std::span(shard.compute).first(4096)), std::logic_error);
  std::vector<double> too_few(1);
  EXPECT_THROW(AdamW({}, table_, shard.range, too_few), std::logic_error);
  AdamW not_mine({}, table_, {0, block_elements}, shard.sums);
  EXPECT_THROW(not_mine.step(shard.at, self_, 1, 1e-3, {}, {}, {}), std::logic_error);
}

}  // namespace
}  // namespace isotrain::test
