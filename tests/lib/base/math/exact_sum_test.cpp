#include "lib/base/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "lib/device/cpu.h"

namespace isotrain::test {
namespace {

using Limits = std::numeric_limits<double>;

double sum_of(std::vector<double> const& values) {
  ExactSum sum;
  for (double const x : values) sum.add(x);
  return sum.value();
}

bool same_bits(double a, double b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

/// Finite numbers with exponents spread over [low, high], of both signs.
std::vector<double> numbers(std::size_t count, int low, int high, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::vector<double> values(count);
  for (double& x : values) {
    double const mantissa = static_cast<double>(static_cast<std::int64_t>(random())) * 0x1p-63;
    x = std::ldexp(mantissa, low + static_cast<int>(random() % static_cast<std::uint64_t>(high - low + 1)));
  }
  return values;
}

TEST(ExactSum, OfTwoNumbersIsTheirIeeeSum) {
  std::mt19937_64 random(1);
  int finite = 0;
  for (int i = 0; i < 500000; ++i) {
    std::uint64_t const bits = random();
    auto const a = std::bit_cast<double>(bits);
    // Every other partner is of about the same exponent, so that the two meet.
    auto const b = std::bit_cast<double>(i % 2 ? random() : bits ^ (random() >> 8) ^ (std::uint64_t{i % 4 == 0} << 63));
    double const expected = a + b;
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(sum_of({a, b})));
      continue;
    }
    ASSERT_TRUE(same_bits(sum_of({a, b}), expected + 0.0)) << a << " + " << b;  // never -0
    finite += std::isfinite(expected) ? 1 : 0;
  }
  EXPECT_GT(finite, 400000);
}

TEST(ExactSum, OfThreeNumbersIsAFusedMultiplyAdd) {
  auto const values = numbers(300000, -300, 300);
  int differences = 0;
  for (std::size_t i = 0; i + 2 < values.size(); i += 3) {
    double const a = values[i];
    double const b = values[i + 1];
    double const product = a * b;
    double const rest = std::fma(a, b, -product);  // a * b = product + rest
    double const c =
        std::ldexp(values[i + 2], std::ilogb(product) - std::ilogb(values[i + 2]) - static_cast<int>(i % 120));
    ASSERT_TRUE(same_bits(sum_of({rest, c, product}), std::fma(a, b, c))) << a << " * " << b << " + " << c;
    differences += product + rest + c == std::fma(a, b, c) ? 0 : 1;
  }
  EXPECT_GT(differences, 1000);  // plain sums do differ
}

TEST(ExactSum, OfManyNumbersIsRoundedOnce) {
  // 1024 numbers of 53 bits at one exponent: exact in 64 bits, as a long double or an integer.
  std::mt19937_64 random(3);
  int differences = 0;
  for (int trial = 0; trial < 200; ++trial) {
    std::int64_t exact = 0;
    double plain = 0;
    ExactSum sum;
    for (int i = 0; i < 1024; ++i) {
      std::int64_t const x = static_cast<std::int64_t>(random()) >> 10;
      exact += x;
      plain += static_cast<double>(x);
      sum.add(static_cast<double>(x));
    }
    EXPECT_EQ(sum.value(), static_cast<double>(exact));
    differences += plain == sum.value() ? 0 : 1;
  }
  EXPECT_GT(differences, 20);
}

TEST(ExactSum, DoesNotDependOnOrderOrGroups) {
  auto values = numbers(5000, -1000, 900);
  double const expected = sum_of(values);
  std::mt19937_64 random(4);
  bool plain_differs = false;
  double const plain = [&] {
    double sum = 0;
    for (double const x : values) sum += x;
    return sum;
  }();
  for (int trial = 0; trial < 50; ++trial) {
    std::ranges::shuffle(values, random);
    EXPECT_TRUE(same_bits(sum_of(values), expected));
    std::vector<ExactSum> groups(1 + random() % 9);
    for (double const x : values) groups[random() % groups.size()].add(x);
    ExactSum merged;
    for (ExactSum const& group : groups) merged.merge(group);
    EXPECT_TRUE(same_bits(merged.value(), expected));
    double again = 0;
    for (double const x : values) again += x;
    plain_differs |= again != plain;
  }
  EXPECT_TRUE(plain_differs);  // the numbers are such that order matters
}

TEST(ExactSum, EveryBitOfEveryNumberCounts) {
  auto values = numbers(5000, -1000, 900);
  int parts = 0;
  for (; sum_of(values) != 0; ++parts) values.push_back(-sum_of(values));
  EXPECT_GT(parts, 10);  // of 53 bits, from the exact sum's
  double const before = values[17];
  values[17] = std::nextafter(before, Limits::infinity());
  EXPECT_EQ(sum_of(values), values[17] - before);
  values[17] = std::nextafter(before, -Limits::infinity());
  EXPECT_EQ(sum_of(values), values[17] - before);
}

TEST(ExactSum, WordsOfRanksAddUp) {
  auto const values = numbers(4000, -400, 400, 5);
  for (std::size_t const ranks : {1, 2, 7, 64}) {
    std::vector<ExactSum> parts(ranks);
    for (std::size_t i = 0; i < values.size(); ++i) parts[i * i % ranks].add(values[i]);
    auto const total = parts[0].words();
    for (std::size_t r = 1; r < ranks; ++r) {
      auto const words = parts[r].words();
      for (std::size_t i = 0; i < words.size(); ++i) total[i] += words[i];
    }
    EXPECT_TRUE(same_bits(parts[0].value(), sum_of(values)));
    // And one can go on from there.
    parts[0].add(1);
    parts[0].merge(parts[0]);
    ExactSum expected;
    for (int twice = 0; twice < 2; ++twice) {
      for (double const x : values) expected.add(x);
      expected.add(1);
    }
    EXPECT_TRUE(same_bits(parts[0].value(), expected.value()));
  }
}

TEST(ExactSum, HalfwayCasesGoToEven) {
  double const one_up = 1 + 0x1p-52;
  EXPECT_EQ(sum_of({1, 0x1p-53}), 1);
  EXPECT_EQ(sum_of({one_up, 0x1p-53}), 1 + 0x1p-51);
  EXPECT_EQ(sum_of({1, 0x1p-53, 0x1p-1074}), one_up);
  EXPECT_EQ(sum_of({-1, -0x1p-53, -0x1p-1074}), -one_up);
  EXPECT_EQ(sum_of({one_up, 0x1p-53, -0x1p-1074}), one_up);
  EXPECT_EQ(sum_of({2 - 0x1p-52, 0x1p-53}), 2);  // a carry into the exponent
}

TEST(ExactSum, NothingIsLostToCancellationOrOverflowOnTheWay) {
  EXPECT_EQ(sum_of({1e308, 1, -1e308}), 1);
  EXPECT_EQ(sum_of({1e308, 0x1p-1074, -1e308}), 0x1p-1074);
  EXPECT_TRUE(same_bits(sum_of({1e308, -1e308}), 0.0));
  EXPECT_EQ(sum_of({Limits::max(), Limits::max(), -Limits::max()}), Limits::max());
  EXPECT_EQ(sum_of({Limits::max(), 0x1p969}), Limits::max());
  EXPECT_EQ(sum_of({Limits::max(), 0x1p970}), Limits::infinity());
  EXPECT_EQ(sum_of({-Limits::max(), -0x1p970, 1}), -Limits::max());
  EXPECT_EQ(sum_of({-Limits::max(), -Limits::max()}), -Limits::infinity());
}

TEST(ExactSum, ZerosAndSubnormalsInEitherMode) {
  for (bool const flushing : {false, true}) {
    std::optional<FlushToZero> mode;
    if (flushing) mode.emplace();
    double const tiny = std::bit_cast<double>(std::uint64_t{3});
    EXPECT_EQ(std::bit_cast<std::uint64_t>(sum_of({tiny, tiny})), 6u);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(sum_of({0x1p-1022, -tiny})), (std::uint64_t{1} << 52) - 3);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(sum_of({1, tiny, -1})), 3u);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(sum_of({})), 0u);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(sum_of({-0.0, -0.0})), 0u);
  }
}

