#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "kernels/rope_table.h"
#include "tests/reference/rope.h"
#include "tests/support/kernel_test.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;
using Doubles = std::vector<double>;

constexpr double theta = 100;
constexpr std::int64_t rows = 5, heads = 3;
std::vector<std::int32_t> const positions = {0, 7, 7, 1, 29};

template <class T>
class RopeTest : public testing::Test {};
using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(RopeTest, Types);

/// Rotates `values` (rows, heads, dim) held with any padding between heads and rows.
template <class T>
std::vector<T> rotate(Cpu const& at, std::vector<T> const& values, std::int64_t dim, RopePairs pairs, Rotation rotation,
                      std::int64_t padding = 0) {
  Padded<T> m(rows * heads, dim, padding, values);
  Heads<T> const x{m.view().data, rows, heads, dim, heads * (dim + padding), dim + padding};
  rope<T>(at, x, rope_table(theta, dim, 30), positions, pairs, rotation);
  EXPECT_TRUE(m.padding_is_untouched());
  return m.values();
}

Doubles definition(Doubles const& x, std::int64_t dim, RopePairs pairs, double sign) {
  auto const frequency = rope_frequencies(theta, dim);
  Doubles all;
  for (std::int64_t i = 0; i < rows * heads; ++i) {
    Doubles angle;
    for (double const f : frequency) angle.push_back(sign * f * positions[i / heads]);
    auto const y =
        reference::rope({x.begin() + i * dim, x.begin() + (i + 1) * dim}, angle, pairs == RopePairs::half_split);
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

TEST(RopeDefinition, InverseIsTheDerivative) {
  for (auto const pairs : {RopePairs::interleaved, RopePairs::half_split}) {
    auto const x = to_doubles(random_values<float>(rows * heads * 6, 1));
    auto const dy = to_doubles(random_values<float>(rows * heads * 6, 2));
    expect_gradient([&](Doubles const& v) { return dot(dy, definition(v, 6, pairs, 1)); }, x,
                    definition(dy, 6, pairs, -1));
  }
}

TYPED_TEST(RopeTest, AgreesWithTheDefinition) {
  for (std::int64_t const dim : {2, 6, 14, 16, 18, 32, 34, 64}) {
    auto const values = random_values<TypeParam>(rows * heads * dim, dim);
    auto const x = to_doubles(values);
    for (auto const pairs : {RopePairs::interleaved, RopePairs::half_split}) {
      for (auto const rotation : {Rotation::forward, Rotation::inverse}) {
        auto const y = rotate(Cpu(1), values, dim, pairs, rotation, 3);
        // Table, product and sum: three roundings of terms no larger than a few.
        expect_close(y, definition(x, dim, pairs, rotation == Rotation::forward ? 1 : -1), 3 * 4 * eps);
      }
    }
  }
}

TYPED_TEST(RopeTest, SameBitsWithAnyThreadsInstructionSetAndStride) {
  for (std::int64_t const dim : {2, 18, 64}) {
    auto const values = random_values<TypeParam>(rows * heads * dim, dim);
    for (auto const pairs : {RopePairs::interleaved, RopePairs::half_split}) {
      auto const expected = rotate(Cpu(1), values, dim, pairs, Rotation::forward);
      on_every_place([&](Cpu const& at) {
        for (int const padding : {0, 1, 16}) {
          EXPECT_TRUE(same_bits(rotate(at, values, dim, pairs, Rotation::forward, padding), expected));
        }
      });
      EXPECT_FALSE(same_bits(rotate(Cpu(1), values, dim, pairs, Rotation::inverse), expected));
    }
  }
}

TYPED_TEST(RopeTest, ThreadsShareTheRows) {
  constexpr std::int64_t many = 500, dim = 64;
  auto const values = random_values<TypeParam>(many * heads * dim, 9);
  std::vector<std::int32_t> where;
  for (std::int32_t n = 0; n < many; ++n) where.push_back(n % 30);
  std::vector<TypeParam> alone;
  for (int const threads : {1, 2, 3}) {
    auto x = values;
    rope<TypeParam>(Cpu(threads), {x.data(), many, heads, dim, heads * dim, dim}, rope_table(theta, dim, 30), where,
                    RopePairs::half_split, Rotation::forward);
    if (threads == 1) alone = x;
    EXPECT_TRUE(same_bits(x, alone)) << threads;
    EXPECT_FALSE(same_bits(x, values));
  }
}

/// The two conventions are one rotation of permuted elements.
TYPED_TEST(RopeTest, BothPairingsGiveTheSameBits) {
  constexpr std::int64_t dim = 38;
  auto const values = random_values<TypeParam>(rows * heads * dim, 5);
  auto const permuted = [&](std::vector<TypeParam> const& x) {
    std::vector<TypeParam> y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      std::size_t const j = i % dim;
      y[i - j + j / 2 + j % 2 * (dim / 2)] = x[i];
    }
    return y;
  };
  auto const interleaved = rotate(Cpu(1), values, dim, RopePairs::interleaved, Rotation::forward);
  auto const half_split = rotate(Cpu(1), permuted(values), dim, RopePairs::half_split, Rotation::forward);
  EXPECT_TRUE(same_bits(permuted(interleaved), half_split));
}

TYPED_TEST(RopeTest, TouchesOnlyTheGivenDims) {
  auto const values = random_values<TypeParam>(rows * heads * 24, 5);
  auto copy = values;
  Heads<TypeParam> const x{copy.data(), rows, heads, 24, heads * 24, 24};
  rope<TypeParam>(Cpu(1), x.slice_dim(16, 8), rope_table(theta, 8, 30), positions, RopePairs::interleaved,
                  Rotation::forward);
  int changed = 0;
  for (std::size_t i = 0; i < copy.size(); ++i) {
    bool const differs = to_float(copy[i]) != to_float(values[i]);
    EXPECT_FALSE(differs && i % 24 < 16) << i;
    changed += differs;
  }
  EXPECT_GT(changed, 50);
}

TYPED_TEST(RopeTest, RefusesWhatDoesNotFit) {
  std::vector<TypeParam> data(60);
  Heads<TypeParam> const x{data.data(), 5, 1, 4, 4, 4}, odd{data.data(), 5, 1, 3, 4, 4};
  auto const table = rope_table(theta, 4, 30);
  auto const call = [&](Heads<TypeParam> h, std::span<float const> t, std::vector<std::int32_t> const& p) {
    rope<TypeParam>(Cpu(1), h, t, p, RopePairs::interleaved, Rotation::forward);
  };
  EXPECT_NO_THROW(call(x, table, positions));
  EXPECT_THROW(call(odd, table, positions), std::logic_error);
  EXPECT_THROW(call(x, table, {1, 2}), std::logic_error);
  EXPECT_THROW(call(x, table, {0, 1, 2, 3, 30}), std::logic_error);
  EXPECT_THROW(call(x, table, {0, 1, 2, 3, -1}), std::logic_error);
}

}  // namespace
}  // namespace isotrain::kernels::test
