// The polynomials of kernels/cpu/math-inl.h: error against double, special values, the same bits on every instruction
// set, in either floating-point mode, and lane by lane.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/elementwise/math_test.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

template <class F>
void apply(float* y, float const* x, std::int64_t n, F const& f) {
  for (std::int64_t i = 0; i < n; i += block_lanes) store_first(f(load_first(x + i, n - i)), y + i, n - i);
}
void apply_exponential(float* y, float const* x, std::int64_t n) {
  apply(y, x, n, [](F32x16 v) { return exponential(v); });
}
void apply_logarithm(float* y, float const* x, std::int64_t n) {
  apply(y, x, n, [](F32x16 v) { return logarithm(v); });
}
void apply_sigmoid(float* y, float const* x, std::int64_t n) {
  apply(y, x, n, [](F32x16 v) { return sigmoid(v); });
}
void scalar_exponential(float* y, float const* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = exponential(x[i]);
}
void scalar_logarithm(float* y, float const* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = logarithm(x[i]);
}
void scalar_sigmoid(float* y, float const* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = sigmoid(x[i]);
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "tests/support/isa.h"

namespace isotrain::kernels {
HWY_EXPORT(apply_exponential);
HWY_EXPORT(apply_logarithm);
HWY_EXPORT(apply_sigmoid);
HWY_EXPORT(scalar_exponential);
HWY_EXPORT(scalar_logarithm);
HWY_EXPORT(scalar_sigmoid);
}  // namespace isotrain::kernels

namespace isotrain::kernels::test {
namespace {

using Values = std::vector<float>;
constexpr float infinity = std::numeric_limits<float>::infinity();
float const nan = std::numeric_limits<float>::quiet_NaN();

Values run(auto const& function, Values const& x) {
  Values y(x.size());
  function(y.data(), x.data(), static_cast<std::int64_t>(x.size()));
  return y;
}
Values exponential(Values const& x) {
  return run(HWY_DYNAMIC_DISPATCH(apply_exponential), x);
}
Values logarithm(Values const& x) {
  return run(HWY_DYNAMIC_DISPATCH(apply_logarithm), x);
}
Values sigmoid(Values const& x) {
  return run(HWY_DYNAMIC_DISPATCH(apply_sigmoid), x);
}

bool same_bits(Values const& a, Values const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Every `stride`-th of all 2^32 bit patterns: both signs, subnormals, infinities, NaNs.
Values all_floats(std::uint64_t stride) {
  Values x;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += stride) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  return x;
}

/// Largest error in units of the last place of the correctly rounded result, over results that are normal numbers.
double worst_ulp(Values const& x, Values const& y, auto const& definition) {
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const exact = definition(static_cast<double>(x[i]));
    if (!(std::abs(exact) >= 0x1p-126 && std::abs(exact) <= 0x1.fffffep127)) continue;
    double const ulp = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
    worst = std::max(worst, std::abs(y[i] - exact) / ulp);
  }
  return worst;
}

constexpr std::uint64_t sweep = 509;  // 8.4 million floats, odd so that all low bits vary

TEST(Polynomials, ErrorOfExponential) {
  auto const x = all_floats(sweep);
  double const worst = worst_ulp(x, exponential(x), [](double v) { return std::exp(v); });
  RecordProperty("worst_ulp", std::to_string(worst));
  EXPECT_LT(worst, 1.0);
  EXPECT_GT(worst, 0.5);  // a perfect score would mean that nothing was compared
}

TEST(Polynomials, ErrorOfLogarithm) {
  auto x = all_floats(sweep);
  for (float v = 0.6F; v < 1.6F; v += 1e-7F) x.push_back(v);  // where the result passes through zero
  double const worst = worst_ulp(x, logarithm(x), [](double v) { return v >= 0x1p-126 ? std::log(v) : 0.0; });
  RecordProperty("worst_ulp", std::to_string(worst));
  EXPECT_LT(worst, 1.0);
  EXPECT_GT(worst, 0.5);
}

TEST(Polynomials, ErrorOfSigmoid) {
  auto const x = all_floats(sweep);
  double const worst = worst_ulp(x, sigmoid(x), [](double v) { return 1 / (1 + std::exp(-v)); });
  RecordProperty("worst_ulp", std::to_string(worst));
  EXPECT_LT(worst, 2.5);
  EXPECT_GT(worst, 0.5);
}

TEST(Polynomials, SpecialValues) {
  float const largest = std::numeric_limits<float>::max();
  float const smallest = std::numeric_limits<float>::min();
  float const subnormal = std::numeric_limits<float>::denorm_min();

  auto const e = exponential({0, -0.0F, infinity, -infinity, 88.73F, -87.34F, largest, -largest, subnormal, nan});
  EXPECT_TRUE(same_bits({e.begin(), e.end() - 1}, {1, 1, infinity, 0, infinity, 0, infinity, 0, 1}));
  EXPECT_TRUE(std::isnan(e.back()));
  EXPECT_EQ(exponential({-87.33654F})[0], std::exp(-87.33654F));
  EXPECT_GE(exponential({-87.33654F})[0], smallest);
  EXPECT_LT(exponential({88.72283F})[0], infinity);

  auto const l = logarithm({1, 0, -0.0F, subnormal, -subnormal, infinity, -1, -infinity, -largest, nan});
  EXPECT_TRUE(same_bits({l.begin(), l.begin() + 6}, {0, -infinity, -infinity, -infinity, -infinity, infinity}));
  for (int i = 6; i < 10; ++i) EXPECT_TRUE(std::isnan(l[i])) << i;
  EXPECT_NEAR(logarithm({smallest})[0], -126 * std::log(2.0), 1e-5);

  auto const s = sigmoid({0, -0.0F, infinity, -infinity, 40, -87.34F, -largest, largest, nan});
  EXPECT_TRUE(same_bits({s.begin(), s.end() - 1}, {0.5F, 0.5F, 1, 0, 1, 0, 0, 1}));
  EXPECT_TRUE(std::isnan(s.back()));
}

TEST(Polynomials, ResultsAreNeverSubnormal) {
  auto const x = all_floats(sweep);
  for (auto const& y : {exponential(x), sigmoid(x)}) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_FALSE(y[i] != 0 && std::abs(y[i]) < std::numeric_limits<float>::min()) << x[i];
    }
  }
}

