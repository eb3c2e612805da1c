#include <gtest/gtest.h>

#include "tests/lib/model/tiny.h"
#include "tests/support/isa.h"

namespace isotrain::test {
namespace {

constexpr int samples = 4;

/// 37: neither a multiple of the blocks of 32 of bf16 products nor even; more than one chunk of the head.
constexpr std::int64_t sequence = 37;

/// Also the one that only matrix products know.
std::vector<Isa> every_isa() {
  auto isas = available_isas();
  try {
    Cpu const forced(1, Bf16Class::tiles, Isa::amx);
    isas.push_back(Isa::amx);
  } catch (UsageError const&) {
  }
  return isas;
}

template <class T>
class Bits : public testing::Test {
 protected:
  /// One step of `samples` samples.
  static StepResult step(Variant const& variant, ModelOptions options, Cpu place = Cpu(), Fill fill = Fill::nan) {
    TinyModel<T> tiny(tiny_config(variant.json), options, place, fill);
    return run_step(tiny, data(tiny.config), samples, options.micro_batch);
  }
  static StepResult step(Variant const& variant, int micro_batch, Cpu place = Cpu()) {
    return step(variant, make_options(variant, micro_batch), place);
  }
  static ModelOptions make_options(Variant const& variant, int micro_batch) {
    auto options = tiny_options(tiny_config(variant.json), sequence, micro_batch);
    options.head_rows = 32;
    return options;
  }
  static TinyData data(ModelConfig const& config) { return {config, samples, sequence}; }
  static void expect_same(Variant const& variant, StepResult const& a, StepResult const& b, std::string const& what,
                          int slices = 1) {
    EXPECT_EQ(difference(a, b, ParameterTable(model_parameters(tiny_config(variant.json)), slices)), "")
        << variant.name << ", " << what;
  }
};

using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(Bits, Types);

TYPED_TEST(Bits, DoNotDependOnTheMicroBatch) {
  for (auto const& variant : variants()) {
    auto const one = this->step(variant, 1);
    for (int const micro_batch : {2, 3, 4}) {
      this->expect_same(variant, one, this->step(variant, micro_batch), "micro-batch " + std::to_string(micro_batch));
    }
  }
}

TYPED_TEST(Bits, DoNotDependOnThreads) {
  for (auto const& variant : variants()) {
    this->expect_same(variant, this->step(variant, 4, Cpu(1)), this->step(variant, 4, Cpu(2)), "2 threads");
  }
}

TYPED_TEST(Bits, DoNotDependOnTheInstructionSet) {
  RestoreIsa const restore;
  for (auto const& variant : variants()) {
    auto const isas = every_isa();
    auto const first = this->step(variant, 2, Cpu(1, Bf16Class::tiles, isas.front()));
    for (auto const isa : isas) {
      this->expect_same(variant, first, this->step(variant, 2, Cpu(1, Bf16Class::tiles, isa)), isa_name());
    }
  }
}

TYPED_TEST(Bits, DoNotDependOnRecomputation) {
  for (auto const& variant : variants()) {
    auto options = this->make_options(variant, 2);
    auto const kept = this->step(variant, options);
    for (auto const recompute : {Recompute::selective, Recompute::full}) {
      options.recompute = recompute;
      this->expect_same(variant, kept, this->step(variant, options),
                        recompute == Recompute::full ? "full" : "selective");
    }
  }
}

TYPED_TEST(Bits, DoNotDependOnWhatMemoryHeldBefore) {
  for (auto const& variant : variants()) {
    auto const options = this->make_options(variant, 2);
    this->expect_same(variant, this->step(variant, options, Cpu(), Fill::nan),
                      this->step(variant, options, Cpu(), Fill::zero), "zeroed memory");
  }
}

TYPED_TEST(Bits, DoNotDependOnTheChunksOfTheHead) {
  for (auto const& variant : variants()) {
    auto options = this->make_options(variant, 4);
    auto const small = this->step(variant, options);
    for (std::int64_t const rows : {64, 96, 512}) {
      options.head_rows = rows;
      this->expect_same(variant, small, this->step(variant, options), std::to_string(rows) + " rows of logits");
    }
  }
}

// With slices everything above still holds, but the bits are others: the comparison sees a sum in another order.
TYPED_TEST(Bits, OfSlicesAreTheirOwn) {
  for (auto const& variant : variants()) {
    auto options = this->make_options(variant, 1);
    auto const whole = this->step(variant, options);
    options.slices = 2;
    auto const sliced = this->step(variant, options);
    EXPECT_NE(whole.losses, sliced.losses) << variant.name;
    options.micro_batch = 4;
    options.recompute = Recompute::selective;
    this->expect_same(variant, sliced, this->step(variant, options, Cpu(2)),
                      "2 slices, micro-batch 4, 2 threads, selective", 2);
  }
}

// The order of the samples is the order of the sums: the comparison would see a micro-batch that changes it.
TYPED_TEST(Bits, DependOnTheOrderOfSamples) {
  for (auto const& variant : variants()) {
    auto const config = tiny_config(variant.json);
    auto const options = this->make_options(variant, 1);
    TinyModel<TypeParam> forwards(config, options), backwards(config, options);
    auto const data = this->data(config);
    auto reversed = data;
    for (int s = 0; s < samples; ++s) {
      auto const from = data.batch(s, 1);
      std::copy(from.tokens.begin(), from.tokens.end(), reversed.tokens.end() - (s + 1) * sequence);
      std::copy(from.targets.begin(), from.targets.end(), reversed.targets.end() - (s + 1) * sequence);
    }
    EXPECT_NE(run_step(forwards, data, samples, 1).gradients, run_step(backwards, reversed, samples, 1).gradients);
  }
}

TYPED_TEST(Bits, OfASecondStepAreThoseOfTheFirst) {
  for (auto const& variant : variants()) {
    auto const config = tiny_config(variant.json);
    TinyModel<TypeParam> tiny(config, this->make_options(variant, 2));
    auto const data = this->data(config);
    auto const first = run_step(tiny, data, samples, 2);
    std::fill(tiny.model.expert_loads().begin(), tiny.model.expert_loads().end(), 0);
    this->expect_same(variant, first, run_step(tiny, data, samples, 2), "second step");
  }
}

TYPED_TEST(Bits, OfEvaluationAreThoseOfTraining) {
  for (auto const& variant : variants()) {
    auto const config = tiny_config(variant.json);
    TinyModel<TypeParam> tiny(config, this->make_options(variant, 4));
    auto const data = this->data(config);
    auto const trained = run_step(tiny, data, samples, 4);
    std::vector<double> losses(samples);
    evaluate(tiny, data.batch(0, samples), losses);
    EXPECT_EQ(losses, trained.losses) << variant.name;
    std::vector<std::int64_t> const loads(tiny.model.expert_loads().begin(), tiny.model.expert_loads().end());
    EXPECT_EQ(loads, trained.loads) << "evaluation counted experts";
  }
}

TEST(Loads, CountEachChoiceOnce) {
  for (auto const recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    auto const config = tiny_config(tiny_v3());
    auto options = tiny_options(config, sequence, 2);
    options.recompute = recompute;
    TinyModel<float> tiny(config, options);
    auto const loads = run_step(tiny, TinyData(config, samples, sequence), samples, 2).loads;
    ASSERT_EQ(loads.size(), 2u * 8u);
    for (std::size_t layer = 0; layer < 2; ++layer) {
      std::int64_t sum = 0;
      for (std::size_t e = 0; e < 8; ++e) sum += loads[layer * 8 + e];
      EXPECT_EQ(sum, samples * sequence * config.router.top_k);
    }
  }
}

// bf16 keeps 8 bits: each of the about 20 roundings of a layer on the way there and back moves a value by at most 2^-9
// of itself, independently, so the whole gradient by about sqrt(20 layers) 2^-9 of its norm, up to 4 times that. Where
// a token then chooses another expert, all that this token contributes differs; two of them may. A wrong term would
// show as a difference near 1.
TEST(Precision, Bf16GradientsAreCloseToFp32Ones) {
  for (auto const& variant : variants()) {
    auto const config = tiny_config(variant.json);
    auto const options = tiny_options(config, sequence, 2);
    double const stddev = 0.5 / std::sqrt(static_cast<double>(config.hidden_size));
    TinyModel<float> fp32(config, options, Cpu(), Fill::nan, stddev);
    TinyModel<bfloat16> bf16(config, options, Cpu(), Fill::nan, stddev);
    for (std::size_t i = 0; i < bf16.matrices.size(); ++i) fp32.matrices[i] = to_float(bf16.matrices[i]);
    TinyData const data(config, samples, sequence);
    auto const exact = run_step(fp32, data, samples, 2), rounded = run_step(bf16, data, samples, 2);
    double norm = 0, error = 0;
    for (std::size_t i = 0; i < exact.gradients.size(); ++i) {
      double const g = static_cast<double>(exact.gradients[i]);
      norm += g * g;
      error += std::pow(static_cast<double>(rounded.gradients[i]) - g, 2);
    }
    double const relative = std::sqrt(error / norm);
    double const rounding = 4 * std::sqrt(20.0 * config.num_layers) / 512;
    double const other_choices = config.num_experts > 0 ? std::sqrt(2.0 / (samples * sequence)) : 0;
    EXPECT_LT(relative, rounding + other_choices) << variant.name;
    EXPECT_GT(relative, 1e-4) << variant.name << ": is this bf16 at all?";
  }
}

}  // namespace
}  // namespace isotrain::test
