#include "kernels/mla.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/support/kernel_test.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;

template <class T>
class MlaTest : public testing::Test {};
using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(MlaTest, Types);

constexpr std::int64_t rows = 24, heads = 12;  // enough for several threads at the larger widths

/// A view of a padded matrix (rows * heads, dim) as heads.
template <class T>
Heads<T> as_heads(Padded<T>& m) {
  auto const v = m.view();
  return {v.data, rows, heads, v.cols, heads * v.row_stride, v.row_stride};
}

template <class T>
struct Split {
  std::vector<T> nope, shared;
  bool operator==(Split const& o) const { return same_bits(nope, o.nope) && same_bits(shared, o.shared); }
};
template <class T>
Split<T> split(Cpu const& at, std::vector<T> const& dk, std::int64_t dn, std::int64_t dr, int slices,
               std::int64_t padding) {
  Padded<T> k(rows * heads, dn + dr, padding, dk), nope(rows * heads, dn, padding), shared(rows, dr, padding);
  mla_split_key_gradients<T>(at, as_heads(nope), shared.view(), as_heads(k), slices);
  EXPECT_TRUE(nope.padding_is_untouched() && shared.padding_is_untouched());
  return {nope.values(), shared.values()};
}

TYPED_TEST(MlaTest, KeysAreTheOwnPartThenTheSharedOne) {
  using T = TypeParam;
  for (auto const& [dn, dr] : {std::pair<std::int64_t, std::int64_t>{8, 4}, {1, 1}, {128, 64}}) {
    auto const nope = random_values<T>(rows * heads * dn, 1), shared = random_values<T>(rows * dr, 2);
    on_every_place([&](Cpu const& at) {
      Padded<T> k(rows * heads, dn + dr, 3), n(rows * heads, dn, 1, nope), s(rows, dr, 2, shared);
      mla_assemble_keys<T>(at, as_heads(k), as_heads(n), s.view());
      EXPECT_TRUE(k.padding_is_untouched());
      auto const values = k.values();
      for (std::int64_t i = 0; i < rows * heads * (dn + dr); ++i) {
        std::int64_t const head = i / (dn + dr), j = i % (dn + dr);
        EXPECT_EQ(values[i], j < dn ? nope[head * dn + j] : shared[head / heads * dr + j - dn]);
      }
    });
  }
}

TYPED_TEST(MlaTest, SharedGradientIsSummedInTheStatedOrder) {
  using T = TypeParam;
  for (auto const& [dn, dr] : {std::pair<std::int64_t, std::int64_t>{8, 4}, {1, 1}, {16, 18}, {128, 64}}) {
    std::int64_t const d = dn + dr;
    auto const dk = random_values<T>(rows * heads * d, 1);
    for (int const slices : {1, 2, 3, 4, 6, 12}) {
      Split<T> expected;
      for (std::int64_t i = 0; i < rows * heads * d; ++i) {
        if (i % d < dn) expected.nope.push_back(dk[i]);
      }
      for (std::int64_t i = 0; i < rows * dr; ++i) {
        std::vector<float> sums(slices, 0.0F);
        for (std::int64_t head = 0; head < heads; ++head) {
          float& sum = sums[head / (heads / slices)];
          sum = sum + to_float(dk[(i / dr * heads + head) * d + dn + i % dr]);
        }
        for (int distance = 1; distance < slices; distance *= 2) {
          for (int s = 0; s + distance < slices; s += 2 * distance) sums[s] = sums[s] + sums[s + distance];
        }
        expected.shared.push_back(from_float<T>(sums[0]));
      }
      on_every_place([&](Cpu const& at) {
        for (int const padding : {0, 1, 16}) {
          EXPECT_TRUE(split(at, dk, dn, dr, slices, padding) == expected) << dn << " " << slices;
        }
      });
    }
  }
}

