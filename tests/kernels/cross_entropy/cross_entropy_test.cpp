#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "kernels/cpu/math-inl.h"
#include "tests/reference/cross_entropy.h"
#include "tests/support/kernel_test.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;
using Doubles = std::vector<double>;

template <class T>
class CrossEntropyTest : public testing::Test {};
using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(CrossEntropyTest, Types);

constexpr float factor = 0.125F;

struct Case {
  std::int64_t rows, vocabulary;
  std::vector<float> logits;
  std::vector<std::int32_t> target;

  Case(std::int64_t r, std::int64_t v, double spread = 3)
      : rows(r), vocabulary(v), logits(random_values<float>(r * v, 1, spread)) {
    for (std::int64_t n = 0; n < r; ++n)
      target.push_back(static_cast<std::int32_t>(n % 4 == 3 ? ignored_target : n * 7 % v));
  }

  template <class T>
  struct Outputs {
    std::vector<float> loss, loss_alone;
    std::vector<T> dlogits;
    bool operator==(Outputs const& o) const { return same_bits(loss, o.loss) && same_bits(dlogits, o.dlogits); }
  };
  template <class T>
  Outputs<T> run(Cpu const& at, int slices = 1, std::int64_t padding = 0) const {
    Padded<float> in(rows, vocabulary, padding, logits);
    Padded<T> d(rows, vocabulary, padding);
    Outputs<T> out;
    out.loss.resize(rows);
    out.loss_alone.resize(rows);
    cross_entropy_forward(at, out.loss_alone, in.view(), target, slices);
    cross_entropy_forward_backward<T>(at, out.loss, d.view(), in.view(), target, slices, factor);
    EXPECT_TRUE(same_bits(out.loss, out.loss_alone));
    EXPECT_TRUE(d.padding_is_untouched());
    out.dlogits = d.values();
    return out;
  }
};

TEST(CrossEntropyDefinition, BackwardIsTheDerivative) {
  Case const c(5, 9, 1);
  auto const loss_sum = [&](Doubles const& v) {
    auto const loss = reference::cross_entropy(v, c.target, 9);
    return factor * std::accumulate(loss.begin(), loss.end(), 0.0);
  };
  auto const x = to_doubles(c.logits);
  expect_gradient(loss_sum, x, reference::cross_entropy_backward(x, c.target, 9, factor));
}

TYPED_TEST(CrossEntropyTest, AgreesWithTheDefinition) {
  for (std::int64_t const v : {1, 2, 15, 16, 17, 33, 1000}) {
    Case const c(6, v);
    auto const out = c.run<TypeParam>(Cpu(1), 2, 3);
    auto const x = to_doubles(c.logits);
    auto const loss = reference::cross_entropy(x, c.target, v);
    // The difference from the maximum rounds, up to 20 * eps in the exponent; exp, sum (v/16 + 5 roundings) and
    // quotient add to the relative error of the softmax; logarithm and subtraction add to the loss.
    double const relative = (20 + 2 + static_cast<double>(v) / 16 + 5 + 2) * eps;
    for (std::int64_t n = 0; n < c.rows; ++n) {
      ASSERT_NEAR(out.loss[n], loss[n], relative + 4 * eps * (std::abs(loss[n]) + 20)) << v;
    }
    auto const d = reference::cross_entropy_backward(x, c.target, v, factor);
    expect_close(out.dlogits, d, [&](std::size_t i) {
      return factor * relative * std::abs(d[i] / factor + 1) + 2 * eps * std::abs(d[i]);
    });
  }
}

/// Plain fp32 form of what the header states, one row.
std::vector<float> stated(std::vector<float> const& logits, std::int32_t target, int slices, float& loss) {
  namespace lanes = isotrain::kernels::HWY_NAMESPACE;
  auto const v = static_cast<std::int64_t>(logits.size());
  float const maximum = *std::max_element(logits.begin(), logits.end());
  std::int64_t const run = (v + slices - 1) / slices;
  std::vector<float> sums;
  for (std::int64_t first = 0; first < v; first += run) {
    float parts[16] = {};
    for (std::int64_t i = first; i < std::min(v, first + run); ++i) {
      parts[(i - first) % 16] += lanes::exponential(logits[i] - maximum);
    }
    for (int distance = 8; distance > 0; distance /= 2) {
      for (int i = 0; i < distance; ++i) parts[i] = parts[i] + parts[i + distance];
    }
    sums.push_back(parts[0]);
  }
  for (std::size_t distance = 1; distance < sums.size(); distance *= 2) {
    for (std::size_t i = 0; i + distance < sums.size(); i += 2 * distance) sums[i] = sums[i] + sums[i + distance];
  }
  loss = lanes::logarithm(sums[0]) + (maximum - logits[target]);
  std::vector<float> d;
  for (float const logit : logits) d.push_back(lanes::exponential(logit - maximum) * (factor / sums[0]));
  d[target] -= factor;
  return d;
}

TEST(CrossEntropy, IsExactlyWhatTheHeaderStates) {
  for (std::int64_t const v : {1, 5, 16, 100, 131}) {
    Case const c(3, v);
    for (int const slices : {1, 2, 3, 4, 5, 7, 8, 100}) {
      auto const out = c.run<float>(Cpu(1), slices);
      for (std::int64_t n = 0; n < c.rows; ++n) {
        float loss;
        auto const begin = static_cast<std::ptrdiff_t>(n * v), end = static_cast<std::ptrdiff_t>(n * v + v);
        auto const d = stated({c.logits.begin() + begin, c.logits.begin() + end}, c.target[n], slices, loss);
        EXPECT_EQ(out.loss[n], loss) << v << " " << slices;
        EXPECT_TRUE(same_bits(d, {out.dlogits.begin() + begin, out.dlogits.begin() + end})) << v << " " << slices;
      }
    }
  }
}