TEST(Polynomials, SameBitsOnEveryInstructionSetAndInEitherMode) {
  isotrain::test::RestoreIsa const restore;
  auto const x = all_floats(16 * sweep);
  auto const isas = isotrain::test::available_isas();
  Cpu const first(1, Bf16Class::tiles, isas.front());
  std::vector<Values> const expected = {exponential(x), logarithm(x), sigmoid(x)};
  EXPECT_FALSE(same_bits(expected[0], run(
                                          [](float* y, float const* v, std::int64_t n) {
                                            for (std::int64_t i = 0; i < n; ++i)
                                              y[i] = std::nextafter(std::exp(v[i]), 0.0F);
                                          },
                                          x)));  // the comparison can fail
  for (Isa const isa : isas) {
    Cpu const at(1, Bf16Class::tiles, isa);
    for (bool const flush : {false, true}) {
      std::optional<FlushToZero> mode;
      if (flush) mode.emplace();
      EXPECT_TRUE(same_bits(exponential(x), expected[0])) << isa_name();
      EXPECT_TRUE(same_bits(logarithm(x), expected[1])) << isa_name();
      EXPECT_TRUE(same_bits(sigmoid(x), expected[2])) << isa_name();
      EXPECT_TRUE(same_bits(run(HWY_DYNAMIC_DISPATCH(scalar_exponential), x), expected[0])) << isa_name();
      EXPECT_TRUE(same_bits(run(HWY_DYNAMIC_DISPATCH(scalar_logarithm), x), expected[1])) << isa_name();
      EXPECT_TRUE(same_bits(run(HWY_DYNAMIC_DISPATCH(scalar_sigmoid), x), expected[2])) << isa_name();
    }
  }
}

TEST(Polynomials, ALanesResultIgnoresItsNeighbours) {
  Values const noise = {nan, infinity, -infinity, 1e30F, -1e-30F, 3, 200, -200, 0, -1, 5, 6, 7, 8, 9};
  for (int lane = 0; lane < 16; ++lane) {
    Values x = noise;
    x.insert(x.begin() + lane, 0.75F);
    EXPECT_EQ(exponential(x)[lane], exponential({0.75F})[0]);
    EXPECT_EQ(logarithm(x)[lane], logarithm({0.75F})[0]);
    EXPECT_EQ(sigmoid(x)[lane], sigmoid({0.75F})[0]);
  }
}

}  // namespace
}  // namespace isotrain::kernels::test
#endif  // HWY_ONCE
