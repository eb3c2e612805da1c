#include "kernels/rmsnorm.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/reference/rmsnorm.h"
#include "tests/support/kernel_test.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;
using reference::Doubles;
using reference::Rmsnorm;

struct Shape {
  std::int64_t rows;
  std::int64_t cols;
};
constexpr Shape shapes[] = {{3, 1}, {2, 15}, {5, 16}, {4, 17}, {3, 33}, {6, 128}, {2, 145}, {40, 500}};
constexpr float epsilon = 1e-5F;

template <class T>
class RmsnormTest : public testing::Test {};
using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(RmsnormTest, Types);

/// All outputs of all four kernels for one input.
template <class T>
struct Outputs {
  std::vector<T> y, again, dx, dx_added;
  std::vector<float> rstd, dgain;

  bool operator==(Outputs const& o) const {
    return same_bits(y, o.y) && same_bits(again, o.again) && same_bits(dx, o.dx) && same_bits(dx_added, o.dx_added) &&
           same_bits(rstd, o.rstd) && same_bits(dgain, o.dgain);
  }
};

template <class T>
struct Inputs {
  Shape shape;
  std::vector<T> x, dy;
  std::vector<float> gain;

  explicit Inputs(Shape s)
      : shape(s),
        x(random_values<T>(s.rows * s.cols, 1, 2)),
        dy(random_values<T>(s.rows * s.cols, 2)),
        gain(random_values<float>(s.cols, 3)) {}

  Rmsnorm definition() const { return {to_doubles(gain), epsilon}; }

  Outputs<T> run(Cpu const& at, std::int64_t padding = 0) const {
    auto const [rows, cols] = shape;
    Padded<T> px(rows, cols, padding, x), pdy(rows, cols, padding + 1, dy), y(rows, cols, padding),
        again(rows, cols, 3);
    Padded<T> dx(rows, cols, padding), dx_added(rows, cols, 2, x);
    std::vector<float> rstd(rows), dgain(cols, 0.5F);
    rmsnorm_forward<T>(at, y.view(), rstd, px.view(), gain, epsilon);
    rmsnorm_apply<T>(at, again.view(), rstd, px.view(), gain);
    rmsnorm_backward_input<T>(at, dx.view(), pdy.view(), px.view(), rstd, gain);
    rmsnorm_backward_input<T>(at, dx_added.view(), pdy.view(), px.view(), rstd, gain, Accumulate::yes);
    rmsnorm_backward_gain<T>(at, dgain, pdy.view(), px.view(), rstd);
    for (auto* m : {&y, &again, &dx, &dx_added}) EXPECT_TRUE(m->padding_is_untouched());
    return {y.values(), again.values(), dx.values(), dx_added.values(), rstd, dgain};
  }
};

TEST(RmsnormDefinition, BackwardIsTheDerivative) {
  auto const x = to_doubles(random_values<float>(3 * 7, 1));
  auto const dy = to_doubles(random_values<float>(3 * 7, 2));
  Rmsnorm const at{to_doubles(random_values<float>(7, 3)), 0.1};
  expect_gradient([&](Doubles const& v) { return dot(dy, at.forward(v)); }, x, at.backward_input(dy, x));
  expect_gradient(
      [&](Doubles const& v) {
        return dot(dy, Rmsnorm{v, 0.1}.forward(x));
      },
      at.gain, at.backward_gain(dy, x));
}