TYPED_TEST(CrossEntropyTest, SameBitsWithAnyThreadsInstructionSetAndStride) {
  for (std::int64_t const v : {1, 17, 6000}) {
    Case c(7, v);
    for (int const slices : {1, 3, 4}) {
      auto const expected = c.run<TypeParam>(Cpu(1), slices);
      on_every_place([&](Cpu const& at) {
        for (int const padding : {0, 1, 16}) EXPECT_TRUE(c.run<TypeParam>(at, slices, padding) == expected) << v;
      });
    }
  }
  Case const c(7, 500), other(7, 500, 3.01);
  EXPECT_FALSE(c.run<TypeParam>(Cpu(1)) == other.run<TypeParam>(Cpu(1)));
}

TYPED_TEST(CrossEntropyTest, RowsDoNotDependOnTheCutIntoCalls) {
  Case const c(9, 50);
  auto const whole = c.run<TypeParam>(Cpu(1), 3);
  Case part(4, 50);
  part.logits.assign(c.logits.begin() + 2 * 50, c.logits.begin() + 6 * 50);
  part.target.assign(c.target.begin() + 2, c.target.begin() + 6);
  auto const cut = part.run<TypeParam>(Cpu(1), 3);
  EXPECT_TRUE(same_bits(cut.loss, {whole.loss.begin() + 2, whole.loss.begin() + 6}));
  EXPECT_TRUE(same_bits(cut.dlogits, {whole.dlogits.begin() + 2 * 50, whole.dlogits.begin() + 6 * 50}));
}

TEST(CrossEntropy, SlicesChangeTheBitsAndTheRestDoesNot) {
  Case const c(40, 500);
  EXPECT_FALSE(same_bits(c.run<float>(Cpu(1), 1).dlogits, c.run<float>(Cpu(1), 4).dlogits));
}

TEST(CrossEntropy, GradientMayOverwriteTheLogits) {
  Case const c(5, 37);
  auto const expected = c.run<float>(Cpu(1), 2);
  auto buffer = c.logits;
  std::vector<float> loss(5);
  Matrix<float> const m(buffer.data(), 5, 37);
  cross_entropy_forward_backward<float>(Cpu(1), loss, m, m, c.target, 2, factor);
  EXPECT_TRUE(same_bits(buffer, expected.dlogits));
  EXPECT_TRUE(same_bits(loss, expected.loss));
}

TYPED_TEST(CrossEntropyTest, IgnoredRowsAndExtremes) {
  float const infinity = std::numeric_limits<float>::infinity();
  Case c(6, 3);
  c.target = {ignored_target, 0, 1, 2, 0, 0};
  c.logits = {1,        2, 3, 1e30F,  0, -1e30F, -infinity, 5, -infinity, 0, std::numeric_limits<float>::quiet_NaN(), 1,
              infinity, 0, 0, -1e30F, 0, 0};
  auto const out = c.run<TypeParam>(Cpu(1), 2);
  EXPECT_EQ(out.loss[0], 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(to_float(out.dlogits[i]), 0);
  EXPECT_EQ(out.loss[1], 0);
  EXPECT_EQ(out.loss[2], 0);
  EXPECT_EQ(to_float(out.dlogits[6]), 0);
  EXPECT_TRUE(std::isnan(out.loss[3]));
  EXPECT_TRUE(std::isnan(out.loss[4]));
  EXPECT_EQ(out.loss[5], 1e30F);
  EXPECT_EQ(to_float(out.dlogits[15]), -factor);
}

TYPED_TEST(CrossEntropyTest, NothingAndRefusals) {
  using T = TypeParam;
  EXPECT_TRUE((Case(0, 5).run<T>(Cpu(2)).loss.empty()));
  std::vector<float> logits(10), loss(2);
  std::vector<T> d(10);
  Matrix<float> const m(logits.data(), 2, 5);
  Matrix<T> const g(d.data(), 2, 5);
  std::vector<std::int32_t> const good = {0, 4}, high = {0, 5}, negative = {0, -1}, one = {0};
  auto const call = [&](Matrix<T> gradient, std::vector<std::int32_t> const& target, int slices) {
    cross_entropy_forward_backward<T>(Cpu(1), loss, gradient, m, target, slices, 1);
  };
  EXPECT_NO_THROW(call(g, good, 2));
  EXPECT_THROW(call(g, high, 2), std::logic_error);
  EXPECT_THROW(call(g, negative, 2), std::logic_error);
  EXPECT_THROW(call(g, one, 2), std::logic_error);
  EXPECT_THROW(call(g, good, 0), std::logic_error);
  EXPECT_THROW(call(g.slice_cols(0, 4), good, 2), std::logic_error);
  EXPECT_THROW(cross_entropy_forward(Cpu(1), loss, m, high, 1), std::logic_error);
  EXPECT_THROW(cross_entropy_forward(Cpu(1), loss, Matrix<float>(nullptr, 2, 0), good, 1), std::logic_error);
}

}  // namespace
}  // namespace isotrain::kernels::test