/// Ranks with parts of the heads: fp32 subtrees that add up to what one rank rounds.
TYPED_TEST(MlaTest, PartsOfTheHeadsAreSubtrees) {
  using T = TypeParam;
  constexpr std::int64_t dn = 16, dr = 18, d = dn + dr;
  auto const dk = random_values<T>(rows * heads * d, 1);
  constexpr int slices = 4;
  auto const whole = split(Cpu(1), dk, dn, dr, slices, 0);
  on_every_place([&](Cpu const& at) {
    for (int const ranks : {1, 2, 4}) {
      std::int64_t const own = heads / ranks;
      Padded<T> k(rows * heads, d, 1, dk), nope(rows * heads, dn, 1);
      std::vector<std::vector<float>> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        auto of_rank = [&](auto all) {
          all.data = all.at(0, rank * own);
          all.heads = own;
          return all;
        };
        Padded<float> part(rows, dr, 1);
        mla_split_key_gradients_partial<T>(at, of_rank(as_heads(nope)), part.view(), of_rank(as_heads(k)),
                                           slices / ranks);
        EXPECT_TRUE(part.padding_is_untouched());
        parts.push_back(part.values());
      }
      EXPECT_TRUE(same_bits(nope.values(), whole.nope));
      std::vector<T> shared;
      float first_part = 0;
      for (std::size_t i = 0; i < whole.shared.size(); ++i) {
        std::vector<float> sums;
        for (auto const& part : parts) sums.push_back(part[i]);
        for (std::size_t distance = 1; distance < sums.size(); distance *= 2) {
          for (std::size_t s = 0; s + distance < sums.size(); s += 2 * distance) sums[s] = sums[s] + sums[s + distance];
        }
        shared.push_back(from_float<T>(sums[0]));
        first_part = std::max(first_part, std::abs(parts[0][i] - to_float(from_float<T>(parts[0][i]))));
      }
      EXPECT_TRUE(same_bits(shared, whole.shared)) << ranks;
      EXPECT_EQ(first_part > 0, sizeof(T) == 2) << "partial sums are not rounded";
    }
  });
}

TEST(Mla, SlicesChangeTheBits) {
  auto const dk = random_values<float>(rows * heads * 24, 1);
  EXPECT_FALSE(split(Cpu(1), dk, 16, 8, 1, 0) == split(Cpu(1), dk, 16, 8, 4, 0));
}

/// <split(dk), (nope, shared)> = <dk, assemble(nope, shared)>: one is the other's derivative. Small integers: exact.
TYPED_TEST(MlaTest, SplitIsTheDerivativeOfAssemble) {
  using T = TypeParam;
  constexpr std::int64_t dn = 3, dr = 2;
  auto const integers = [](std::int64_t count, int seed) {
    std::vector<T> x;
    for (std::int64_t i = 0; i < count; ++i) x.push_back(from_float<T>(static_cast<float>(i * seed % 7 - 3)));
    return x;
  };
  auto const dk = integers(rows * heads * (dn + dr), 5), nope = integers(rows * heads * dn, 3),
             shared = integers(rows * dr, 2);
  auto const d = split(Cpu(1), dk, dn, dr, 4, 0);
  Padded<T> k(rows * heads, dn + dr, 0), n(rows * heads, dn, 0, nope), s(rows, dr, 0, shared);
  mla_assemble_keys<T>(Cpu(1), as_heads(k), as_heads(n), s.view());
  EXPECT_EQ(dot(to_doubles(d.nope), to_doubles(nope)) + dot(to_doubles(d.shared), to_doubles(shared)),
            dot(to_doubles(dk), to_doubles(k.values())));
}

TYPED_TEST(MlaTest, RefusesWhatDoesNotFit) {
  using T = TypeParam;
  std::vector<T> data(100);
  Heads<T> const k{data.data(), 2, 4, 6, 24, 6}, nope{data.data(), 2, 4, 4, 16, 4}, fewer{data.data(), 2, 3, 4, 16, 4};
  Matrix<T> const shared(data.data(), 2, 2), wide(data.data(), 2, 3), spread(data.data(), 2, 2, 1, 2);
  EXPECT_NO_THROW(mla_split_key_gradients<T>(Cpu(1), nope, shared, k, 2));
  EXPECT_THROW(mla_split_key_gradients<T>(Cpu(1), nope, shared, k, 3), std::logic_error);
  EXPECT_THROW(mla_split_key_gradients<T>(Cpu(1), nope, shared, k, 0), std::logic_error);
  EXPECT_THROW(mla_assemble_keys<T>(Cpu(1), k, nope, wide), std::logic_error);
  EXPECT_THROW(mla_assemble_keys<T>(Cpu(1), k, fewer, shared), std::logic_error);
  EXPECT_THROW(mla_assemble_keys<T>(Cpu(1), k, nope, spread), std::logic_error);
}

}  // namespace
}  // namespace isotrain::kernels::test