TYPED_TEST(RmsnormTest, AgreesWithTheDefinition) {
  for (auto const shape : shapes) {
    Inputs<TypeParam> const in(shape);
    auto const out = in.run(Cpu(1), 5);
    auto const definition = in.definition();
    Doubles const x = to_doubles(in.x), dy = to_doubles(in.dy);
    auto const d = static_cast<double>(shape.cols);
    // The sum of squares has d/16 + 4 roundings of positive terms; rstd takes half of its error and 3 roundings more.
    double const rstd_error = (d / 32 + 6) * eps;
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      double const exact = definition.rstd(x, row);
      ASSERT_NEAR(out.rstd[row], exact, rstd_error * exact);
    }
    auto const y = definition.forward(x);
    expect_close(out.y, y, [&](std::size_t i) { return (rstd_error + 2 * eps) * std::abs(y[i]); });

    // dx is the difference of two terms; the second is a sum of d terms of any sign.
    auto const dx = definition.backward_input(dy, x);
    auto const slack = [&](std::size_t i) {
      std::size_t const row = i / shape.cols;
      double const r = definition.rstd(x, row);
      double absolute = 0;
      for (std::int64_t j = 0; j < shape.cols; ++j) {
        std::size_t const k = row * shape.cols + j;
        absolute += std::abs(definition.gain[j] * dy[k] * x[k]);
      }
      double const second = std::abs(x[i]) * r * r * r / d * absolute;
      return (rstd_error + 4 * eps) * std::abs(r * definition.gain[i % shape.cols] * dy[i]) +
             (3 * rstd_error + (d / 16 + 10) * eps) * second;
    };
    expect_close(out.dx, dx, slack);
    Doubles sum = dx;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
    expect_close(out.dx_added, sum,
                 [&](std::size_t i) { return slack(i) + eps * (std::abs(sum[i]) + std::abs(dx[i])); });

    auto const dgain = definition.backward_gain(dy, x);
    for (std::int64_t j = 0; j < shape.cols; ++j) {
      double absolute = 0.5;
      for (std::int64_t row = 0; row < shape.rows; ++row) {
        absolute += std::abs(dy[row * shape.cols + j] * x[row * shape.cols + j]) * definition.rstd(x, row);
      }
      double const rows = static_cast<double>(shape.rows);
      ASSERT_NEAR(out.dgain[j], dgain[j] + 0.5, (rstd_error + (rows + 3) * eps) * absolute);
    }
  }
}

TYPED_TEST(RmsnormTest, SameBitsWithAnyThreadsInstructionSetAndStride) {
  for (auto const shape : shapes) {
    Inputs<TypeParam> in(shape);
    auto const expected = in.run(Cpu(1));
    EXPECT_TRUE(same_bits(expected.again, expected.y));
    on_every_place([&](Cpu const& at) {
      for (int const padding : {0, 1, 16}) EXPECT_TRUE(in.run(at, padding) == expected) << shape.cols;
    });
    in.x[0] = from_float<TypeParam>(to_float(in.x[0]) + 1);  // the comparison can fail
    EXPECT_FALSE(in.run(Cpu(1)) == expected);
  }
}

TYPED_TEST(RmsnormTest, RowsDoNotDependOnTheCutIntoCalls) {
  Inputs<TypeParam> in({12, 77});
  auto const whole = in.run(Cpu(1));
  Inputs<TypeParam> part = in;
  part.shape.rows = 5;
  part.x.assign(in.x.begin() + 3 * 77, in.x.begin() + 8 * 77);
  part.dy.assign(in.dy.begin() + 3 * 77, in.dy.begin() + 8 * 77);
  auto const cut = part.run(Cpu(2));
  EXPECT_TRUE(same_bits(cut.y, std::vector(whole.y.begin() + 3 * 77, whole.y.begin() + 8 * 77)));
  EXPECT_TRUE(same_bits(cut.dx, std::vector(whole.dx.begin() + 3 * 77, whole.dx.begin() + 8 * 77)));
}

