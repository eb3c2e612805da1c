#include "kernels/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

#include "tests/support/kernel_test.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;

constexpr std::int64_t sizes[] = {0, 1, 15, 16, 17, 33, 1000, 40000};
float const nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// The stated order: 16 parts, then distances 8, 4, 2, 1.
double stated_sum(std::span<float const> x) {
  double parts[16] = {};
  for (std::size_t i = 0; i < x.size(); ++i) parts[i % 16] += static_cast<double>(x[i]) * x[i];
  for (int distance = 8; distance > 0; distance /= 2) {
    for (int i = 0; i < distance; ++i) parts[i] = parts[i] + parts[i + distance];
  }
  return parts[0];
}

TEST(SumOfSquares, IsTheStatedSum) {
  for (std::int64_t const n : sizes) {
    auto x = random_values<float>(n, 1);
    for (std::int64_t i = 0; i < n; ++i) x[i] = std::ldexp(x[i], static_cast<int>(i * 7 % 31));  // so that sums round
    double const expected = stated_sum(x);
    double plain = 0;
    for (float const v : x) plain += static_cast<double>(v) * v;
    EXPECT_NEAR(expected, plain, static_cast<double>(n) * 1e-16 * plain);
    EXPECT_TRUE(n < 1000 || expected != plain);  // the order matters for these numbers
    on_every_place([&](Cpu const&) { EXPECT_EQ(sum_of_squares(x), expected) << n; });
  }
}

TEST(SumOfSquares, OfBlocks) {
  auto const x = random_values<float>(1000, 1);
  for (std::int64_t const block : {1, 7, 16, 100, 999, 1000, 5000}) {
    std::vector<double> expected;
    for (std::int64_t i = 0; i < 1000; i += block) {
      expected.push_back(stated_sum(std::span(x).subspan(i, std::min<std::int64_t>(block, 1000 - i))));
    }
    on_every_place([&](Cpu const& at) {
      std::vector<double> sums(expected.size());
      block_sums_of_squares(at, sums, x, block);
      EXPECT_TRUE(same_bits(sums, expected)) << block;
    });
  }
  std::vector<double> sums(3);
  EXPECT_THROW(block_sums_of_squares(Cpu(1), sums, x, 100), std::logic_error);
  EXPECT_THROW(block_sums_of_squares(Cpu(1), sums, x, 0), std::logic_error);
  EXPECT_NO_THROW(block_sums_of_squares(Cpu(1), {}, {}, 8));
}

TEST(SumOfSquares, NotFiniteAndSubnormal) {
  EXPECT_TRUE(std::isnan(sum_of_squares(std::vector<float>{1, nan})));
  EXPECT_EQ(sum_of_squares(std::vector<float>{1, -infinity}), infinity);
  EXPECT_EQ(sum_of_squares(std::vector<float>{1e-40F, 1e-39F}), 0);
  EXPECT_GT(sum_of_squares(std::vector<float>{1e-37F}), 0);
}

template <class T>
class AddTest : public testing::Test {};
using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(AddTest, Types);

TYPED_TEST(AddTest, RoundsOnce) {
  using T = TypeParam;
  for (std::int64_t const n : sizes) {
    auto const a = random_values<T>(n, 1), b = random_values<T>(n, 2);
    std::vector<T> expected;
    for (std::int64_t i = 0; i < n; ++i) expected.push_back(from_float<T>(to_float(a[i]) + to_float(b[i])));
    on_every_place([&](Cpu const& at) {
      std::vector<T> y(n), in_place = a;
      add<T>(at, y, a, b);
      EXPECT_TRUE(same_bits(y, expected)) << n;
      add<T>(at, in_place, in_place, b);
      EXPECT_TRUE(same_bits(in_place, expected)) << n;
    });
  }
  std::vector<T> two(2), three(3);
  EXPECT_THROW(add<T>(Cpu(1), two, two, three), std::logic_error);
  EXPECT_THROW(add<T>(Cpu(1), three, two, three), std::logic_error);
}

/// From T and R: the sum is fp32, so that bf16 rounds once.
template <class Pair>
class AddRoundedTest : public testing::Test {};
using Pairs = testing::Types<std::pair<float, float>, std::pair<float, bfloat16>, std::pair<bfloat16, float>,
                             std::pair<bfloat16, bfloat16>>;
TYPED_TEST_SUITE(AddRoundedTest, Pairs);

