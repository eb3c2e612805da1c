#include "kernels/router.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/reference/router.h"
#include "tests/support/kernel_test.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;
using reference::Doubles;

struct Routed {
  std::vector<float> score, weight;
  std::vector<std::int32_t> expert;
  bool operator==(Routed const& o) const {
    return same_bits(score, o.score) && same_bits(weight, o.weight) && expert == o.expert;
  }
};

Routed forward(Cpu const& at, std::vector<float> const& logits, std::vector<float> const& bias, RouterShape shape,
               std::int64_t padding = 0) {
  std::int64_t const rows = static_cast<std::int64_t>(logits.size()) / shape.experts;
  Padded<float> in(rows, shape.experts, padding, logits), score(rows, shape.experts, padding),
      weight(rows, shape.top_k, padding);
  std::vector<std::int32_t> expert(rows * shape.top_k);
  router_forward(at, score.view(), Matrix<std::int32_t>(expert.data(), rows, shape.top_k), weight.view(), in.view(),
                 bias, shape);
  EXPECT_TRUE(score.padding_is_untouched() && weight.padding_is_untouched());
  return {score.values(), weight.values(), expert};
}

std::vector<float> backward(Cpu const& at, std::vector<float> const& dweight, std::vector<float> const& dscore,
                            Routed const& routed, RouterShape shape, std::int64_t padding = 0) {
  std::int64_t const rows = static_cast<std::int64_t>(routed.score.size()) / shape.experts;
  Padded<float> score(rows, shape.experts, padding, routed.score), weight(rows, shape.top_k, padding, routed.weight);
  Padded<float> dw(rows, shape.top_k, padding, dweight), extra(rows, shape.experts, padding, dscore);
  Padded<float> dlogits(rows, shape.experts, padding);
  auto expert = routed.expert;
  router_backward(at, dlogits.view(), dw.view(), dscore.empty() ? Matrix<float const>() : extra.view(), score.view(),
                  Matrix<std::int32_t>(expert.data(), rows, shape.top_k), weight.view(), shape);
  EXPECT_TRUE(dlogits.padding_is_untouched());
  return dlogits.values();
}

std::vector<float> const golden_logits = {0.1F, -0.4F, 0.9F, 0.3F, -1.2F, 1.5F, 0, 0.2F};

void expect_golden(Routed const& r, std::vector<std::int32_t> const& expert, std::vector<double> const& weight) {
  EXPECT_EQ(r.expert, expert);
  for (std::size_t k = 0; k < weight.size(); ++k) EXPECT_NEAR(r.weight[k], weight[k], 4e-7 * weight[k]);
}

TEST(Router, GoldenCaseOfV3) {
  RouterShape const shape{.experts = 8, .top_k = 3, .num_groups = 4, .top_groups = 2, .scaling = 2.5F};
  std::vector<float> const bias = {0, 0.05F, -0.1F, 0, 0.2F, -0.6F, 0.02F, -0.03F};
  expect_golden(forward(Cpu(1), golden_logits, bias, shape), {2, 3, 6}, {0.99550896, 0.80436469, 0.70012635});
}

TEST(Router, GoldenCaseOfV2) {
  RouterShape const shape{.experts = 8,
                          .top_k = 3,
                          .num_groups = 4,
                          .top_groups = 2,
                          .scoring = Scoring::softmax,
                          .method = TopkMethod::group_limited_greedy,
                          .normalize_top_k = false,
                          .scaling = 16};
  expect_golden(forward(Cpu(1), golden_logits, {}, shape), {5, 2, 3}, {5.69589834, 3.12597529, 1.71557161});
}

/// With biases below 0, masking with 0 would choose only experts of groups that were not chosen: (0, 1, 4).
TEST(Router, GroupsThatWereNotChosenStayOutWhateverTheBias) {
  RouterShape const shape{.experts = 8, .top_k = 3, .num_groups = 4, .top_groups = 2};
  EXPECT_EQ(forward(Cpu(1), golden_logits, std::vector<float>(8, -1.5F), shape).expert,
            (std::vector<std::int32_t>{2, 3, 7}));
}

