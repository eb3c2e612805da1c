// Attention against its definition in double, and that definition's gradients against finite differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/kernels/attention/support.h"
#include "tests/reference/attention.h"

namespace isotrain::kernels::test {
namespace {

using reference::AttentionSizes;
using reference::Numbers;

constexpr Case cases[] = {
    {"one token", 1, 1, 2, 1, 64, 64},
    {"two tokens", 2, 2, 1, 1, 5, 3},
    {"one less than a panel", 1, 15, 2, 1, 32, 32},
    {"a panel", 1, 16, 2, 2, 48, 32},
    {"one more than a panel", 1, 17, 4, 2, 17, 33},
    {"one less than a block", 2, 63, 2, 1, 96, 64},
    {"a block", 1, 64, 1, 1, 128, 128},
    {"one more than a block", 1, 65, 6, 2, 192, 128},
    {"between blocks", 1, 100, 3, 3, 1, 1},
    {"several blocks", 1, 257, 2, 1, 96, 64},
};

double largest(Numbers const& x) {
  double m = 0;
  for (double e : x) m = std::max(m, std::abs(e));
  return m;
}

constexpr double unit = 0x1p-24;  // of fp32
template <class T>
constexpr double rounding = sizeof(T) == 2 ? 0x1p-9 : unit;  // of T
/// exp and log: one ulp, and their argument's own rounding.
constexpr double function_error = 4 * unit;

/// Largest error that the order of sums and the roundings named in attention_forward.cpp allow, for one head. u is
/// `unit`.
struct Bounds {
  double score, probability, lse, o, dq, dk, dv;
};
template <class T>
Bounds bounds(AttentionSizes n, Numbers const& q, Numbers const& k, Numbers const& v, Numbers const& go,
              reference::AttentionGradients const& g) {
  Bounds b{};
  double score = 0, largest_score = 0, row_of_go = 0, column = 0;
  Numbers const p = reference::attention_probabilities(q, k, n);
  for (std::int64_t t = 0; t < n.T; ++t) {
    double sum = 0, in_column = 0;
    for (std::int64_t j = 0; j < n.dv; ++j) sum += std::abs(go[t * n.dv + j]);
    row_of_go = std::max(row_of_go, sum);
    for (std::int64_t s = 0; s <= t; ++s) {
      double z = 0, absolute = 0;
      for (std::int64_t i = 0; i < n.dq; ++i) {
        z += n.scale * q[t * n.dq + i] * k[s * n.dq + i];
        absolute += n.scale * std::abs(q[t * n.dq + i] * k[s * n.dq + i]);
      }
      score = std::max(score, absolute), largest_score = std::max(largest_score, std::abs(z));
    }
    for (std::int64_t s = t; s < n.T; ++s) in_column += p[s * n.T + t];
    column = std::max(column, in_column);
  }
  // A chain of n FMAs errs by n u of the sum of magnitudes, then scale, the subtraction of the maximum, exp.
  b.score = (n.dq + 2) * unit * score + 2 * unit * largest_score;
  b.probability = 2 * b.score + function_error;
  b.lse = b.score + function_error + (n.T / 16.0 + 5) * unit + unit * (largest_score + std::log(n.T));
  double const relative =
      2 * b.probability + (n.T + 10) * unit;  // of the probabilities' sum and of their product with v
  b.o = (relative + 2 * rounding<T>)*largest(v);
  // p from lse; |do . v| and d are at most `dot`, their difference twice that.
  double const p_error = b.score + b.lse + 2 * unit * largest_score + function_error;
  double const dot = row_of_go * largest(v);
  double const dot_error = (2 * n.dv + 8) * unit * dot + row_of_go * b.o;
  double const ds = (p_error + (n.T + 8) * unit + rounding<T>)*2 * dot + dot_error;  // for a row of p that sums to 1
  b.dq = n.scale * ds * largest(k) + rounding<T> * largest(g.dq);
  b.dk = n.scale * ds * column * largest(q) + rounding<T> * largest(g.dk);
  b.dv = (p_error + (n.T + 2) * unit + rounding<T>)*column * largest(go) + rounding<T> * largest(g.dv);
  return b;
}

struct Worst {
  double error = 0;    // in units of what is allowed
  double allowed = 0;  // against the largest element
  std::string where;
  void operator()(Numbers const& got, Numbers const& wanted, double bound, std::string const& what) {
    allowed = std::max(allowed, bound / (largest(wanted) + 1e-30));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      double const e = std::abs(got[i] - wanted[i]) / (bound + 1e-30);
      if (!(e <= error)) error = std::isnan(e) ? INFINITY : e, where = what + "[" + std::to_string(i) + "]";
    }
  }
};

/// `scale_factor` other than 1 is the negative control: a kernel that scales the scores wrongly.
template <class T>
Worst compare(Case c, Bf16Class bf16, double spread = 1, float scale_factor = 1) {
  Attention<T> x(c, 1, spread);
  double const scale = x.shape.scale;
  x.shape.scale *= scale_factor;
  x.forward(Cpu(2, bf16));
  x.backward(Cpu(2, bf16));
  Worst worst;
  AttentionSizes const n{c.T, c.dq, c.dv, scale};
  for (std::int64_t sample = 0; sample < c.B; ++sample) {
    std::int64_t const row = sample * c.T;
    for (std::int64_t g = 0; g < c.G; ++g) {
      Numbers const k = x.k.head(row, c.T, g), v = x.v.head(row, c.T, g);
      Numbers dk(k.size(), 0.0), dv(v.size(), 0.0);
      double dk_bound = 0, dv_bound = 0;
      for (std::int64_t h = g * (c.H / c.G); h < (g + 1) * (c.H / c.G); ++h) {
        Numbers const q = x.q.head(row, c.T, h), go = x.go.head(row, c.T, h);
        auto const gradients = reference::attention_backward(go, q, k, v, n);
        Bounds const b = bounds<T>(n, q, k, v, go, gradients);
        worst(x.o.head(row, c.T, h), reference::attention_forward(q, k, v, n), b.o, "o");
        auto const first = x.lse.begin() + (sample * c.H + h) * c.T;
        worst(Numbers(first, first + c.T), reference::attention_lse(q, k, n), b.lse, "lse");
        worst(x.dq.head(row, c.T, h), gradients.dq, b.dq, "dq");
        for (std::size_t i = 0; i < dk.size(); ++i) dk[i] += gradients.dk[i];
        for (std::size_t i = 0; i < dv.size(); ++i) dv[i] += gradients.dv[i];
        dk_bound += b.dk, dv_bound += b.dv;
      }
      worst(x.dk.head(row, c.T, g), dk, dk_bound, "dk");
      worst(x.dv.head(row, c.T, g), dv, dv_bound, "dv");
    }
  }
  return worst;
}

class AttentionTest : public testing::TestWithParam<Case> {};

TEST_P(AttentionTest, IsTheDefinitionInFloat) {
  Worst const worst = compare<float>(GetParam(), Bf16Class::tiles);
  EXPECT_LE(worst.error, 1) << worst.where;
}
TEST_P(AttentionTest, IsTheDefinitionInTiles) {
  Worst const worst = compare<bfloat16>(GetParam(), Bf16Class::tiles);
  EXPECT_LE(worst.error, 1) << worst.where;
}
TEST_P(AttentionTest, IsTheDefinitionInPairs) {
  Worst const worst = compare<bfloat16>(GetParam(), Bf16Class::pairs);
  EXPECT_LE(worst.error, 1) << worst.where;
}
INSTANTIATE_TEST_SUITE_P(Sizes, AttentionTest, testing::ValuesIn(cases));

TEST(Attention, ScaledWronglyIsSeen) {
  Case const c{"", 1, 100, 2, 1, 32, 32};
  EXPECT_GT(compare<float>(c, Bf16Class::tiles, 1, 1.001F).error, 1);
  EXPECT_GT(compare<bfloat16>(c, Bf16Class::tiles, 1, 1.2F).error, 1);
}

TEST(Attention, OfLargeScoresIsFinite) {
  Case const c{"", 1, 100, 2, 1, 32, 32};
  Worst const worst = compare<float>(c, Bf16Class::tiles, 30);
  EXPECT_LE(worst.error, 1) << worst.where;
  for (double spread : {1e4, 1e15}) {
    Attention<float> x(c, 0, spread);
    x.forward(Cpu());
    x.backward(Cpu());
    for (auto const* output : {&x.o, &x.dq, &x.dk, &x.dv}) {
      for (float e : output->elements()) ASSERT_TRUE(std::isfinite(e)) << "inputs of size " << spread;
    }
  }
}

TEST(Attention, OfNothingIsNothing) {
  Attention<float> x({"", 0, 0, 2, 1, 32, 32});
  x.forward(Cpu());
  x.backward(Cpu());
}

TEST(Attention, RefusesShapesThatDoNotFit) {
  Attention<float> x({"", 1, 4, 3, 2, 8, 8});
  EXPECT_THROW(x.forward(Cpu()), std::logic_error) << "2 key heads for 3 query heads";
  EXPECT_THROW(x.backward(Cpu()), std::logic_error);
  Attention<float> y({"", 1, 4, 2, 2, 8, 8});
  y.shape.sequence = 5;
  EXPECT_THROW(y.forward(Cpu()), std::logic_error) << "rows are not samples * sequence";
  EXPECT_THROW(y.backward(Cpu()), std::logic_error);
  EXPECT_THROW(attention_decode<float>(Cpu(), y.o.view(), y.q.read(), y.k.read(), y.v.read(), 1), std::logic_error)
      << "more than one new token";
}

/// <go, o> is differentiated in each input; central differences err by h^2 times the third derivative and by rounding /
/// h.
TEST(Attention, GradientsOfTheDefinitionAreFiniteDifferences) {
  AttentionSizes const n{7, 5, 3, 0.6};
  std::mt19937_64 random(5);
  auto numbers = [&](std::int64_t count) {
    Numbers x(count);
    for (double& e : x) e = static_cast<double>(random() >> 11) * 0x1p-52 - 1;
    return x;
  };
  Numbers q = numbers(n.T * n.dq), k = numbers(n.T * n.dq), v = numbers(n.T * n.dv), go = numbers(n.T * n.dv);
  auto loss = [&] {
    Numbers const o = reference::attention_forward(q, k, v, n);
    return std::inner_product(o.begin(), o.end(), go.begin(), 0.0);
  };
  auto const g = reference::attention_backward(go, q, k, v, n);
  auto check = [&](Numbers& x, Numbers const& gradient, char const* name) {
    double const h = 1e-5;
    for (std::size_t i = 0; i < x.size(); ++i) {
      double const here = x[i];
      x[i] = here + h;
      double const above = loss();
      x[i] = here - h;
      double const below = loss();
      x[i] = here;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * h), 1e-8) << name << "[" << i << "]";
    }
  };
  check(q, g.dq, "q"), check(k, g.dk, "k"), check(v, g.dv, "v");
}

}  // namespace
}  // namespace isotrain::kernels::test
