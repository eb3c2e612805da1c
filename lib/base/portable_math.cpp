#include "lib/base/portable_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

namespace isotrain::portable {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double smallest_normal = std::numeric_limits<double>::min();

/// Adding 1.5 * 2^52 rounds to an integer, which then stands in the low bits of the sum.
constexpr double round_to_integer = 0x1.8p52;
constexpr double ln2_high = 0x1.62e42fefa3800p-1;  // 42 bits: its product with an exponent is exact
constexpr double ln2_low = 0x1.ef35793c76730p-45;

/// The unevaluated sum high + low.
struct DoubleDouble {
  double high;
  double low;
};

DoubleDouble two_sum(double a, double b) {
  double const sum = a + b;
  double const b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

DoubleDouble two_product(double a, double b) {
  double const product = a * b;
  return {product, std::fma(a, b, -product)};
}

/// e^(x + low), |low| at most an ulp of x.
double exp_of_sum(double x, double low) {
  if (!(x >= -0x1.6232bdd7abcd2p9)) return x == x ? 0.0 : x;  // ln 2^-1022
  if (x > 0x1.62e42fefa39efp9) return infinity;               // ln of the largest number
  double const shifted = std::fma(x, 0x1.71547652b82fep0, round_to_integer);
  double const n = shifted - round_to_integer;
  double const r = std::fma(n, -ln2_low, std::fma(n, -ln2_high, x) + low);
  // The Taylor series: |r| < 0.347, and r^14 / 14! < 2^-57.
  double p = 1.0 / 6227020800.0;
  for (double const factorial :
       {479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0}) {
    p = std::fma(p, r, 1.0 / factorial);
  }
  p = std::fma(p, r, 0.5);
  p = 1.0 + std::fma(r * r, p, r);
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(p) + (std::bit_cast<std::uint64_t>(shifted) << 52));
}

/// x = 2^exponent * mantissa, the mantissa in [sqrt(1/2), sqrt(2)). x is normal and positive.
struct Split {
  double exponent;
  double mantissa;
};
Split split(double x) {
  auto const bits = std::bit_cast<std::int64_t>(x);
  std::int64_t const exponent = (bits - 0x3fe6a09e667f3bcd) >> 52;
  return {static_cast<double>(exponent), std::bit_cast<double>(bits - (exponent << 52))};
}

/// 2/(2j+1) z^(j-first) summed from j = first: the tail of the series of log((1+s)/(1-s)) = 2s + 2/3 s^3 + ..., z = s^2
/// < 0.0295.
double series(double z, int first) {
  double p = 0;
  for (int j = 12; j >= first; --j) p = std::fma(p, z, 2.0 / (2 * j + 1));
  return p;
}

/// log(x) to about 65 bits.
DoubleDouble log_double_double(double x) {
  auto const [k, m] = split(x);
  double const f = m - 1;  // exact
  auto const [d, d_low] = two_sum(m, 1);
  double const s = f / d;
  double const s_low = (std::fma(-s, d, f) - s * d_low) / d;
  auto [z, z_low] = two_product(s, s);
  z_low = std::fma(2 * s, s_low, z_low);
  // q = 2/3 z + 2/5 z^2 + ..., its first term in double-double.
  auto [q, q_low] = two_product(z, 0x1.5555555555555p-1);
  q_low += std::fma(z_low, 0x1.5555555555555p-1, z * 0x1.5555555555555p-55) + z * z * series(z, 2);
  auto [t, t_low] = two_product(s, q);
  t_low += std::fma(s, q_low, s_low * q);
  auto const first = two_sum(k * ln2_high, 2 * s);
  auto const second = two_sum(first.high, t);
  double const low = (first.low + second.low) + (std::fma(k, ln2_low, t_low) + 2 * s_low);
  return two_sum(second.high, low);
}

/// What is left of x after taking n quarter turns, |left| <= pi/4, and n mod 4.
struct Reduced {
  double angle;
  double low;
  int quadrant;
};
Reduced reduce_angle(double x) {
  double const shifted = std::fma(x, 0x1.45f306dc9c883p-1, round_to_integer);
  double const n = shifted - round_to_integer;
  DoubleDouble left{x, 0};
  // pi/2 in parts of 33 bits: their products with n (21 bits) are exact.
  for (double const part : {0x1.921fb54400000p0, 0x1.0b4611a600000p-34, 0x1.3198a2e000000p-69}) {
    auto const next = two_sum(left.high, -n * part);
    left = {next.high, left.low + next.low};
  }
  left = two_sum(left.high, std::fma(-n, 0x1.b839a252049c1p-104, left.low));
  return {left.high, left.low, static_cast<int>(std::bit_cast<std::uint64_t>(shifted) & 3)};
}

/// The Taylor series; |x| <= pi/4, so that the first terms left out are below 2^-62.
double sin_near_zero(double x, double low) {
  double const z = x * x;
  double p = 1.0 / 355687428096000.0;
  for (double const factorial : {-1307674368000.0, 6227020800.0, -39916800.0, 362880.0, -5040.0, 120.0, -6.0}) {
    p = std::fma(p, z, 1.0 / factorial);
  }
  return x + std::fma(x * z, p, std::fma(-0.5 * z, low, low));
}
double cos_near_zero(double x, double low) {
  double const z = x * x;
  double p = 1.0 / 20922789888000.0;
  for (double const factorial : {-87178291200.0, 479001600.0, -3628800.0, 40320.0, -720.0, 24.0}) {
    p = std::fma(p, z, 1.0 / factorial);
  }
  double const half = 0.5 * z;
  double const w = 1 - half;
  return w + (((1 - w) - half) + std::fma(z * z, p, -x * low));
}

double sin_of_quadrant(Reduced r, int quadrant) {
  double const y = quadrant & 1 ? cos_near_zero(r.angle, r.low) : sin_near_zero(r.angle, r.low);
  return quadrant & 2 ? -y : y;
}

}  // namespace

double exp(double x) {
  return exp_of_sum(x, 0);
}

double log(double x) {
  if (!(x >= smallest_normal)) return x > -smallest_normal ? -infinity : (x == x ? nan : x);
  if (x == infinity) return x;
  auto const [k, m] = split(x);
  double const f = m - 1;
  double const half_square = 0.5 * f * f;
  double const s = f / (2 + f);
  double const z = s * s;
  double const tail = std::fma(s, half_square + z * series(z, 1), k * ln2_low);
  return k * ln2_high - ((half_square - tail) - f);
}

double sin(double x) {
  if (!(std::abs(x) <= 0x1p20)) return nan;
  if (std::abs(x) < 0x1p-27) return x;
  auto const r = reduce_angle(x);
  return sin_of_quadrant(r, r.quadrant);
}

double cos(double x) {
  if (!(std::abs(x) <= 0x1p20)) return nan;
  auto const r = reduce_angle(x);
  return sin_of_quadrant(r, r.quadrant + 1);
}

double pow(double x, double y) {
  if (y == 0 || x == 1) return 1;
  if (x != x || y != y) return x + y;
  if (!(x >= smallest_normal)) return x > -smallest_normal ? (y > 0 ? 0 : infinity) : nan;
  if (x == infinity) return y > 0 ? infinity : 0;
  auto const l = log_double_double(x);
  double const high = y * l.high;
  if (!(std::abs(high) < 1000)) return high > 0 ? infinity : 0;
  return exp_of_sum(high, std::fma(y, l.high, -high) + y * l.low);
}

}  // namespace isotrain::portable
