#include "kernels/balance_loss.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/reference/balance_loss.h"
#include "tests/support/kernel_test.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;
using reference::Doubles;

struct Variant {
  char const* name;
  RouterShape shape;
  BalanceLoss balance;
};
Variant const variants[] = {
    {"V2",
     {.experts = 16,
      .top_k = 3,
      .num_groups = 8,
      .top_groups = 3,
      .scoring = Scoring::softmax,
      .method = TopkMethod::group_limited_greedy,
      .normalize_top_k = false,
      .scaling = 16},
     {.expert_alpha = 0.003F, .device_alpha = 0.05F, .comm_alpha = 0.02F, .device_groups = 8, .max_devices = 3}},
    {"V2-Lite",
     {.experts = 21, .top_k = 6, .scoring = Scoring::softmax, .method = TopkMethod::greedy, .normalize_top_k = false},
     {.expert_alpha = 0.001F}},
    {"V3", {.experts = 32, .top_k = 4, .num_groups = 8, .top_groups = 2}, {.expert_alpha = 1e-4F}},
    {"V3, devices too",
     {.experts = 18, .top_k = 2},
     {.expert_alpha = 0.5F, .device_alpha = 0.25F, .comm_alpha = 2, .device_groups = 3, .max_devices = 2}},
};
constexpr std::int64_t samples = 3, tokens = 7, rows = samples * tokens;
constexpr float factor = 0.5F;

struct Case {
  Variant variant;
  std::vector<float> score, weight;
  std::vector<std::int32_t> expert;

  explicit Case(Variant const& v)
      : variant(v), score(rows * v.shape.experts), weight(rows * v.shape.top_k), expert(weight.size()) {
    auto const& shape = variant.shape;
    auto const logits = random_values<float>(rows * shape.experts, 1);
    auto const bias =
        shape.scoring == Scoring::sigmoid ? random_values<float>(shape.experts, 2, 0.3) : std::vector<float>();
    router_forward(Cpu(1), {score.data(), rows, shape.experts}, {expert.data(), rows, shape.top_k},
                   {weight.data(), rows, shape.top_k}, Matrix<float const>(logits.data(), rows, shape.experts), bias,
                   shape);
  }

  struct Outputs {
    std::vector<double> loss;
    std::vector<float> dscore;
    bool operator==(Outputs const& o) const { return same_bits(loss, o.loss) && same_bits(dscore, o.dscore); }
  };
  Outputs run(Cpu const& at, std::int64_t padding = 0, std::int64_t first = 0, std::int64_t count = samples) {
    auto const& shape = variant.shape;
    std::int64_t const n = count * tokens, e = shape.experts;
    Padded<float> s(n, e, padding, {score.begin() + first * tokens * e, score.begin() + (first + count) * tokens * e});
    Padded<float> d(n, e, padding);
    std::vector<double> loss(count);
    balance_loss(at, loss, d.view(), s.view(),
                 Matrix<std::int32_t>(&expert[first * tokens * shape.top_k], n, shape.top_k), shape, variant.balance,
                 tokens, factor);
    EXPECT_TRUE(d.padding_is_untouched());
    return {loss, d.values()};
  }

  reference::Balance definition() const {
    auto const& [name, shape, b] = variant;
    return {shape.experts,   shape.top_k,    shape.scoring == Scoring::sigmoid,
            b.expert_alpha,  b.device_alpha, b.comm_alpha,
            b.device_groups, b.max_devices};
  }
};

TEST(BalanceLoss, AndItsGradientAgreeWithTheDefinition) {
  for (auto const& variant : variants) {
    SCOPED_TRACE(variant.name);
    Case c(variant);
    auto const out = c.run(Cpu(1), 3);
    auto const at = c.definition();
    std::int64_t const e = at.experts;
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      std::vector<float> const part(c.score.begin() + sample * tokens * e, c.score.begin() + (sample + 1) * tokens * e);
      std::vector<int> const chosen(c.expert.begin() + sample * tokens * at.top_k,
                                    c.expert.begin() + (sample + 1) * tokens * at.top_k);
      auto const score = to_doubles(part);
      auto const counts = at.count(score, chosen);
      double const loss = at.loss(score, counts);
      // P is a sum in fp32 over 7 tokens of quotients of sums over the experts; all terms are positive.
      EXPECT_NEAR(out.loss[sample], loss, (tokens + 8 + static_cast<double>(e) / 16) * eps * loss);
      std::vector<float> const d(out.dscore.begin() + sample * tokens * e,
                                 out.dscore.begin() + (sample + 1) * tokens * e);
      double const alpha = at.expert_alpha + at.device_alpha + at.comm_alpha;
      expect_gradient([&](Doubles const& v) { return factor * at.loss(v, counts); }, score, to_doubles(d),
                      1e-5 * alpha);
    }
  }
}

