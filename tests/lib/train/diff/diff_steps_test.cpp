#include "lib/train/diff_steps.h"

#include <gtest/gtest.h>

#include "lib/base/error.h"
#include "tests/lib/train/temporary_folder.h"

namespace isotrain::test {
namespace {

LedgerHeader const header{{"embedding", "layer 0", "layer 1", "head"}, {"embed", "q_proj", "lm_head"}};

LedgerStep sample(std::int64_t step = 3) {
  return {step, {1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11}, {12, 13, 14}, 15};
}

/// The first difference between sample() and what `change` makes of it.
template <class F>
std::optional<TensorDifference> after(F const& change) {
  LedgerStep other = sample();
  change(other);
  return first_difference(header, sample(), other);
}

TEST(FirstDifference, IsNoneWhereAllIsTheSame) {
  EXPECT_EQ(after([](LedgerStep&) {}), std::nullopt);
}

TEST(FirstDifference, OfActivationsIsTheLowestLayer) {
  EXPECT_EQ(after([](LedgerStep& s) { s.activation[1] = s.activation[3] = 99; }),
            (TensorDifference{3, Side::forward, "activation of layer 0", 2, 99, 1}));
}

TEST(FirstDifference, OfTheirGradientsIsTheHighestLayer) {
  EXPECT_EQ(after([](LedgerStep& s) { s.activation_gradient[1] = s.activation_gradient[2] = 99; }),
            (TensorDifference{3, Side::backward, "gradient of the activation of layer 1", 7, 99, 1}));
}

TEST(FirstDifference, OfGradientsOfWeightsIsTheLastParameter) {
  EXPECT_EQ(after([](LedgerStep& s) { s.weight_gradient[0] = s.weight_gradient[1] = 99; }),
            (TensorDifference{3, Side::backward, "gradient of q_proj", 10, 99, 1}));
}

TEST(FirstDifference, OfWeightsIsAnUpdate) {
  EXPECT_EQ(after([](LedgerStep& s) { s.weight[2] = s.fingerprint = 99; }),
            (TensorDifference{3, Side::update, "weight lm_head", 14, 99, 0}));
  EXPECT_EQ(after([](LedgerStep& s) { s.fingerprint = 99; }),
            (TensorDifference{3, Side::update, "fingerprint of all weights", 15, 99, 0}));
}

TEST(FirstDifference, CausesComeBeforeEffects) {
  // All that a wrong activation of layer 1 would spoil; then without the activations, and so on.
  LedgerStep other{3, {1, 2, 0, 0}, {0, 0, 0, 0}, {0, 0, 0}, {0, 0, 0}, 0};
  EXPECT_EQ(first_difference(header, sample(), other)->what, "activation of layer 1");
  other.activation = sample().activation;
  EXPECT_EQ(first_difference(header, sample(), other)->what, "gradient of the activation of head");
  EXPECT_EQ(first_difference(header, sample(), other)->others, 6);
  other.activation_gradient = sample().activation_gradient;
  EXPECT_EQ(first_difference(header, sample(), other)->what, "gradient of lm_head");
  other.weight_gradient = sample().weight_gradient;
  EXPECT_EQ(first_difference(header, sample(), other)->what, "weight embed");
}

class CompareFiles : public testing::Test {
 protected:
  void write_ledger(std::string const& name, std::vector<LedgerStep> const& steps, LedgerHeader const& of = header) {
    LedgerWriter writer(folder_ / name, of, {});
    for (LedgerStep const& s : steps) {
      writer.append(s.step, s.activation, s.activation_gradient, s.weight_gradient, s.weight, s.fingerprint);
    }
  }
  LedgerComparison ledgers() const { return compare_ledgers(folder_ / "a", folder_ / "b"); }
  void write(std::string const& name, std::string const& text) const { std::ofstream(folder_ / name) << text; }
  MetricsComparison metrics() const { return compare_metrics(folder_ / "a", folder_ / "b"); }