TEST(Router, BiasMovesTheChoiceAndNotTheWeights) {
  RouterShape const shape{.experts = 4, .top_k = 2, .normalize_top_k = false};
  std::vector<float> const logits = {2, 1, 0, -20};
  auto const r = forward(Cpu(1), logits, {0, 0, 0, 12}, shape);
  EXPECT_EQ(r.expert, (std::vector<std::int32_t>{3, 0}));
  EXPECT_NEAR(r.weight[0], 1 / (1 + std::exp(20.0)), 1e-15);  // (s + b) - b would be 0
}

TEST(Router, TiesGoToTheLowerId) {
  for (auto const method : {TopkMethod::greedy, TopkMethod::group_limited_greedy, TopkMethod::noaux_tc}) {
    RouterShape const shape{.experts = 8, .top_k = 4, .num_groups = 4, .top_groups = 2, .method = method};
    EXPECT_EQ(forward(Cpu(1), std::vector<float>(8, 0.5F), {}, shape).expert, (std::vector<std::int32_t>{0, 1, 2, 3}));
    std::vector<float> logits = {0, 1, 0, 1, 0, 1, 0, 1};
    auto const chosen = forward(Cpu(1), logits, {}, shape).expert;
    EXPECT_EQ(chosen, (method == TopkMethod::greedy ? std::vector<std::int32_t>{1, 3, 5, 7}
                                                    : std::vector<std::int32_t>{1, 3, 0, 2}));
  }
}