TEST(BalanceLoss, OfPerfectBalanceIsAlpha) {
  RouterShape const shape{.experts = 4, .top_k = 2};
  std::vector<float> const score = {0.9F, 0.8F, 0.1F, 0.2F, 0.1F, 0.2F, 0.9F, 0.8F};
  std::vector<std::int32_t> const expert = {0, 1, 2, 3};
  std::vector<float> dscore(8);
  std::vector<double> loss(1);
  balance_loss(Cpu(1), loss, {dscore.data(), 2, 4}, {score.data(), 2, 4}, {expert.data(), 2, 2}, shape,
               {.expert_alpha = 0.25F}, 2, 1);
  EXPECT_NEAR(loss[0], 0.25, 1e-7);
}

/// V3 counts the best unbiased scores of all experts; the choice was biased and limited to groups.
TEST(BalanceLoss, OfV3IgnoresBiasAndGroups) {
  RouterShape const shape{.experts = 4, .top_k = 1, .num_groups = 2, .top_groups = 1};
  std::vector<float> const score = {0.5F, 0.25F, 0.125F, 0.125F};
  std::vector<std::int32_t> const biased = {3}, unbiased = {0};
  std::vector<float> dscore(4), dscore2(4);
  std::vector<double> loss(1), loss2(1);
  auto const run = [&](std::vector<std::int32_t> const& expert, std::vector<float>& d, std::vector<double>& l) {
    balance_loss(Cpu(1), l, {d.data(), 1, 4}, {score.data(), 1, 4}, {expert.data(), 1, 1}, shape, {.expert_alpha = 1},
                 1, 1);
  };
  run(biased, dscore, loss);
  run(unbiased, dscore2, loss2);
  EXPECT_EQ(loss[0], 4 * 0.5);  // f of expert 0 is E / (K T) = 4, its share 0.5
  EXPECT_EQ(loss, loss2);
  EXPECT_TRUE(same_bits(dscore, dscore2));
  EXPECT_FLOAT_EQ(dscore[0], 4 - 2);  // (f_0 - sum f s') / sum(s)
  EXPECT_FLOAT_EQ(dscore[3], -2);
}

TEST(BalanceLoss, SameBitsWithAnyThreadsInstructionSetStrideAndCut) {
  for (auto const& variant : variants) {
    SCOPED_TRACE(variant.name);
    Case c(variant);
    auto const expected = c.run(Cpu(1));
    on_every_place([&](Cpu const& at) {
      for (int const padding : {0, 1, 16}) EXPECT_TRUE(c.run(at, padding) == expected);
    });
    auto const cut = c.run(Cpu(1), 0, 1, 2);
    EXPECT_TRUE(std::equal(cut.loss.begin(), cut.loss.end(), expected.loss.begin() + 1));
    EXPECT_TRUE(
        std::equal(cut.dscore.begin(), cut.dscore.end(), expected.dscore.begin() + tokens * variant.shape.experts));
    c.score[0] *= 1.5F;  // the comparison can fail
    EXPECT_FALSE(c.run(Cpu(1)) == expected);
  }
}

TEST(BalanceLoss, NoLossesGiveAGradientOfZero) {
  Case c(variants[2]);
  c.variant.balance = {};
  auto const out = c.run(Cpu(1));
  for (double const l : out.loss) EXPECT_EQ(l, 0);
  for (float const d : out.dscore) EXPECT_EQ(d, 0);
}

TEST(BalanceLoss, NothingAndRefusals) {
  Case c(variants[0]);
  EXPECT_TRUE(c.run(Cpu(2), 0, 0, 0).loss.empty());
  c.variant.balance.device_groups = 3;
  EXPECT_THROW(c.run(Cpu(1)), std::logic_error);
  c.variant.balance = {.max_devices = 0};
  EXPECT_THROW(c.run(Cpu(1)), std::logic_error);
  c.variant = variants[0];
  std::vector<double> loss(2);
  std::vector<float> d(c.score.size());
  Matrix<float> const dscore(d.data(), rows, 16), score(c.score.data(), rows, 16);
  Matrix<std::int32_t> const expert(c.expert.data(), rows, 3);
  auto const call = [&](Matrix<float> gradient, Matrix<std::int32_t> choices, std::int64_t sample_rows) {
    balance_loss(Cpu(1), loss, gradient, score, choices, c.variant.shape, c.variant.balance, sample_rows, 1);
  };
  EXPECT_THROW(call(dscore, expert, tokens), std::logic_error);  // two losses, three samples
  loss.resize(3);
  EXPECT_NO_THROW(call(dscore, expert, tokens));
  EXPECT_THROW(call(dscore.slice_cols(0, 15), expert, tokens), std::logic_error);
  EXPECT_THROW(call(dscore, expert.slice_cols(0, 2), tokens), std::logic_error);
  EXPECT_THROW(call(dscore, expert, 0), std::logic_error);
}

}  // namespace
}  // namespace isotrain::kernels::test
