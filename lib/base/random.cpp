#include "lib/base/random.h"

#include <xxhash.h>

#include <bit>
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/portable_math.h"

namespace isotrain {
namespace {

std::uint64_t join(std::uint32_t low, std::uint32_t high) {
  return (std::uint64_t{high} << 32) | low;
}

/// The finalizer of SplitMix64: every bit of the result depends on every bit of x.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

RandomBlock philox4x32(RandomBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    std::uint64_t const product0 = std::uint64_t{0xD2511F53u} * counter[0];
    std::uint64_t const product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

std::uint64_t stream_id(std::string_view name) {
  return XXH64(name.data(), name.size(), 0);
}

RandomBlock Random::block(std::uint64_t index) const {
  auto const low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  auto const high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  return philox4x32({low(index), high(index), low(stream_), high(stream_)}, {low(seed_), high(seed_)});
}

std::uint64_t Random::bits(std::uint64_t index) const {
  RandomBlock const b = block(index / 2);
  return index % 2 == 0 ? join(b[0], b[1]) : join(b[2], b[3]);
}

float Random::uniform(std::uint64_t index) const {
  return static_cast<float>(block(index / 4)[index % 4] >> 8) * 0x1p-24F;
}

double Random::uniform_double(std::uint64_t index) const {
  return static_cast<double>(bits(index) >> 11) * 0x1p-53;
}

namespace {

struct NormalPair {
  double even;
  double odd;
};

NormalPair normal_pair(RandomBlock const& b) {
  constexpr double two_pi = 0x1.921fb54442d18p+2;
  // The first uniform is never 0, where the logarithm would be infinite.
  double const radius = std::sqrt(-2 * portable::log((static_cast<double>(join(b[0], b[1]) >> 12) + 0.5) * 0x1p-52));
  double const angle = two_pi * (static_cast<double>(join(b[2], b[3]) >> 11) * 0x1p-53);
  return {radius * portable::cos(angle), radius * portable::sin(angle)};
}

}  // namespace

double Random::normal(std::uint64_t index) const {
  NormalPair const pair = normal_pair(block(index / 2));
  return index % 2 == 0 ? pair.even : pair.odd;
}

void fill_normal(std::span<float> out, std::uint64_t first_index, std::uint64_t seed, std::uint64_t stream,
                 double stddev) {
  Random const random(seed, stream);
  for (std::size_t i = 0; i < out.size();) {
    std::uint64_t const index = first_index + i;
    NormalPair const pair = normal_pair(random.block(index / 2));
    if (index % 2 == 0) out[i++] = static_cast<float>(stddev * pair.even);
    if (i < out.size()) out[i++] = static_cast<float>(stddev * pair.odd);
  }
}

std::uint64_t permute(std::uint64_t index, std::uint64_t n, std::uint64_t key) {
  expects(index < n, "index < n");
  int const width = std::bit_width(n - 1);
  int const low_width = (width + 1) / 2;
  std::uint64_t const low_mask = (std::uint64_t{1} << low_width) - 1;
  std::uint64_t const high_mask = (std::uint64_t{1} << (width - low_width)) - 1;
  do {
    std::uint64_t low = index & low_mask;
    std::uint64_t high = index >> low_width;
    // Ten pairs of rounds: halves of one or two bits need many before all orders are about equally likely.
    for (std::uint64_t round = 0; round < 20; round += 2) {
      high ^= mix(mix(key + round * 0x9e3779b97f4a7c15u) + low) & high_mask;
      low ^= mix(mix(key + (round + 1) * 0x9e3779b97f4a7c15u) + high) & low_mask;
    }
    index = (high << low_width) | low;
  } while (index >= n);
  return index;
}

}  // namespace isotrain