TEST(ExactSum, InfinitiesAndNaN) {
  double const infinity = Limits::infinity();
  EXPECT_EQ(sum_of({1, infinity, -Limits::max(), infinity}), infinity);
  EXPECT_EQ(sum_of({-infinity, 1}), -infinity);
  EXPECT_TRUE(std::isnan(sum_of({infinity, 1, -infinity})));
  EXPECT_TRUE(std::isnan(sum_of({Limits::quiet_NaN(), 1})));
  EXPECT_TRUE(std::isnan(sum_of({-Limits::quiet_NaN(), infinity})));
  EXPECT_TRUE(std::isnan(sum_of({Limits::signaling_NaN()})));
  ExactSum merged;
  for (double const x : {infinity, -infinity}) {
    ExactSum part;
    part.add(x);
    merged.merge(part);
  }
  EXPECT_TRUE(std::isnan(merged.value()));
}

TEST(ExactSum, CarriesAreMovedOnBeforeTheyAreLost) {
  // Doubling reaches counts that adding cannot; all bits set and an odd place load every limb most.
  for (double const x : {1.9375, 2 - 0x1p-52, -(2 - 0x1p-52), 0x1.fffffffffffffp31, 0x1.fffffffffffffp-900}) {
    ExactSum sum;
    sum.add(x);
    for (int doublings = 0; doublings < 100; ++doublings) {
      EXPECT_EQ(sum.value(), std::ldexp(x, doublings));
      sum.merge(ExactSum(sum));
    }
  }
}

TEST(ExactSum, CountsBeyondTheHeadroomOfALimb) {
  // 32 bits set, all in one limb: without carries its 63 bits would be full after 2^31.
  constexpr std::uint64_t count = (std::uint64_t{1} << 31) + 12345;
  constexpr std::uint64_t ones = 0xffffffff;
  double const x = std::ldexp(static_cast<double>(ones), 32 * 34 - 1074);
  ExactSum sum;
  for (std::uint64_t i = 0; i < count; ++i) sum.add(x);
  EXPECT_EQ(sum.value(), std::ldexp(static_cast<double>(ones * count), 32 * 34 - 1074));
}

}  // namespace
}  // namespace isotrain::test