TYPED_TEST(AddRoundedTest, RoundsOnce) {
  using T = typename TypeParam::first_type;
  using R = typename TypeParam::second_type;
  for (std::int64_t const n : sizes) {
    auto const sum = random_values<float>(n, 1);
    auto const residual = random_values<R>(n, 2);
    std::vector<T> with, without, twice_rounded;
    for (std::int64_t i = 0; i < n; ++i) {
      with.push_back(from_float<T>(sum[i] + to_float(residual[i])));
      without.push_back(from_float<T>(sum[i]));
      twice_rounded.push_back(from_float<T>(to_float(without.back()) + to_float(residual[i])));
    }
    if (n >= 1000) {
      EXPECT_EQ(same_bits(with, twice_rounded), (std::is_same_v<T, float>));
    }
    on_every_place([&](Cpu const& at) {
      std::vector<T> y(n);
      add_rounded<T, R>(at, y, sum, residual);
      EXPECT_TRUE(same_bits(y, with)) << n;
      add_rounded<T, R>(at, y, sum, {});
      EXPECT_TRUE(same_bits(y, without)) << n;
    });
  }
  std::vector<T> y(2);
  std::vector<float> const two(2), three(3);
  EXPECT_THROW((add_rounded<T, R>(Cpu(1), y, three, {})), std::logic_error);
  EXPECT_THROW((add_rounded<T, R>(Cpu(1), y, two, std::vector<R>(1))), std::logic_error);
}

TEST(Elementwise, AddScaleAndZero) {
  for (std::int64_t const n : sizes) {
    auto const x = random_values<float>(n, 1), start = random_values<float>(n, 2);
    on_every_place([&](Cpu const& at) {
      auto y = start;
      add(at, y, x);
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(y[i], start[i] + x[i]);
      y = start;
      scale(at, y, 0.3F);
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(y[i], start[i] * 0.3F);
      fill_zero(at, y);
      EXPECT_TRUE(same_bits(y, std::vector<float>(n)));
    });
  }
  std::vector<float> two(2), three(3);
  EXPECT_THROW(add(Cpu(1), two, three), std::logic_error);
}

TEST(FirstNonFinite, IsFoundWhereverItIs) {
  for (std::int64_t const n : sizes) {
    auto clean = random_values<float>(n, 1, 1e37);
    if (n > 2) clean[2] = std::numeric_limits<float>::denorm_min();
    on_every_place([&](Cpu const& at) {
      EXPECT_EQ(first_non_finite(at, clean), -1) << n;
      for (std::int64_t const at_index : {std::int64_t{0}, n / 2, n - 1}) {
        if (at_index < 0 || at_index >= n) continue;
        for (float const bad : {nan, -nan, infinity, -infinity}) {
          auto x = clean;
          x[at_index] = x[n - 1] = bad;
          EXPECT_EQ(first_non_finite(at, x), at_index) << n;
        }
      }
    });
  }
}

TEST(FirstNonFinite, LargestNumbersAreFinite) {
  EXPECT_EQ(first_non_finite(Cpu(1), std::vector<float>(40, std::numeric_limits<float>::max())), -1);
}

TEST(Convert, EveryBfloat16AndBack) {
  std::vector<bfloat16> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  on_every_place([&](Cpu const& at) {
    std::vector<float> wide(all.size());
    std::vector<bfloat16> back(all.size());
    convert(at, wide, all);
    convert(at, back, wide);
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::uint32_t const bits = std::bit_cast<std::uint32_t>(wide[i]);
      ASSERT_EQ(bits, static_cast<std::uint32_t>(i) << 16);
      std::uint16_t const quiet = std::isnan(wide[i]) ? 0x40 : 0;
      ASSERT_EQ(back[i].bits, i | quiet);
    }
  });
}

TEST(Convert, RoundsToNearestTiesToEven) {
  // Every bfloat16 with lower halves just around the tie, and the tie itself.
  std::vector<float> x;
  std::vector<bfloat16> expected;
  for (std::uint32_t high = 0; high < 1 << 16; ++high) {
    for (std::uint32_t const low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      std::uint32_t const bits = high << 16 | low;
      x.push_back(std::bit_cast<float>(bits));
      std::uint32_t const up = low > 0x8000 || (low == 0x8000 && high % 2 == 1);
      bool const is_nan = (bits & 0x7fffffff) > 0x7f800000;
      expected.push_back({static_cast<std::uint16_t>(is_nan ? high | 0x40 : high + up)});
    }
  }
  on_every_place([&](Cpu const& at) {
    std::vector<bfloat16> y(x.size());
    convert(at, y, x);
    EXPECT_TRUE(same_bits(y, expected));
  });
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(to_bfloat16(x[i]).bits, expected[i].bits);
}

TEST(Convert, SizesAndCopies) {
  for (std::int64_t const n : sizes) {
    auto const x = random_values<float>(n, 1);
    std::vector<float> copy(n);
    std::vector<bfloat16> y(n);
    convert(Cpu(2), copy, x);
    convert(Cpu(2), y, x);
    EXPECT_TRUE(same_bits(copy, x));
    EXPECT_TRUE(same_bits(y, random_values<bfloat16>(n, 1)));
  }
  std::vector<float> two(2);
  std::vector<bfloat16> three(3);
  EXPECT_THROW(convert(Cpu(1), three, two), std::logic_error);
  EXPECT_THROW(convert(Cpu(1), two, three), std::logic_error);
}

}  // namespace
}  // namespace isotrain::kernels::test
