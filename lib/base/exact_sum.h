#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace isotrain {

/// The sum of any finite doubles, exact until value() rounds it once: the same bits in whatever order, groups and ranks
/// they were added (the problem: Demmel and Nguyen, "Parallel reproducible summation", IEEE ToC 2015). Numbers are
/// added as integers into a fixed-point number that spans all of fp64 (Kulisch and Miranker, "Computer arithmetic in
/// theory and practice", 1981), so no floating-point mode matters. 568 bytes; an add() takes a few nanoseconds.
///
/// There is no practical limit to how many numbers may be added (2^77 of the largest); carries are moved on every 2^28.
class ExactSum {
 public:
  void add(double x);
  void merge(ExactSum const& other);

  /// The sum rounded to nearest even: +0 for an empty or vanishing sum, infinity if it is beyond fp64. NaN if a NaN or
  /// both infinities were added, else the infinity that was.
  double value() const;

  /// The whole state, so that ranks can add theirs element by element, at most 2^28 of them:
  ///   comm.sum(total.words()); total.value();
  std::span<std::int64_t> words();

 private:
  /// Limb i counts multiples of 2^(32 i - 1074). 64 bits hold it, so carries may wait.
  static constexpr std::size_t num_limbs = 67;
  static constexpr std::uint64_t limb_mask = 0xffffffff;
  static constexpr std::int64_t max_terms = std::int64_t{1} << 28;
  enum Special : std::size_t { nan = num_limbs, plus_infinity, minus_infinity, num_words };

  void add_special(std::uint64_t bits);
  /// Leaves every limb in [0, 2^32) but the last, which has the sign.
  void carry();

  std::array<std::int64_t, num_words> words_{};  // limbs, lowest first, then how often each Special came
  std::int64_t terms_ = 0;                       // no limb is beyond 2^32 times this
};

inline void ExactSum::add(double x) {
  auto const bits = std::bit_cast<std::uint64_t>(x);
  std::uint64_t const exponent = bits >> 52 & 0x7ff;
  if (exponent == 0x7ff) return add_special(bits);
  std::uint64_t const normal = exponent != 0;
  std::uint64_t const mantissa = (bits & ((std::uint64_t{1} << 52) - 1)) | normal << 52;
  std::uint64_t const place = exponent - normal;  // x is mantissa * 2^(place - 1074)
  std::uint64_t const low = (mantissa & limb_mask) << place % 32;
  std::uint64_t const high = (mantissa >> 32) << place % 32;
  auto const negative = -static_cast<std::int64_t>(bits >> 63);
  auto const with_sign = [&](std::uint64_t part) { return (static_cast<std::int64_t>(part) ^ negative) - negative; };
  if (terms_ >= max_terms) carry();
  terms_ += 1;
  std::int64_t* const limbs = words_.data() + place / 32;
  limbs[0] += with_sign(low & limb_mask);
  limbs[1] += with_sign((low >> 32) + (high & limb_mask));
  limbs[2] += with_sign(high >> 32);
}

}  // namespace isotrain
