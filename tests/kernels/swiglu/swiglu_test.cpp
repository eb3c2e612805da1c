#include "kernels/swiglu.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/reference/swiglu.h"
#include "tests/support/kernel_test.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;
using reference::Doubles;

template <class T>
class SwigluTest : public testing::Test {};
using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(SwigluTest, Types);

template <class T>
struct Case {
  std::int64_t rows, cols;
  std::vector<T> gate, up, dy;

  Case(std::int64_t r, std::int64_t c)
      : rows(r),
        cols(c),
        gate(random_values<T>(r * c, 1, 4)),
        up(random_values<T>(r * c, 2)),
        dy(random_values<T>(r * c, 3)) {}

  struct Outputs {
    std::vector<T> y, dgate, dup;
    bool operator==(Outputs const& o) const {
      return same_bits(y, o.y) && same_bits(dgate, o.dgate) && same_bits(dup, o.dup);
    }
  };
  Outputs run(Cpu const& at, std::int64_t padding = 0) const {
    Padded<T> g(rows, cols, padding, gate), u(rows, cols, 2, up), d(rows, cols, padding, dy);
    Padded<T> y(rows, cols, padding), dgate(rows, cols, padding), dup(rows, cols, 1);
    swiglu_forward<T>(at, y.view(), g.view(), u.view());
    swiglu_backward<T>(at, dgate.view(), dup.view(), d.view(), g.view(), u.view());
    for (auto* m : {&y, &dgate, &dup}) EXPECT_TRUE(m->padding_is_untouched());
    return {y.values(), dgate.values(), dup.values()};
  }
};

TEST(SwigluDefinition, BackwardIsTheDerivative) {
  auto const gate = to_doubles(random_values<float>(20, 1, 2)), up = to_doubles(random_values<float>(20, 2));
  auto const dy = to_doubles(random_values<float>(20, 3));
  auto const d = reference::swiglu_backward(dy, gate, up);
  expect_gradient([&](Doubles const& v) { return dot(dy, reference::swiglu(v, up)); }, gate, d.gate);
  expect_gradient([&](Doubles const& v) { return dot(dy, reference::swiglu(gate, v)); }, up, d.up);
}

TYPED_TEST(SwigluTest, AgreesWithTheDefinition) {
  for (std::int64_t const cols : {1, 15, 16, 17, 33, 100}) {
    Case<TypeParam> c(4, cols);
    c.gate[0] = from_float<TypeParam>(-80.0F);
    c.gate[1] = from_float<TypeParam>(80.0F);
    c.gate[2] = from_float<TypeParam>(0.0F);
    auto const out = c.run(Cpu(1), 3);
    auto const gate = to_doubles(c.gate), up = to_doubles(c.up), dy = to_doubles(c.dy);
    auto const y = reference::swiglu(gate, up);
    auto const d = reference::swiglu_backward(dy, gate, up);
    // The sigmoid is good to 2.5 ulp, 5 roundings at most; each product adds one.
    expect_close(out.y, y, [&](std::size_t i) { return 7 * eps * std::abs(y[i]); });
    expect_close(out.dup, d.up, [&](std::size_t i) { return 7 * eps * std::abs(d.up[i]); });
    // 1 + gate (1 - s) may cancel (near gate = -1.28), so its error counts in full.
    expect_close(out.dgate, d.gate, [&](std::size_t i) {
      double const s = 1 / (1 + std::exp(-gate[i]));
      return 10 * eps * std::abs(dy[i] * up[i] * s) * (1 + std::abs(gate[i]));
    });
  }
}

TYPED_TEST(SwigluTest, SameBitsWithAnyThreadsInstructionSetAndStride) {
  for (std::int64_t const cols : {1, 17, 64, 2000}) {
    Case<TypeParam> c(30, cols);
    auto const expected = c.run(Cpu(1));
    on_every_place([&](Cpu const& at) {
      for (int const padding : {0, 1, 16}) EXPECT_TRUE(c.run(at, padding) == expected) << cols;
    });
    c.gate[0] = from_float<TypeParam>(to_float(c.gate[0]) + 1);  // the comparison can fail
    EXPECT_FALSE(c.run(Cpu(1)) == expected);
  }
}

TYPED_TEST(SwigluTest, GradientsMayOverwriteTheInputs) {
  using T = TypeParam;
  Case<T> const c(3, 37);
  auto const expected = c.run(Cpu(1));
  auto gate = c.gate, up = c.up;
  Matrix<T> const g(gate.data(), 3, 37), u(up.data(), 3, 37);
  auto dy = c.dy;
  swiglu_backward<T>(Cpu(1), g, u, Matrix<T>(dy.data(), 3, 37), g, u);
  EXPECT_TRUE(same_bits(gate, expected.dgate));
  EXPECT_TRUE(same_bits(up, expected.dup));
}

TYPED_TEST(SwigluTest, ExtremesAndNotANumber) {
  using T = TypeParam;
  float const infinity = std::numeric_limits<float>::infinity();
  Case<T> c(1, 5);
  float const gates[] = {infinity, -1e30F, std::numeric_limits<float>::quiet_NaN(), 1e30F, -100};
  for (int i = 0; i < 5; ++i) {
    c.gate[i] = from_float<T>(gates[i]);
    c.up[i] = c.dy[i] = from_float<T>(1.0F);
  }
  auto const out = c.run(Cpu(1));
  EXPECT_EQ(to_float(out.y[0]), infinity);
  EXPECT_EQ(to_float(out.y[1]), 0);
  EXPECT_TRUE(std::isnan(to_float(out.y[2])));
  EXPECT_EQ(to_float(out.y[3]), to_float(c.gate[3]));
  EXPECT_EQ(to_float(out.dgate[3]), 1);
  EXPECT_EQ(to_float(out.y[4]), 0);
  EXPECT_EQ(to_float(out.dgate[4]), 0);
}

TYPED_TEST(SwigluTest, NothingAndShapesThatDoNotFit) {
  using T = TypeParam;
  EXPECT_TRUE(Case<T>(0, 5).run(Cpu(2)).y.empty());
  std::vector<T> data(100);
  Matrix<T> const m(data.data(), 2, 4), wide(data.data(), 2, 5), spread(data.data(), 2, 4, 1, 2);
  EXPECT_THROW(swiglu_forward<T>(Cpu(1), m, wide, m), std::logic_error);
  EXPECT_THROW(swiglu_forward<T>(Cpu(1), m, m, spread), std::logic_error);
  EXPECT_THROW(swiglu_backward<T>(Cpu(1), m, wide, m, m, m), std::logic_error);
  EXPECT_THROW(swiglu_backward<T>(Cpu(1), m, m, m, m, wide), std::logic_error);
}

}  // namespace
}  // namespace isotrain::kernels::test
