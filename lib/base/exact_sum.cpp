#include "lib/base/exact_sum.h"

#include <algorithm>
#include <limits>

namespace isotrain {

void ExactSum::add_special(std::uint64_t bits) {
  bool const is_nan = (bits & ((std::uint64_t{1} << 52) - 1)) != 0;
  words_[is_nan ? nan : bits >> 63 ? minus_infinity : plus_infinity] += 1;
}

void ExactSum::merge(ExactSum const& other) {
  for (std::size_t i = 0; i < num_words; ++i) words_[i] += other.words_[i];
  terms_ += other.terms_;
  if (terms_ > max_terms) carry();
}

void ExactSum::carry() {
  for (std::size_t i = 0; i + 1 < num_limbs; ++i) {
    words_[i + 1] += words_[i] >> 32;
    words_[i] &= static_cast<std::int64_t>(limb_mask);
  }
  terms_ = 1;
}

std::span<std::int64_t> ExactSum::words() {
  carry();
  terms_ = max_terms;  // the caller may add up to 2^28 times 2^32 to each limb
  return words_;
}

double ExactSum::value() const {
  using Limits = std::numeric_limits<double>;
  if (words_[nan] > 0 || (words_[plus_infinity] > 0 && words_[minus_infinity] > 0)) return Limits::quiet_NaN();
  if (words_[plus_infinity] > 0) return Limits::infinity();
  if (words_[minus_infinity] > 0) return -Limits::infinity();

  ExactSum magnitude = *this;
  magnitude.carry();
  bool const negative = magnitude.words_[num_limbs - 1] < 0;
  if (negative) {
    for (auto& word : magnitude.words_) word = -word;
    magnitude.carry();
  }
  auto const limb = [&](std::size_t i) { return static_cast<std::uint64_t>(magnitude.words_[i]); };
  std::size_t top = num_limbs;
  while (top > 0 && limb(top - 1) == 0) --top;
  if (top == 0) return 0;
  std::size_t const width = 32 * (top - 1) + static_cast<std::size_t>(std::bit_width(limb(top - 1)));
  std::uint64_t constexpr infinity = std::uint64_t{0x7ff} << 52;
  std::uint64_t const sign = std::uint64_t{negative} << 63;
  if (width > 2098) return std::bit_cast<double>(infinity | sign);

  // Bits below `place` are rounded away; there are none of a subnormal number.
  std::size_t const place = width > 53 ? width - 53 : 0;
  auto const bits_from = [&](std::size_t begin) {  // 53 of them at least
    std::size_t const i = begin / 32;
    std::size_t const shift = begin % 32;
    return limb(i) >> shift | limb(i + 1) << (32 - shift) | (shift > 0 ? limb(i + 2) << (64 - shift) : 0);
  };
  std::uint64_t mantissa = bits_from(place) & ((std::uint64_t{1} << 53) - 1);
  if (place > 0) {
    std::size_t const half = place - 1;
    bool const up = limb(half / 32) >> half % 32 & 1;
    bool below = (limb(half / 32) & ((std::uint64_t{1} << half % 32) - 1)) != 0;
    for (std::size_t i = 0; i < half / 32 && !below; ++i) below = limb(i) != 0;
    if (up && (below || mantissa % 2 == 1)) mantissa += 1;
  }
  // A mantissa of 53 bits adds one to the exponent, one that was rounded up to 2^53 another.
  return std::bit_cast<double>(((static_cast<std::uint64_t>(place) << 52) + mantissa) | sign);
}

}  // namespace isotrain