TYPED_TEST(RmsnormTest, GainGradientIsOneChainOverTheTokens) {
  using T = TypeParam;
  for (std::int64_t const cols : {1, 16, 37, 145, 300}) {
    Inputs<T> const in({24, cols});
    auto const rstd = in.run(Cpu(1)).rstd;
    std::vector<float> const start = random_values<float>(cols, 4);
    auto expected = start, reversed = start;
    for (std::int64_t n = 0; n < 24; ++n) {
      for (std::int64_t j = 0; j < cols; ++j) {
        std::int64_t const i = n * cols + j, last = (23 - n) * cols + j;
        expected[j] = std::fma(to_float(in.dy[i]), to_float(in.x[i]) * rstd[n], expected[j]);
        reversed[j] = std::fma(to_float(in.dy[last]), to_float(in.x[last]) * rstd[23 - n], reversed[j]);
      }
    }
    EXPECT_TRUE(cols < 16 || !same_bits(expected, reversed));  // the order matters for these numbers
    on_every_place([&](Cpu const& at) {
      for (std::int64_t const step : {1, 7, 24}) {
        Padded<T> dy(24, cols, 1, in.dy), x(24, cols, 16, in.x);
        auto dgain = start;
        for (std::int64_t n = 0; n < 24; n += step) {
          std::int64_t const rows = std::min<std::int64_t>(step, 24 - n);
          rmsnorm_backward_gain<T>(at, dgain, dy.view().slice_rows(n, rows), x.view().slice_rows(n, rows),
                                   std::span(rstd).subspan(n, rows));
        }
        EXPECT_TRUE(same_bits(dgain, expected)) << cols << " " << step;
      }
    });
  }
}

TYPED_TEST(RmsnormTest, InputGradientMayOverwriteTheOutputGradient) {
  Inputs<TypeParam> const in({5, 37});
  auto const expected = in.run(Cpu(1));
  auto buffer = in.dy;
  Matrix<TypeParam> const m(buffer.data(), 5, 37);
  Matrix<TypeParam const> const x(in.x.data(), 5, 37);
  rmsnorm_backward_input<TypeParam>(Cpu(1), m, m, x, expected.rstd, in.gain);
  EXPECT_TRUE(same_bits(buffer, expected.dx));
}

TYPED_TEST(RmsnormTest, NothingAndNotANumber) {
  using T = TypeParam;
  std::vector<float> gain(4, 1.0F), rstd, dgain(4, 0.25F);
  Matrix<T> const none(nullptr, 0, 4);
  rmsnorm_forward<T>(Cpu(1), none, rstd, none, gain, epsilon);
  rmsnorm_backward_gain<T>(Cpu(1), dgain, none, none, rstd);
  EXPECT_TRUE(same_bits(dgain, std::vector<float>(4, 0.25F)));

  std::vector<T> x(8, from_float<T>(1.0F)), y(8);
  x[5] = from_float<T>(std::numeric_limits<float>::quiet_NaN());
  std::vector<float> r(2);
  rmsnorm_forward<T>(Cpu(1), Matrix<T>(y.data(), 2, 4), r, Matrix<T>(x.data(), 2, 4), gain, epsilon);
  EXPECT_NEAR(to_float(y[0]), 1, 1e-2);
  for (int i = 4; i < 8; ++i) EXPECT_TRUE(std::isnan(to_float(y[i])));
}

TYPED_TEST(RmsnormTest, RefusesShapesThatDoNotFit) {
  using T = TypeParam;
  std::vector<T> data(32);
  std::vector<float> two(2), four(4);
  Matrix<T> const m(data.data(), 2, 4), wide(data.data(), 2, 5);
  EXPECT_THROW(rmsnorm_forward<T>(Cpu(1), m, two, wide, four, epsilon), std::logic_error);
  EXPECT_THROW(rmsnorm_forward<T>(Cpu(1), m, four, m, four, epsilon), std::logic_error);
  EXPECT_THROW(rmsnorm_forward<T>(Cpu(1), m, two, m, two, epsilon), std::logic_error);
  EXPECT_THROW(rmsnorm_forward<T>(Cpu(1), m, two, Matrix<T>(data.data(), 2, 4, 1, 2), four, epsilon), std::logic_error);
  EXPECT_THROW(rmsnorm_backward_input<T>(Cpu(1), m, wide, m, two, four), std::logic_error);
  EXPECT_THROW(rmsnorm_backward_gain<T>(Cpu(1), two, m, m, two), std::logic_error);
  EXPECT_THROW(rmsnorm_backward_gain<T>(Cpu(1), four, m, wide, two), std::logic_error);
}

}  // namespace
}  // namespace isotrain::kernels::test
