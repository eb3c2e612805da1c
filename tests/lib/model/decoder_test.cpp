#include "lib/model/decoder.h"

#include <gtest/gtest.h>

#include "kernels/cross_entropy.h"
#include "lib/base/error.h"
#include "tests/lib/model/tiny.h"

namespace isotrain::test {
namespace {

constexpr std::int64_t sequence = 37;

template <class T>
class Decoding : public testing::Test {};
using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(Decoding, Types);

/// The loss of a sequence from the logits of single steps.
template <class T>
double loss_of_steps(Decoder<Cpu, T>& decoder, Batch const& batch, int slices) {
  double sum = 0;
  for (std::size_t t = 0; t < batch.tokens.size(); ++t) {
    auto const logits = decoder.step(batch.tokens[t]);
    float loss = 0;
    kernels::cross_entropy_forward(Cpu(), {&loss, 1},
                                   Matrix<float const>(logits.data(), 1, static_cast<std::int64_t>(logits.size())),
                                   batch.targets.subspan(t, 1), slices);
    sum += static_cast<double>(loss);
  }
  return sum;
}

TYPED_TEST(Decoding, GivesTheBitsOfTheWholeForwardPass) {
  for (auto const& variant : variants()) {
    for (int const slices : {1, 2}) {
      auto const config = tiny_config(variant.json);
      auto options = tiny_options(config, sequence, 1);
      options.slices = slices;
      TinyModel<TypeParam> tiny(config, options);
      TinyData const data(config, 1, sequence);
      double expected = 0;
      evaluate(tiny, data.batch(0, 1), {&expected, 1});
      Decoder<Cpu, TypeParam> decoder(Cpu(), config, {sequence, slices}, tiny.table, tiny.weights(),
                                      tiny.model.router_biases());
      EXPECT_EQ(loss_of_steps(decoder, data.batch(0, 1), slices), expected) << variant.name;
      decoder.reset();
      EXPECT_EQ(loss_of_steps(decoder, data.batch(0, 1), slices), expected) << variant.name << " after reset";
    }
  }
}

TEST(Decoder, PrefillIsStepsWithoutTheirLogits) {
  auto const config = tiny_config(tiny_v3());
  TinyModel<float> tiny(config, tiny_options(config, sequence, 1));
  TinyData const data(config, 1, sequence);
  Decoder<Cpu, float> at_once(Cpu(), config, {sequence}, tiny.table, tiny.weights(), {});
  Decoder<Cpu, float> stepwise(Cpu(), config, {sequence}, tiny.table, tiny.weights(), {});
  auto const prefilled = at_once.prefill(data.tokens);
  std::span<float const> stepped;
  for (auto const token : data.tokens) stepped = stepwise.step(token);
  EXPECT_TRUE(std::equal(prefilled.begin(), prefilled.end(), stepped.begin()));
  EXPECT_EQ(at_once.length(), sequence);
}

TEST(Decoder, UsesTheRouterBiases) {
  auto const config = tiny_config(tiny_v3());
  TinyModel<float> tiny(config, tiny_options(config, sequence, 1));
  std::vector<float> biases(tiny.model.router_biases().size());
  for (std::size_t e = 0; e < biases.size(); ++e) biases[e] = e % 8 < 4 ? -10.0F : 0.0F;  // two of the four groups
  Decoder<Cpu, float> biased(Cpu(), config, {sequence}, tiny.table, tiny.weights(), biases);
  Decoder<Cpu, float> unbiased(Cpu(), config, {sequence}, tiny.table, tiny.weights(), {});
  auto const a = biased.step(3), b = unbiased.step(3);
  EXPECT_FALSE(std::equal(a.begin(), a.end(), b.begin()));
}

TEST(Decoder, RefusesWhatIsBeyondItsRoomOrVocabulary) {
  auto const config = tiny_config(tiny_llama());
  TinyModel<float> tiny(config, tiny_options(config, sequence, 1));
  Decoder<Cpu, float> decoder(Cpu(), config, {2}, tiny.table, tiny.weights(), {});
  EXPECT_THROW(decoder.step(23), Error);
  EXPECT_THROW(decoder.step(-1), Error);
  decoder.step(1);
  decoder.step(2);
  EXPECT_THROW(decoder.step(3), Error);
  EXPECT_THROW(decoder.prefill({}), std::logic_error);
  auto const make = [&](DecoderOptions options) {
    Decoder<Cpu, float> const made(Cpu(), config, options, tiny.table, tiny.weights(), {});
  };
  EXPECT_THROW(make({0}), UsageError);
  EXPECT_THROW(make({4096}), UsageError) << "above max_position_embeddings";
  EXPECT_THROW(make({8, 3}), UsageError) << "slices that do not divide the heads";
  EXPECT_THROW(make({8, 1, Yarn::on}), UsageError);
}

}  // namespace
}  // namespace isotrain::test