  TemporaryFolder folder_;
};

TEST_F(CompareFiles, LedgersThatAreTheSame) {
  write_ledger("a", {sample(1), sample(2), sample(3)});
  write_ledger("b", {sample(1), sample(2), sample(3), sample(4)});
  auto const result = ledgers();
  EXPECT_TRUE(result.same_model);
  EXPECT_FALSE(result.difference);
  EXPECT_EQ(result.compared.count, 3);
  EXPECT_EQ(result.compared.begin, 1);
  EXPECT_EQ(result.compared.end, 3);
}

TEST_F(CompareFiles, TheFirstStepOfLedgersThatDiffers) {
  LedgerStep changed = sample(2), later = sample(3);
  changed.weight[1] = 99;
  later.activation[0] = 98;
  write_ledger("a", {sample(1), sample(2), sample(3)});
  write_ledger("b", {sample(1), changed, later});
  auto const result = ledgers();
  EXPECT_EQ(result.difference, (TensorDifference{2, Side::update, "weight q_proj", 13, 99, 0}));
  EXPECT_EQ(result.compared.end, 2);
}

TEST_F(CompareFiles, OnlyStepsThatBothLedgersHave) {
  LedgerStep changed = sample(5);
  changed.activation[0] = 99;
  write_ledger("a", {sample(1), sample(3), sample(4), sample(5)});
  write_ledger("b", {sample(2), sample(4), changed});
  auto const result = ledgers();
  ASSERT_TRUE(result.difference);
  EXPECT_EQ(result.difference->step, 5);
  EXPECT_EQ(result.compared.count, 2);
  EXPECT_EQ(result.compared.begin, 4);
}

TEST_F(CompareFiles, LedgersOfDifferentModels) {
  write_ledger("a", {sample(1)});
  write_ledger("b", {}, {header.layers, {"embed"}});
  EXPECT_FALSE(ledgers().same_model);
  EXPECT_EQ(ledgers().compared.count, 0);
}

TEST_F(CompareFiles, ADamagedLedgerIsAnError) {
  write_ledger("a", {sample(1)});
  write("b", "nothing\n");
  EXPECT_THROW(ledgers(), Error);
  EXPECT_THROW(compare_ledgers(folder_ / "a", folder_ / "none"), Error);
}

TEST_F(CompareFiles, Metrics) {
  std::string const one = R"({"step":1,"loss":3.5,"step_s":1,"fingerprint":"01"})"
                          "\n";
  std::string const faster = R"({"step":1,"loss":3.5,"step_s":0.5,"fingerprint":"01"})"
                             "\n";
  write("a", one + R"({"step":2,"loss":3.25,"fingerprint":"02"})" + "\n" + R"({"step":3,"loss":3,"finger)");
  write("b", faster + "torn{\n" + R"({"step":2,"loss":3.25,"fingerprint":"02"})" + "\n" +
                 R"({"step":3,"loss":3,"fingerprint":"03"})" + "\n");
  auto result = metrics();
  EXPECT_FALSE(result.difference);
  EXPECT_EQ(result.compared.count, 2);
  EXPECT_EQ(result.first_last, 2);
  EXPECT_EQ(result.second_last, 3);
  write("b", faster + R"({"step":2,"loss":null,"fingerprint":"04"})" + "\n");
  EXPECT_EQ(metrics().difference, (MetricsDifference{2, "3.25", "null", "\"02\"", "\"04\""}));
  write("b", R"({"step":1,"loss":3.5,"fingerprint":"00"})"
             "\n");
  EXPECT_EQ(metrics().difference, (MetricsDifference{1, "3.5", "3.5", "\"01\"", "\"00\""}));
  std::filesystem::remove(folder_ / "b");
  EXPECT_EQ(metrics().compared.count, 0);
  EXPECT_EQ(metrics().second_last, 0);
}

}  // namespace
}  // namespace isotrain::test
