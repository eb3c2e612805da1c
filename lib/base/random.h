#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

/// Random numbers that depend on logical coordinates only: (seed, stream, index), never on rank, thread or call order.
namespace isotrain {

using RandomBlock = std::array<std::uint32_t, 4>;

/// Philox4x32-10: 128 random bits for every (counter, key); neighbouring counters are independent.
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11.
RandomBlock philox4x32(RandomBlock counter, std::array<std::uint32_t, 2> key);

/// The stream that belongs to a name, e.g. "layers.3.attention.q_proj.weight": XXH64 of its characters.
std::uint64_t stream_id(std::string_view name);

/// One stream of random numbers: the seed is the key, stream and index are the counter, so no two (seed, stream, index)
/// share a block. Use a stream for one kind of number only: uniform(1) and normal(1) come from the same bits.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}
  Random(std::uint64_t seed, std::string_view name) : Random(seed, stream_id(name)) {}

  /// 128 random bits.
  RandomBlock block(std::uint64_t index) const;
  /// 64 random bits; two indices share a block.
  std::uint64_t bits(std::uint64_t index) const;
  /// Uniform in [0, 1), a multiple of 2^-24; four indices share a block.
  float uniform(std::uint64_t index) const;
  /// Uniform in [0, 1), a multiple of 2^-53; two indices share a block.
  double uniform_double(std::uint64_t index) const;
  /// Standard normal; two indices share a block. Source: Box and Muller, 1958.
  double normal(std::uint64_t index) const;

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
};

/// out[i] = stddev * normal(first_index + i), rounded once to fp32: any cut of a tensor gives the same elements.
void fill_normal(std::span<float> out, std::uint64_t first_index, std::uint64_t seed, std::uint64_t stream,
                 double stddev);

/// The place of `index` in a random order of [0, n) chosen by `key`: a bijection of [0, n) for every n >= 1, in
/// constant memory. A Feistel network over the next power of two, walked until it lands below n. Requires index < n.
/// Source: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002.
std::uint64_t permute(std::uint64_t index, std::uint64_t n, std::uint64_t key);

}  // namespace isotrain
