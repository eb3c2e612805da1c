#include "lib/base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <vector>

#include "lib/base/digest.h"

namespace isotrain::test {
namespace {

TEST(Philox, MatchesThePublishedVectors) {
  // Known answers distributed with Random123.
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (RandomBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (RandomBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (RandomBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, SeedStreamAndIndexAllMatter) {
  std::set<RandomBlock> seen;
  std::uint64_t const high = std::uint64_t{1} << 40;
  for (std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, high}) {
    for (std::uint64_t stream : {std::uint64_t{0}, std::uint64_t{1}, high}) {
      for (std::uint64_t index : {std::uint64_t{0}, std::uint64_t{1}, high}) {
        seen.insert(Random(seed, stream).block(index));
      }
    }
  }
  EXPECT_EQ(seen.size(), 27u);
}

TEST(Random, StreamOfANameIsXxh64) {
  EXPECT_EQ(stream_id(""), 0xef46db3751d8e999u);
  EXPECT_NE(stream_id("layers.0"), stream_id("layers.1"));
  EXPECT_EQ(Random(7, "gate").bits(3), Random(7, stream_id("gate")).bits(3));
}

TEST(Random, UniformIsUniformAndBelowOne) {
  Random const random(1, 2);
  constexpr int count = 64000;
  std::vector<int> histogram(64);
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    float const u = random.uniform(i);
    ASSERT_GE(u, 0.0F);
    ASSERT_LT(u, 1.0F);
    ++histogram[static_cast<int>(u * 64)];
    double const d = random.uniform_double(i);
    ASSERT_GE(d, 0.0);
    ASSERT_LT(d, 1.0);
    sum += d;
  }
  // Each bin holds 1000 with a deviation of about 32; six deviations, and the same for the mean.
  for (int bin : histogram) EXPECT_NEAR(bin, 1000, 190);
  EXPECT_NEAR(sum / count, 0.5, 6 * std::sqrt(1.0 / 12 / count));
}

TEST(Random, NormalHasTheMomentsOfOne) {
  Random const random(3, "weights");
  constexpr int count = 100000;
  double sum = 0, squares = 0, cubes = 0, fourths = 0, products = 0;
  int beyond_two = 0;
  for (int i = 0; i < count; ++i) {
    double const x = random.normal(i);
    sum += x;
    squares += x * x;
    cubes += x * x * x;
    fourths += x * x * x * x;
    products += x * random.normal(i ^ 1);
    beyond_two += std::abs(x) > 2;
  }
  // Variances of 1, x, ... of one sample are 1, 2, 15, 96 and 1 (twice that for pairs counted twice); five deviations.
  double const root = std::sqrt(count);
  EXPECT_NEAR(sum / count, 0, 5 * std::sqrt(1) / root);
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2) / root);
  EXPECT_NEAR(cubes / count, 0, 5 * std::sqrt(15) / root);
  EXPECT_NEAR(fourths / count, 3, 5 * std::sqrt(96) / root);
  EXPECT_NEAR(products / count, 0, 5 * std::sqrt(2) / root);
  EXPECT_NEAR(beyond_two, 0.0455003 * count, 5 * std::sqrt(0.0455 * count));
}

TEST(Random, FillNormalDoesNotDependOnTheCut) {
  std::vector<float> whole(101), pieces(101);
  fill_normal(whole, 5, 1, 2, 0.02);
  for (std::size_t begin = 0, length = 1; begin < whole.size(); begin += length, length = length % 6 + 1) {
    length = std::min(length, whole.size() - begin);
    fill_normal(std::span(pieces).subspan(begin, length), 5 + begin, 1, 2, 0.02);
  }
  EXPECT_EQ(whole, pieces);
  for (int i = 0; i < 101; ++i) EXPECT_EQ(whole[i], static_cast<float>(0.02 * Random(1, 2).normal(5 + i)));
  fill_normal(pieces, 6, 1, 2, 0.02);
  EXPECT_NE(whole, pieces);
}

TEST(Random, NormalsNeverChange) {
  // Not from a publication: the bits of the first version. Other bits are other initial weights.
  std::vector<float> numbers(100000);
  fill_normal(numbers, 0, 1, stream_id("weights"), 0.02);
  EXPECT_EQ(Digest().update(std::span(numbers)).hex(), "5455076417d7db7e");
}

TEST(Permute, IsABijectionForEveryLength) {
  for (std::uint64_t n = 1; n <= 600; ++n) {
    for (std::uint64_t key : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}, n * 77}) {
      std::vector<char> hit(n);
      for (std::uint64_t i = 0; i < n; ++i) {
        std::uint64_t const p = permute(i, n, key);
        ASSERT_LT(p, n);
        ASSERT_FALSE(hit[p]) << "n " << n << " key " << key << " index " << i;
        hit[p] = 1;
      }
    }
  }
  for (std::uint64_t n : {4095u, 4096u, 4097u, 65535u, 65537u, 100003u}) {
    std::vector<char> hit(n);
    for (std::uint64_t i = 0; i < n; ++i) hit[permute(i, n, 5)] = 1;
    EXPECT_EQ(std::count(hit.begin(), hit.end(), 1), static_cast<std::ptrdiff_t>(n)) << n;
  }
}

TEST(Permute, WorksAtTheEndsOfTheRange) {
  EXPECT_EQ(permute(0, 1, 9), 0u);
  std::uint64_t const huge = ~std::uint64_t{0};
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 1000; ++i) seen.insert(permute(huge - 1 - i, huge, 3));
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_THROW(permute(5, 5, 0), std::logic_error);
}

TEST(Permute, AllOrdersOfThreeAreAboutEquallyLikely) {
  std::map<std::vector<std::uint64_t>, int> orders;
  for (std::uint64_t key = 0; key < 24000; ++key) {
    std::vector<std::uint64_t> order;
    for (std::uint64_t i = 0; i < 3; ++i) order.push_back(permute(i, 3, key));
    ++orders[order];
  }
  // Six orders, 4000 each, deviation about 58. The bound is loose: cycle walking makes them only nearly equal.
  EXPECT_EQ(orders.size(), 6u);
  for (auto const& [order, times] : orders) EXPECT_NEAR(times, 4000, 800);
}

TEST(Permute, SeparatesNeighbours) {
  constexpr std::uint64_t n = 10007;
  int near = 0;
  double distance = 0;
  for (std::uint64_t i = 0; i + 1 < n; ++i) {
    double const gap = std::abs(static_cast<double>(permute(i, n, 11)) - static_cast<double>(permute(i + 1, n, 11)));
    near += gap < 10;
    distance += gap;
  }
  // Two random places are n/3 apart on average (deviation n/sqrt(18)), and nearer than 10 in a share of about 18/n.
  EXPECT_NEAR(distance / (n - 1) / n, 1.0 / 3, 6.0 / std::sqrt(18.0 * n));
  EXPECT_LT(near, 18 + 6 * 5);
}

}  // namespace
}  // namespace isotrain::test