TEST(Router, NotANumberLosesAndTheChoiceStaysValid) {
  float const nan = std::numeric_limits<float>::quiet_NaN();
  RouterShape const shape{.experts = 4, .top_k = 2};
  EXPECT_EQ(forward(Cpu(1), {nan, -3, nan, -5}, {}, shape).expert, (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(forward(Cpu(1), {nan, nan, 1, nan}, {}, shape).expert, (std::vector<std::int32_t>{2, 0}));
  EXPECT_EQ(forward(Cpu(1), std::vector<float>(4, nan), {}, shape).expert, (std::vector<std::int32_t>{0, 1}));
}

struct Variant {
  char const* name;
  RouterShape shape;
  bool bias;
};
Variant const variants[] = {
    {"V3", {.experts = 32, .top_k = 8, .num_groups = 8, .top_groups = 4, .scaling = 2.5F}, true},
    {"V3, no normalisation", {.experts = 19, .top_k = 3, .normalize_top_k = false, .scaling = 2.5F}, true},
    {"V3, one expert", {.experts = 9, .top_k = 1, .scaling = 2.5F}, true},
    {"V2",
     {.experts = 40,
      .top_k = 6,
      .num_groups = 8,
      .top_groups = 3,
      .scoring = Scoring::softmax,
      .method = TopkMethod::group_limited_greedy,
      .normalize_top_k = false,
      .scaling = 16},
     false},
    {"V2-Lite",
     {.experts = 64, .top_k = 6, .scoring = Scoring::softmax, .method = TopkMethod::greedy, .normalize_top_k = false},
     false},
    {"V2, normalised",
     {.experts = 17, .top_k = 4, .scoring = Scoring::softmax, .method = TopkMethod::greedy, .scaling = 3},
     false},
    {"V2, one expert",
     {.experts = 16, .top_k = 1, .scoring = Scoring::softmax, .method = TopkMethod::greedy, .scaling = 3},
     false},
    {"all experts", {.experts = 5, .top_k = 5}, true},
};

reference::Router definition(RouterShape const& s) {
  return {s.top_k, s.num_groups, s.top_groups, s.method == TopkMethod::noaux_tc, s.normalize_top_k, s.scaling};
}

Doubles row(std::vector<float> const& x, std::int64_t r, std::int64_t cols) {
  return {x.begin() + r * cols, x.begin() + (r + 1) * cols};
}

TEST(RouterDefinition, BackwardIsTheDerivative) {
  for (auto const& variant : variants) {
    auto const at = definition(variant.shape);
    auto const logits = to_doubles(random_values<float>(variant.shape.experts, 1));
    auto const chosen = at.choose(at.scores(logits));
    auto const dweight = to_doubles(random_values<float>(at.top_k, 2));
    auto const dscore = to_doubles(random_values<float>(variant.shape.experts, 3));
    expect_gradient([&](Doubles const& v) { return dot(dweight, at.weights(v, chosen)) + dot(dscore, at.scores(v)); },
                    logits, at.backward(dweight, dscore, logits, chosen));
  }
}

TEST(Router, AgreesWithTheDefinition) {
  constexpr std::int64_t rows = 50;
  for (auto const& [name, shape, has_bias] : variants) {
    SCOPED_TRACE(name);
    auto const at = definition(shape);
    std::int64_t const e = shape.experts, k = shape.top_k;
    auto const logits = random_values<float>(rows * e, 1);
    auto const bias = has_bias ? random_values<float>(e, 2, 0.1) : std::vector<float>();
    auto const dweight = random_values<float>(rows * k, 3), dscore = random_values<float>(rows * e, 4);
    auto const routed = forward(Cpu(1), logits, bias, shape, 3);
    auto const dlogits = backward(Cpu(1), dweight, dscore, routed, shape, 3);
    auto const dlogits_alone = backward(Cpu(1), dweight, {}, routed, shape);
    // Scores: exp of a rounded difference, a sum of positive terms, a quotient. Weights add K + 2 roundings.
    double const score_error = (8 + static_cast<double>(e) / 16 + 6) * eps;
    double const weight_error = 2 * score_error + (static_cast<double>(k) + 3) * eps;
    for (std::int64_t n = 0; n < rows; ++n) {
      auto const l = row(logits, n, e);
      auto const s = at.scores(l);
      for (std::int64_t i = 0; i < e; ++i) ASSERT_NEAR(routed.score[n * e + i], s[i], score_error * s[i]);
      auto choice = s;
      for (std::size_t i = 0; i < bias.size(); ++i) choice[i] += bias[i];
      auto const chosen = at.choose(choice);
      ASSERT_TRUE(std::equal(chosen.begin(), chosen.end(), routed.expert.begin() + n * k)) << n;
      auto const w = at.weights(l, chosen);
      for (std::int64_t i = 0; i < k; ++i) ASSERT_NEAR(routed.weight[n * k + i], w[i], weight_error * w[i]);

      auto const dw = row(dweight, n, k);
      double sum = 0, largest = 0;
      for (int const c : chosen) sum += s[c];
      for (double const d : dw) largest = std::max(largest, std::abs(d));
      double const gain = at.factor() * (at.normalizes() ? 2 / sum : 1) * largest;
      auto const check = [&](std::vector<float> const& actual, Doubles const& extra) {
        auto const expected = at.backward(dw, extra, l, chosen);
        for (std::int64_t i = 0; i < e; ++i) {
          // Terms of the score gradient are below gain + 4; softmax adds their mean, a sum of E terms.
          double const slack = (3 * weight_error + (static_cast<double>(e) / 16 + 10) * eps) * 2 * (gain + 4) * s[i];
          ASSERT_NEAR(actual[n * e + i], expected[i], slack) << n << " " << i;
        }
      };
      check(dlogits, row(dscore, n, e));
      check(dlogits_alone, Doubles(e));
    }
  }
}

TEST(Router, SameBitsWithAnyThreadsInstructionSetStrideAndCut) {
  constexpr std::int64_t rows = 50;
  for (auto const& [name, shape, has_bias] : variants) {
    SCOPED_TRACE(name);
    std::int64_t const e = shape.experts, k = shape.top_k;
    auto logits = random_values<float>(rows * e, 1);
    auto const bias = has_bias ? random_values<float>(e, 2, 0.1) : std::vector<float>();
    auto const dweight = random_values<float>(rows * k, 3), dscore = random_values<float>(rows * e, 4);
    auto const expected = forward(Cpu(1), logits, bias, shape);
    auto const gradient = backward(Cpu(1), dweight, dscore, expected, shape);
    on_every_place([&](Cpu const& at) {
      for (int const padding : {0, 1, 16}) {
        EXPECT_TRUE(forward(at, logits, bias, shape, padding) == expected);
        EXPECT_TRUE(same_bits(backward(at, dweight, dscore, expected, shape, padding), gradient));
      }
    });
    std::vector<float> const part(logits.begin() + 7 * e, logits.begin() + 9 * e);
    auto const cut = forward(Cpu(1), part, bias, shape);
    EXPECT_TRUE(std::equal(cut.weight.begin(), cut.weight.end(), expected.weight.begin() + 7 * k));
    EXPECT_TRUE(std::equal(cut.expert.begin(), cut.expert.end(), expected.expert.begin() + 7 * k));
    logits[0] += 1;  // the comparison can fail
    EXPECT_FALSE(forward(Cpu(1), logits, bias, shape) == expected);
  }
}

TEST(Router, CountsLoads) {
  std::vector<std::int32_t> expert = {0, 2, 2, 3, 2, 0};
  std::vector<std::int64_t> load = {10, 0, 0, 0};
  router_count(load, Matrix<std::int32_t>(expert.data(), 3, 2));
  EXPECT_EQ(load, (std::vector<std::int64_t>{12, 0, 3, 1}));
  expert[1] = 4;
  EXPECT_THROW(router_count(load, Matrix<std::int32_t>(expert.data(), 3, 2)), std::logic_error);
  expert[1] = -1;
  EXPECT_THROW(router_count(load, Matrix<std::int32_t>(expert.data(), 3, 2)), std::logic_error);
}

TEST(Router, RefusesWhatHasNoMeaning) {
  std::vector<float> const logits(16);
  auto const call = [&](RouterShape shape) { forward(Cpu(1), logits, {}, shape); };
  EXPECT_NO_THROW(call({.experts = 8, .top_k = 3, .num_groups = 4, .top_groups = 2}));
  EXPECT_THROW(call({.experts = 8, .top_k = 9}), std::logic_error);
  EXPECT_THROW(call({.experts = 8, .top_k = 0}), std::logic_error);
  EXPECT_THROW(call({.experts = 8, .top_k = 2, .num_groups = 3}), std::logic_error);
  EXPECT_THROW(call({.experts = 8, .top_k = 2, .num_groups = 4, .top_groups = 5}), std::logic_error);
  EXPECT_THROW(call({.experts = 8, .top_k = 5, .num_groups = 4, .top_groups = 2}), std::logic_error);
  EXPECT_THROW(forward(Cpu(1), logits, std::vector<float>(7), {.experts = 8, .top_k = 2}), std::logic_error);
  EXPECT_TRUE(forward(Cpu(1), {}, {}, {.experts = 8, .top_k = 2}).expert.empty());
  auto routed = forward(Cpu(1), logits, {}, {.experts = 8, .top_k = 2});
  std::vector<float> gradient(16);
  Matrix<float> const dlogits(gradient.data(), 2, 8), score(routed.score.data(), 2, 8), w(routed.weight.data(), 2, 2);
  Matrix<std::int32_t> const expert(routed.expert.data(), 2, 2);
  auto const back = [&](Matrix<float> d, Matrix<float> dweight, Matrix<float> extra, RouterShape shape) {
    router_backward(Cpu(1), d, dweight, extra, score, expert, w, shape);
  };
  EXPECT_NO_THROW(back(dlogits, w, dlogits, {.experts = 8, .top_k = 2}));
  EXPECT_THROW(back(dlogits, w, dlogits, {.experts = 4, .top_k = 2}), std::logic_error);
  EXPECT_THROW(back(dlogits.slice_cols(0, 7), w, dlogits, {.experts = 8, .top_k = 2}), std::logic_error);
  EXPECT_THROW(back(dlogits, w.slice_rows(0, 1), dlogits, {.experts = 8, .top_k = 2}), std::logic_error);
  EXPECT_THROW(back(dlogits, w, dlogits.slice_cols(0, 3), {.experts = 8, .top_k = 2}), std::logic_error);
}

}  // namespace
}  // namespace isotrain::kernels::test
