#include "lib/model/parameter_list.h"

#include <gtest/gtest.h>

#include <set>

#include "lib/base/error.h"
#include "tests/lib/model/published.h"
#include "tests/lib/model/tiny.h"

namespace isotrain::test {
namespace {

using Shape = std::vector<std::int64_t>;

TEST(ParameterList, HasTheNamesAndShapesOfV3Checkpoints) {
  ParameterTable const table(model_parameters(tiny_config(deepseek_v3())), 8);
  EXPECT_EQ(table.all().size(), 45395u - 58u) << "all main tensors but the router biases, which are no parameters";
  auto const shape = [&](std::string const& name) { return table.find(name).shape; };
  EXPECT_EQ(shape("model.embed_tokens.weight"), (Shape{129280, 7168}));
  EXPECT_EQ(shape("lm_head.weight"), (Shape{129280, 7168}));
  EXPECT_EQ(shape("model.norm.weight"), (Shape{7168}));
  EXPECT_EQ(shape("model.layers.60.self_attn.q_a_proj.weight"), (Shape{1536, 7168}));
  EXPECT_EQ(shape("model.layers.60.self_attn.q_a_layernorm.weight"), (Shape{1536}));
  EXPECT_EQ(shape("model.layers.60.self_attn.q_b_proj.weight"), (Shape{24576, 1536}));
  EXPECT_EQ(shape("model.layers.60.self_attn.kv_a_proj_with_mqa.weight"), (Shape{576, 7168}));
  EXPECT_EQ(shape("model.layers.60.self_attn.kv_a_layernorm.weight"), (Shape{512}));
  EXPECT_EQ(shape("model.layers.60.self_attn.kv_b_proj.weight"), (Shape{32768, 512}));
  EXPECT_EQ(shape("model.layers.60.self_attn.o_proj.weight"), (Shape{7168, 16384}));
  EXPECT_EQ(shape("model.layers.2.mlp.gate_proj.weight"), (Shape{18432, 7168}));
  EXPECT_EQ(shape("model.layers.2.mlp.down_proj.weight"), (Shape{7168, 18432}));
  EXPECT_EQ(shape("model.layers.3.mlp.gate.weight"), (Shape{256, 7168}));
  EXPECT_EQ(shape("model.layers.3.mlp.experts.255.up_proj.weight"), (Shape{2048, 7168}));
  EXPECT_EQ(shape("model.layers.3.mlp.experts.255.down_proj.weight"), (Shape{7168, 2048}));
  EXPECT_EQ(shape("model.layers.3.mlp.shared_experts.down_proj.weight"), (Shape{7168, 2048}));
  EXPECT_THROW(table.find("model.layers.3.mlp.gate_proj.weight"), Error);
}

TEST(ParameterList, HasTheNumberOfTensorsOfV2Checkpoints) {
  EXPECT_EQ(model_parameters(tiny_config(deepseek_v2_lite())).size(), 5291u);
  EXPECT_EQ(model_parameters(tiny_config(deepseek_v2())).size(), 29102u);
}

TEST(ParameterList, SaysHowEachIsTreated) {
  ParameterTable const table(model_parameters(tiny_config(tiny_v3())), 2);
  auto const& matrix = table.find("model.layers.0.self_attn.o_proj.weight");
  EXPECT_EQ(matrix.segment, Segment::matrix);
  EXPECT_EQ(matrix.initial, Initial::normal);
  EXPECT_TRUE(matrix.decay);
  auto const& gain = table.find("model.layers.1.self_attn.kv_a_layernorm.weight");
  EXPECT_EQ(gain.segment, Segment::fp32);
  EXPECT_EQ(gain.initial, Initial::ones);
  EXPECT_FALSE(gain.decay);
  auto const& router = table.find("model.layers.1.mlp.gate.weight");
  EXPECT_EQ(router.segment, Segment::fp32);
  EXPECT_EQ(router.initial, Initial::normal);
  EXPECT_TRUE(router.decay);
}

TEST(ParameterList, OfTiedEmbeddingsHasNoOutputMatrix) {
  std::set<std::string> names;
  for (auto const& p : model_parameters(tiny_config(with(tiny_llama(), {{"tie_word_embeddings", true}})))) {
    names.insert(p.name);
  }
  EXPECT_TRUE(names.contains("model.embed_tokens.weight"));
  EXPECT_FALSE(names.contains("lm_head.weight"));
}

TEST(Initialize, DependsOnNameAndElementOnly) {
  ParameterTable const table(model_parameters(tiny_config(tiny_v3())), 2);
  std::vector<float> whole(static_cast<std::size_t>(table.flat_size()), NAN);
  initialize(table, whole, {0, table.flat_size()}, 7, 0.02);
  for (int const ranks : {3, 5}) {
    std::vector<float> joined;
    for (int rank = 0; rank < ranks; ++rank) {
      FlatRange const range{table.num_blocks() * rank / ranks * block_elements,
                            table.num_blocks() * (rank + 1) / ranks * block_elements};
      std::vector<float> part(static_cast<std::size_t>(range.size()), NAN);
      initialize(table, part, range, 7, 0.02);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, whole) << ranks << " ranks";
  }
  std::vector<float> other(whole.size());
  initialize(table, other, {0, table.flat_size()}, 8, 0.02);
  EXPECT_NE(other, whole) << "another seed";

  ParameterTable const cut(model_parameters(tiny_config(tiny_v3())), 4);
  std::vector<float> in_slices(static_cast<std::size_t>(cut.flat_size()), NAN);
  initialize(cut, in_slices, {0, cut.flat_size()}, 7, 0.02);
  for (auto const& p : table.all()) {
    EXPECT_EQ(tensor_of<float>(cut, cut.find(p.name), in_slices), tensor_of<float>(table, p, whole)) << p.name;
  }
}

TEST(Initialize, GivesNormalNumbersOnesAndEmptyGaps) {
  ParameterTable const table(model_parameters(tiny_config(with(tiny_llama(), {{"hidden_size", 64}}))), 2);
  std::vector<float> flat(static_cast<std::size_t>(table.flat_size()), NAN);
  initialize(table, flat, {0, table.flat_size()}, 7, 0.02);
  double squares = 0;
  std::int64_t normal = 0, zeros = 0;
  for (auto const& piece : table.pieces()) {
    auto const& p = table.parameter(piece);
    for (std::int64_t i = 0; i < piece.size(); ++i) {
      float const value = flat[static_cast<std::size_t>(piece.offset + i)];
      if (p.initial == Initial::ones) {
        ASSERT_EQ(value, 1.0F) << p.name;
      } else {
        squares += static_cast<double>(value) * static_cast<double>(value);
        ++normal;
      }
    }
  }
  // the relative error of a variance from n samples is sqrt(2 / n)
  double const n = static_cast<double>(normal);
  EXPECT_NEAR(squares / n / (0.02 * 0.02), 1, 5 * std::sqrt(2 / n));
  for (float const value : flat) zeros += value == 0 ? 1 : 0;
  EXPECT_EQ(zeros, table.flat_size() - table.num_parameters());
}

}  // namespace
}  // namespace isotrain::test
