#include "lib/base/portable_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "lib/device/cpu.h"

namespace isotrain::portable::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
double const nan = std::numeric_limits<double>::quiet_NaN();

/// A plain generator of well spread doubles in [low, high].
class Spread {
 public:
  double operator()(double low, double high) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (static_cast<double>(state_ >> 11) * 0x1p-53);
  }

 private:
  std::uint64_t state_ = 1;
};

/// Error in units of the last place; the definition has 64 bits of mantissa, so it is good to 0.001.
double ulp_error(double y, long double exact) {
  int const exponent = std::max(std::ilogb(static_cast<double>(exact)), -1022);
  return static_cast<double>(std::abs(y - exact) / std::ldexp(1.0L, exponent - 52));
}

double worst_over(int count, double low, double high, auto const& ours, auto const& exact) {
  Spread spread;
  double worst = 0;
  for (int i = 0; i < count; ++i) {
    double const x = spread(low, high);
    worst = std::max(worst, ulp_error(ours(x), exact(static_cast<long double>(x))));
  }
  return worst;
}

constexpr int points = 200000;

TEST(PortableMath, ErrorOfExp) {
  for (auto const& [low, high] : {std::pair{-708.3, 709.7}, {-1.0, 1.0}, {-1e-8, 1e-8}}) {
    EXPECT_LT(worst_over(points, low, high, exp, [](long double x) { return std::exp(x); }), 1.0) << low;
  }
}

TEST(PortableMath, ErrorOfLog) {
  for (auto const& [low, high] :
       {std::pair{0x1p-1022, 1e-300}, {1e-3, 1.0}, {0.69, 1.5}, {0.999999, 1.000001}, {1.0, 1e6}, {1e300, 1.7e308}}) {
    EXPECT_LT(worst_over(points, low, high, log, [](long double x) { return std::log(x); }), 1.0) << low;
  }
}

TEST(PortableMath, ErrorOfSinAndCos) {
  for (double const high : {1e-6, 0.8, 6.3, 200.0, 163840.0, 0x1p20}) {
    EXPECT_LT(worst_over(points, -high, high, sin, [](long double x) { return std::sin(x); }), 1.0) << high;
    EXPECT_LT(worst_over(points, -high, high, cos, [](long double x) { return std::cos(x); }), 1.0) << high;
  }
}

TEST(PortableMath, SinAndCosNextToTheirZeros) {
  double worst = 0;
  for (int n = 1; n < 600000; n += 7) {
    double const x = n * 0x1.921fb54442d18p0;
    long double const exact = n % 2 ? std::cos(static_cast<long double>(x)) : std::sin(static_cast<long double>(x));
    worst = std::max(worst, ulp_error(n % 2 ? cos(x) : sin(x), exact));
  }
  EXPECT_LT(worst, 1.0);
}

TEST(PortableMath, ErrorOfPow) {
  Spread spread;
  double worst = 0;
  for (int i = 0; i < 2 * points; ++i) {
    double const x = std::exp(spread(-20, 20));
    double const y = spread(-35, 35);
    worst = std::max(worst, ulp_error(pow(x, y), std::pow(static_cast<long double>(x), static_cast<long double>(y))));
  }
  for (double const beta : {0.9, 0.95, 0.999}) {
    for (int step = 1; step < 5000; ++step) {
      worst = std::max(worst, ulp_error(pow(beta, step), std::pow(static_cast<long double>(beta), step)));
    }
  }
  EXPECT_LT(worst, 1.5);
  EXPECT_GT(worst, 0.5);  // nothing is perfect: something was compared
}

TEST(PortableMath, SpecialValues) {
  EXPECT_EQ(exp(0), 1);
  EXPECT_EQ(exp(-0.0), 1);
  EXPECT_EQ(exp(infinity), infinity);
  EXPECT_EQ(exp(-infinity), 0);
  EXPECT_EQ(exp(709.79), infinity);
  EXPECT_EQ(exp(-708.4), 0);
  EXPECT_GE(exp(-708.39), std::numeric_limits<double>::min());
  EXPECT_TRUE(std::isnan(exp(nan)));

  EXPECT_EQ(log(1), 0);
  EXPECT_EQ(log(0), -infinity);
  EXPECT_EQ(log(-0.0), -infinity);
  EXPECT_EQ(log(1e-310), -infinity);
  EXPECT_EQ(log(infinity), infinity);
  EXPECT_TRUE(std::isnan(log(-1)));
  EXPECT_TRUE(std::isnan(log(-infinity)));
  EXPECT_TRUE(std::isnan(log(nan)));

  EXPECT_EQ(sin(0), 0);
  EXPECT_TRUE(std::signbit(sin(-0.0)));
  EXPECT_EQ(cos(0), 1);
  EXPECT_EQ(sin(1e-300), 1e-300);
  for (double const x : {infinity, -infinity, 0x1.000002p20, nan}) {
    EXPECT_TRUE(std::isnan(sin(x))) << x;
    EXPECT_TRUE(std::isnan(cos(x))) << x;
  }

  EXPECT_EQ(pow(3, 0), 1);
  EXPECT_EQ(pow(nan, 0), 1);
  EXPECT_EQ(pow(1, nan), 1);
  EXPECT_EQ(pow(2, 10), 1024);
  EXPECT_EQ(pow(10, 3), 1000);
  EXPECT_EQ(pow(4, -0.5), 0.5);
  EXPECT_EQ(pow(0, 2), 0);
  EXPECT_EQ(pow(0, -2), infinity);
  EXPECT_EQ(pow(infinity, 0.1), infinity);
  EXPECT_EQ(pow(infinity, -0.1), 0);
  EXPECT_EQ(pow(2, infinity), infinity);
  EXPECT_EQ(pow(0.5, infinity), 0);
  EXPECT_EQ(pow(10, 400), infinity);
  EXPECT_EQ(pow(10, -400), 0);
  EXPECT_TRUE(std::isnan(pow(-2, 2)));
  EXPECT_TRUE(std::isnan(pow(nan, 2)));
  EXPECT_TRUE(std::isnan(pow(2, nan)));
}

/// The bits of many results in one number.
std::uint64_t digest_of_results() {
  Spread spread;
  std::uint64_t digest = 0;
  auto const add = [&](double y) { digest = digest * 0x9e3779b97f4a7c15u + std::bit_cast<std::uint64_t>(y); };
  for (int i = 0; i < 20000; ++i) {
    add(exp(spread(-750, 750)));
    add(log(std::bit_cast<double>(static_cast<std::uint64_t>(spread(0, 9.2e18)))));
    add(sin(spread(-0x1p20, 0x1p20)));
    add(cos(spread(-10, 10)));
    add(pow(spread(0, 10), spread(-400, 400)));
  }
  return digest;
}

TEST(PortableMath, SameBitsOnEveryMachineAndInEitherMode) {
  std::uint64_t const pinned = 3191892995421012779u;
  EXPECT_EQ(digest_of_results(), pinned);
  FlushToZero const mode;
  EXPECT_EQ(digest_of_results(), pinned);
}

}  // namespace
}  // namespace isotrain::portable::test
