#include "lib/model/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lib/base/error.h"
#include "tests/lib/model/tiny.h"

namespace isotrain::test {
namespace {

constexpr std::int64_t sequence = 8;

TEST(RouterBias, MovesTowardsTheMean) {
  std::vector<float> biases = {0, 0.5F, -0.5F, 0, 1, 1, 1, 1};
  std::vector<std::int64_t> const loads = {10, 2, 6, 6, 3, 3, 3, 4};
  update_router_bias(biases, loads, 4, 0.25F);
  EXPECT_EQ(biases, (std::vector<float>{-0.25F, 0.75F, -0.5F, 0, 1.25F, 1.25F, 1.25F, 0.75F}));
}

// The mean of 1, 1, 1, 2 is no integer: rounding it would leave the first three as they are.
TEST(RouterBias, ComparesWithTheExactMean) {
  std::vector<float> biases(4);
  std::vector<std::int64_t> const loads = {1, 1, 1, 2};
  update_router_bias(biases, loads, 4, 1);
  EXPECT_EQ(biases, (std::vector<float>{1, 1, 1, -1}));
}

TEST(RouterBias, NeedsALoadForEachBias) {
  std::vector<float> biases(4);
  std::vector<std::int64_t> const loads(3);
  EXPECT_THROW(update_router_bias(biases, loads, 4, 1), std::logic_error);
}

TEST(RouterBias, EvensOutTheLoads) {
  auto const config = tiny_config(tiny_v3());
  TinyModel<float> tiny(config, tiny_options(config, sequence, 8));
  TinyData const data(config, 8, sequence);
  auto const imbalance = [&] {
    std::fill(tiny.model.expert_loads().begin(), tiny.model.expert_loads().end(), 0);
    auto const loads = run_step(tiny, data, 8, 8).loads;
    return *std::max_element(loads.begin(), loads.end()) - *std::min_element(loads.begin(), loads.end());
  };
  auto const before = imbalance();
  for (int step = 0; step < 100; ++step) {
    imbalance();
    update_router_bias(tiny.model.router_biases(), tiny.model.expert_loads(), config.num_experts, 0.01F);
  }
  EXPECT_LT(imbalance(), before / 2);
}

TEST(RouterBias, HasTheNamesOfCheckpoints) {
  EXPECT_EQ(router_bias_names(tiny_config(tiny_v3())),
            (std::vector<std::string>{"model.layers.1.mlp.gate.e_score_correction_bias",
                                      "model.layers.2.mlp.gate.e_score_correction_bias"}));
  EXPECT_TRUE(router_bias_names(tiny_config(tiny_v2())).empty());
  EXPECT_TRUE(router_bias_names(tiny_config(tiny_llama())).empty());
}

TEST(NonFinite, NamesTheFirstLayerAndTensor) {
  auto const config = tiny_config(tiny_v3());
  auto const found = [&](auto harm) {
    TinyModel<float> tiny(config, tiny_options(config, sequence, 2));
    harm(tiny);
    return tiny.model.find_non_finite(0, TinyData(config, 2, sequence).batch(0, 2));
  };
  auto const weight = [](TinyModel<float>& tiny, std::string const& name) -> float& {
    auto const& p = tiny.table.find(name);
    auto const offset = static_cast<std::size_t>(tiny.table.pieces_of(p).front().offset);
    return p.segment == Segment::matrix ? tiny.matrices[offset] : tiny.flat[offset];
  };
  EXPECT_EQ(found([](auto&) {}), std::nullopt);
  EXPECT_EQ(found([&](auto& tiny) { weight(tiny, "model.layers.1.mlp.experts.2.down_proj.weight") = NAN; }),
            "weight model.layers.1.mlp.experts.2.down_proj.weight, element 0 is NaN");
  EXPECT_EQ(found([&](auto& tiny) { weight(tiny, "model.layers.2.input_layernorm.weight") = INFINITY; }),
            "weight model.layers.2.input_layernorm.weight, element 0 is infinite");
  EXPECT_EQ(found([&](auto& tiny) { weight(tiny, "lm_head.weight") = NAN; }),
            "weight lm_head.weight, element 0 is NaN");
  // finite weights, products that overflow
  auto const overflow = [&](std::string const& name) {
    return found([&](auto& tiny) {
      auto const& p = tiny.table.find(name);
      auto const offset = tiny.table.pieces_of(p).front().offset;
      for (std::int64_t i = 0; i < p.size(); ++i) tiny.matrices[static_cast<std::size_t>(offset + i)] = 3e38F;
    });
  };
  EXPECT_TRUE(overflow("model.layers.1.self_attn.kv_b_proj.weight")->starts_with("layer 1: keys and values, element"));
  EXPECT_TRUE(overflow("model.layers.0.mlp.gate_proj.weight")->starts_with("layer 0: gate and up, element"));
  EXPECT_TRUE(overflow("lm_head.weight")->starts_with("loss of sample"));
}

TEST(Yarn, IsASwitch) {
  auto const scaled = with(tiny_v3(), {{"rope_scaling", yarn_scaling(1.0)}});
  auto const losses = [](Json const& json, Yarn yarn) {
    auto const config = tiny_config(json);
    auto options = tiny_options(config, sequence, 2);
    options.yarn = yarn;
    TinyModel<float> tiny(config, options);
    return run_step(tiny, TinyData(config, 2, sequence), 2, 2).losses;
  };
  EXPECT_EQ(losses(scaled, Yarn::off), losses(tiny_v3(), Yarn::automatic));
  EXPECT_EQ(losses(scaled, Yarn::on), losses(scaled, Yarn::automatic));
  EXPECT_NE(losses(scaled, Yarn::on), losses(scaled, Yarn::off));
  EXPECT_EQ(losses(tiny_v3(), Yarn::off), losses(tiny_v3(), Yarn::automatic));
}

TEST(Model, RefusesBatchesOfWrongSize) {
  auto const config = tiny_config(tiny_llama());
  TinyModel<float> tiny(config, tiny_options(config, sequence, 2));
  TinyData const data(config, 3, sequence);
  std::vector<double> losses(3);
  EXPECT_THROW(evaluate(tiny, data.batch(0, 3), losses), std::logic_error) << "more than the micro-batch";
  EXPECT_THROW(evaluate(tiny, data.batch(0, 2), losses), std::logic_error) << "a loss too many";
  auto batch = data.batch(0, 2);
  batch.samples = 1;
  EXPECT_THROW(evaluate(tiny, batch, std::span(losses).first(1)), std::logic_error) << "tokens of two samples";
}

TEST(Plan, RecomputationSavesMemory) {
  for (auto const& variant : variants()) {
    auto const config = tiny_config(variant.json);
    auto options = tiny_options(config, 64, 4);
    std::vector<std::size_t> bytes;
    for (auto const recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      options.recompute = recompute;
      BufferPlan plan;
      Model<Cpu, float>::plan(config, options, {}, plan);
      bytes.push_back(plan.total_bytes("activations"));
    }
    EXPECT_LT(bytes[1], bytes[0]) << variant.name;
    EXPECT_LT(bytes[2], bytes[1]) << variant.name;
    // of each layer, the output, and the gradient of the stream
    std::size_t const inputs = static_cast<std::size_t>((config.num_layers + 2) * 64 * 4 * config.hidden_size) * 4;
    std::size_t const between = static_cast<std::size_t>(64 * 4 * config.hidden_size) * 4;
    EXPECT_EQ(bytes[2], inputs + between) << variant.name << ": only what enters the layers";
  }
}

TEST(Plan, PartsBesideEachOtherShareScratch) {
  auto const config = tiny_config(tiny_v3());
  auto const options = tiny_options(config, 64, 4);
  ModelPart const first{.layers = {0, 1}}, rest{.layers = {1, config.num_layers}};
  BufferPlan alone, shared;
  auto const a = Model<Cpu, float>::plan(config, options, first, alone);
  auto const b = Model<Cpu, float>::plan(config, options, rest, alone);
  auto const c = Model<Cpu, float>::plan(config, options, first, shared);
  auto const d = Model<Cpu, float>::plan(config, options, rest, shared, &c);
  std::int64_t saved = 0;
  for (std::size_t i = 0; i < a.scratch.size(); ++i) {
    EXPECT_EQ(c.scratch[i].index, d.scratch[i].index);
    EXPECT_NE(a.scratch[i].index, b.scratch[i].index);
    std::int64_t const larger = std::max(a.scratch[i].count, b.scratch[i].count);
    EXPECT_EQ(static_cast<std::int64_t>(shared.entries()[c.scratch[i].index].bytes), larger);
    saved += std::min(a.scratch[i].count, b.scratch[i].count);
  }
  EXPECT_GT(saved, 0);
  EXPECT_EQ(shared.total_bytes() + static_cast<std::size_t>(saved), alone.total_bytes());
}

TEST(Plan, RefusesOptionsThatDoNotFit) {
  auto const config = tiny_config(tiny_llama());
  auto options = tiny_options(config, 64, 1);
  options.slices = 3;
  BufferPlan plan;
  EXPECT_THROW((Model<Cpu, float>::plan(config, options, {}, plan)), UsageError);
}

}  // namespace
}  // namespace isotrain::test
