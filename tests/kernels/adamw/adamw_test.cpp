#include "kernels/adamw.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/reference/adamw.h"
#include "tests/support/kernel_test.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;

struct State {
  std::vector<float> w, m, v;
  std::vector<bfloat16> compute;

  explicit State(std::int64_t n) : w(random_values<float>(n, 1)), m(n), v(n), compute(n) {}
  void step(Cpu const& at, std::vector<float> const& gradient, AdamwStep const& scalars) {
    adamw(at, w, m, v, gradient, compute, scalars);
  }
  bool operator==(State const& o) const {
    return same_bits(w, o.w) && same_bits(m, o.m) && same_bits(v, o.v) && same_bits(compute, o.compute);
  }
};

constexpr AdamwSettings settings{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
double rate(int t) {
  return 3e-2 / t;
}

TEST(Adamw, FollowsTheDefinition) {
  constexpr int n = 100, steps = 50;
  State state(n);
  std::vector<reference::Adamw> exact;
  for (float const w : state.w) {
    // The kernel's betas are fp32 numbers.
    exact.push_back({static_cast<float>(settings.beta1), static_cast<float>(settings.beta2), settings.epsilon,
                     settings.weight_decay, w});
  }
  for (int t = 1; t <= steps; ++t) {
    auto const gradient = random_values<float>(n, 100 + t, 0.01);
    state.step(Cpu(1), gradient, adamw_step(t, settings, rate(t), 0.5));
    for (int i = 0; i < n; ++i) exact[i].step(t, rate(t), 0.5 * gradient[i]);
  }
  for (int i = 0; i < n; ++i) {
    // Moments: each step adds 3 roundings of what is there, and old ones fade: 3 / (1 - beta). m can cancel, so in
    // units of its terms. Weights: a rounding of w and some of the update (at most 6 * rate) each step.
    EXPECT_NEAR(state.m[i], exact[i].m, 30 * eps * 0.005 * 4);
    EXPECT_NEAR(state.v[i], exact[i].v, 60 * eps * exact[i].v);
    EXPECT_NEAR(state.w[i], exact[i].w, steps * eps * 3 * (std::abs(exact[i].w) + 1));
    EXPECT_EQ(state.compute[i], to_bfloat16(state.w[i]));
  }
}

/// Plain scalar form of what the header states.
void stated(State& s, std::vector<float> const& gradient, AdamwStep const& a) {
  for (std::size_t i = 0; i < s.w.size(); ++i) {
    float const g = gradient[i] * a.gradient_scale;
    s.m[i] = std::fma(a.beta1, s.m[i], (1 - a.beta1) * g);
    s.v[i] = std::fma(a.beta2, s.v[i], (1 - a.beta2) * (g * g));
    float const direction = (s.m[i] * a.correction1) / (std::sqrt(s.v[i] * a.correction2) + a.epsilon);
    s.w[i] = std::fma(-a.learning_rate, direction, std::fma(-a.decay, s.w[i], s.w[i]));
    s.compute[i] = to_bfloat16(s.w[i]);
  }
}

TEST(Adamw, SameBitsAsTheScalarFormOnEveryPlaceAndForAnyCut) {
  for (std::int64_t const n : {0, 1, 15, 16, 17, 33, 40000}) {
    State expected(n);
    for (int t = 1; t <= 3; ++t)
      stated(expected, random_values<float>(n, t, 0.01), adamw_step(t, settings, rate(t), 0.7));
    on_every_place([&](Cpu const& at) {
      State state(n);
      for (int t = 1; t <= 3; ++t) {
        auto const gradient = random_values<float>(n, t, 0.01);
        auto const scalars = adamw_step(t, settings, rate(t), 0.7);
        for (std::size_t begin = 0; begin < state.w.size(); begin += 13001) {
          std::size_t const count = std::min<std::size_t>(13001, state.w.size() - begin);
          adamw(at, std::span(state.w).subspan(begin, count), std::span(state.m).subspan(begin, count),
                std::span(state.v).subspan(begin, count), std::span(gradient).subspan(begin, count),
                std::span(state.compute).subspan(begin, count), scalars);
        }
      }
      EXPECT_TRUE(state == expected) << n;
      if (n > 0) {
        state.w[n / 2] = std::nextafter(state.w[n / 2], 9.0F);  // the comparison can fail
        EXPECT_FALSE(state == expected);
      }
    });
  }
}

TEST(Adamw, WorksWithoutComputeWeights) {
  State with(40), without(40);
  auto const gradient = random_values<float>(40, 2);
  auto const scalars = adamw_step(1, settings, 0.1);
  with.step(Cpu(1), gradient, scalars);
  adamw(Cpu(1), without.w, without.m, without.v, gradient, {}, scalars);
  EXPECT_TRUE(same_bits(with.w, without.w));
}

TEST(Adamw, NoGradientOnlyDecays) {
  State state(20);
  auto const before = state.w;
  state.step(Cpu(1), std::vector<float>(20), adamw_step(1, settings, 0.5));
  for (int i = 0; i < 20; ++i) EXPECT_NEAR(state.w[i], before[i] * 0.95, eps * std::abs(before[i]));
}

TEST(Adamw, NotANumberStaysWhereItIs) {
  State state(20);
  std::vector<float> gradient(20, 1.0F);
  gradient[7] = std::numeric_limits<float>::quiet_NaN();
  state.step(Cpu(1), gradient, adamw_step(1, settings, 0.5));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(std::isnan(state.w[i]), i == 7);
}

TEST(AdamwStep, HoldsTheScalarsOfTheStep) {
  auto const first = adamw_step(1, settings, 2e-4, 0.25);
  EXPECT_EQ(first.learning_rate, 2e-4F);
  EXPECT_EQ(first.decay, static_cast<float>(2e-4 * 0.1));
  EXPECT_EQ(first.gradient_scale, 0.25F);
  EXPECT_EQ(first.epsilon, 1e-8F);
  EXPECT_NEAR(first.correction1, 10, 3e-6);  // the rounded beta's correction
  EXPECT_NEAR(first.correction2, 20, 1e-5);
  EXPECT_NEAR(adamw_step(10, settings, 1).correction1, 1 / (1 - std::pow(0.9, 10)), 1e-6);
  auto const late = adamw_step(1000000, settings, 1);
  EXPECT_EQ(late.correction1, 1);
  EXPECT_EQ(late.correction2, 1);
}

TEST(AdamwStep, RefusesWhatHasNoMeaning) {
  EXPECT_THROW(adamw_step(0, settings, 1), std::logic_error);
  EXPECT_THROW(adamw_step(1, {.beta1 = 1}, 1), std::logic_error);
  EXPECT_THROW(adamw_step(1, {.beta2 = -0.1}, 1), std::logic_error);
  State state(4);
  EXPECT_THROW(state.step(Cpu(1), std::vector<float>(5), adamw_step(1, settings, 1)), std::logic_error);
  state.compute.resize(3);
  EXPECT_THROW(state.step(Cpu(1), std::vector<float>(4), adamw_step(1, settings, 1)), std::logic_error);
}

}  // namespace
}  // namespace isotrain::kernels::test
