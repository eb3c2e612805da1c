#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <set>

#include "kernels/reduce.h"
#include "tests/support/kernel_test.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;

std::uint64_t hash(std::vector<float> const& x, std::uint64_t first = 0) {
  return kernels::hash(Cpu(1), x, first);
}

TEST(Hash, IsTheStatedSum) {
  for (std::int64_t const n : {0, 1, 15, 16, 17, 33, 70000}) {
    auto const x = random_values<float>(n, 1);
    for (std::uint64_t const first :
         {std::uint64_t{0}, std::uint64_t{5}, (std::uint64_t{1} << 32) - 20, ~std::uint64_t{0} - 9}) {
      std::uint64_t expected = 0;
      for (std::int64_t i = 0; i < n; ++i) expected += hash_mix(first + i, std::bit_cast<std::uint32_t>(x[i]));
      on_every_place([&](Cpu const& at) { EXPECT_EQ(kernels::hash(at, x, first), expected) << n; });
    }
  }
}

TEST(Hash, OfBfloat16IsTheStatedSum) {
  for (std::int64_t const n : {0, 1, 15, 16, 33, 70000}) {
    auto const x = random_values<bfloat16>(n, 1);
    for (std::uint64_t const first : {std::uint64_t{0}, (std::uint64_t{1} << 32) - 20}) {
      std::uint64_t expected = 0;
      for (std::int64_t i = 0; i < n; ++i) expected += hash_mix(first + i, x[i].bits);
      on_every_place([&](Cpu const& at) { EXPECT_EQ(kernels::hash(at, x, first), expected) << n; });
    }
  }
  // Rows of a tensor on several ranks; and every bit counts.
  auto const x = random_values<bfloat16>(12 * 33, 1);
  std::span<bfloat16 const> const all(x);
  std::uint64_t const whole = kernels::hash(Cpu(2), all, 0);
  EXPECT_EQ(kernels::hash(Cpu(1), all.subspan(5 * 33), 5 * 33) + kernels::hash(Cpu(1), all.first(5 * 33), 0), whole);
  EXPECT_NE(kernels::hash(Cpu(1), all.subspan(5 * 33), 0) + kernels::hash(Cpu(1), all.first(5 * 33), 0), whole);
  for (int bit = 0; bit < 16; ++bit) {
    auto y = x;
    y[77].bits = static_cast<std::uint16_t>(y[77].bits ^ 1u << bit);
    EXPECT_NE(kernels::hash(Cpu(1), y, 0), whole) << bit;
  }
}

/// The fingerprint of a run is in checkpoints and tests: it must not change by accident.
TEST(Hash, PinnedValues) {
  EXPECT_EQ(hash_mix(0, 0), 16294208416658607535u);
  EXPECT_EQ(hash_mix(1, 0), 14135772400868000056u);
  EXPECT_EQ(hash_mix(0, 0x3f800000), 18260225238054474293u);
  EXPECT_EQ(hash_mix(std::uint64_t{7} << 32, 1), 9648886400068060533u);
  EXPECT_EQ(hash({1, 2, 3, -4.5F}), 6930978403536898835u);
}

TEST(Hash, PartsAddUpToTheWhole) {
  auto const x = random_values<float>(1000, 1);
  std::uint64_t const whole = hash(x, 77);
  for (int const parts : {2, 3, 7, 1000}) {
    std::uint64_t sum = 0;
    for (int p = parts; p-- > 0;) {
      std::int64_t const begin = 1000 * p / parts, end = 1000 * (p + 1) / parts;
      sum += hash({x.begin() + begin, x.begin() + end}, 77 + begin);
    }
    EXPECT_EQ(sum, whole);
  }
  EXPECT_NE(hash({x.begin(), x.begin() + 500}, 77) + hash({x.begin() + 500, x.end()}, 578), whole);
}

TEST(Hash, EveryFlippedBitAndEverySwapChangesIt) {
  auto const x = random_values<float>(300, 1);
  std::set<std::uint64_t> seen = {hash(x)};
  std::size_t changes = 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (int bit = 0; bit < 32; ++bit) {
      auto y = x;
      y[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(y[i]) ^ 1u << bit);
      seen.insert(hash(y));
      ++changes;
    }
  }
  for (std::size_t i = 0; i < 100; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      auto y = x;
      std::swap(y[i], y[j]);
      seen.insert(hash(y));
      ++changes;
    }
  }
  EXPECT_EQ(seen.size(), changes);
}

TEST(Hash, SeesPositionsShiftsAndTheSignOfZero) {
  auto const x = random_values<float>(100, 1);
  std::set<std::uint64_t> seen, positions;
  for (int shift = 0; shift < 64; ++shift) {
    for (std::uint64_t const first : {std::uint64_t{1} << shift, static_cast<std::uint64_t>(shift * 3 + 5)}) {
      seen.insert(hash(x, first));
      positions.insert(first);
    }
  }
  EXPECT_EQ(seen.size(), positions.size());
  EXPECT_NE(hash({}), hash({0.0F}));
  EXPECT_NE(hash({0.0F}, 3), hash({-0.0F}, 3));
  EXPECT_NE(hash(std::vector<float>(10)), hash(std::vector<float>(11)));
  // Equal elements: moving a different one along must show, although the multiset stays the same.
  std::set<std::uint64_t> places;
  for (int i = 0; i < 1000; ++i) {
    std::vector<float> y(1000, 1.0F);
    y[i] = 2;
    places.insert(hash(y));
  }
  EXPECT_EQ(places.size(), 1000u);
}

/// Opposite swaps of neighbours cancel in hashes that are linear in the position.
TEST(Hash, OppositeChangesDoNotCancel) {
  std::vector<float> const x = {1, 2, 1, 2, 2, 1, 2, 1}, y = {2, 1, 2, 1, 1, 2, 1, 2};
  EXPECT_NE(hash(x), hash(y));
  EXPECT_NE(hash({1, 3, 2, 4}), hash({2, 2, 3, 3}));
}

/// Flipping any input bit flips each output bit in about half of all cases.
TEST(Hash, Avalanche) {
  constexpr int trials = 4000;
  for (int input = 0; input < 80; ++input) {
    std::array<int, 64> flips{};
    for (int t = 0; t < trials; ++t) {
      std::uint64_t position = Random(1, 2).bits(t) >> (t % 40);  // small and large positions
      std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(Random(3, 4).normal(t)));
      std::uint64_t const before = hash_mix(position, bits);
      if (input < 32) {
        bits ^= 1u << input;
      } else {
        position ^= std::uint64_t{1} << (input - 32);
      }
      std::uint64_t const changed = before ^ hash_mix(position, bits);
      for (int output = 0; output < 64; ++output) flips[output] += changed >> output & 1;
    }
    for (int output = 0; output < 64; ++output) {
      // 6 standard deviations of a fair coin, and 2 % for the finalizer's known weak spots.
      ASSERT_NEAR(static_cast<double>(flips[output]) / trials, 0.5, 6 * 0.5 / std::sqrt(trials) + 0.02)
          << "input bit " << input << ", output bit " << output;
    }
  }
}

}  // namespace
}  // namespace isotrain::kernels::test
