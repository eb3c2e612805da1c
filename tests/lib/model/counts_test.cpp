#include "lib/model/counts.h"

#include <gtest/gtest.h>

#include "lib/model/rope_scaling.h"
#include "tests/lib/model/published.h"

namespace isotrain::test {
namespace {

struct Case {
  char const* name;
  Json json;
  std::int64_t parameters;
  std::int64_t active;
  double train_gflops;  // a token, causal, sequences of 4096
};

// DeepSeek LLM: arXiv:2401.02954. V2-Lite and V2: arXiv:2405.04434 (15.7B, 236B). V3: arXiv:2412.19437 (671B, 37B).
// FLOPs of V2 and V3: 155 and 250 GFLOPs a token in "Insights into DeepSeek-V3" (arXiv:2505.09343), table 2.
std::vector<Case> const cases = {{"7B", deepseek_llm(4096, 11008, 30, 32, 32), 6910365696, 6910365696, 0},
                                 {"67B", deepseek_llm(8192, 22016, 95, 64, 8), 67425001472, 67425001472, 0},
                                 {"V2-Lite", deepseek_v2_lite(), 15706484224, 2661150208, 16.41},
                                 {"V2", deepseek_v2(), 235741434880, 21375800320, 155.31},
                                 {"V3", deepseek_v3(), 671026404352, 37552282624, 250.46}};

TEST(Counts, AreThePublishedOnes) {
  for (auto const& [name, json, parameters, active, gflops] : cases) {
    auto const config = tiny_config(json);
    EXPECT_EQ(num_parameters(config), parameters) << name;
    EXPECT_EQ(num_active_parameters(config), active) << name;
    if (gflops == 0) continue;
    EXPECT_NEAR(train_flops_per_token(config, 4096) * 1e-9, gflops, 0.005) << name;
  }
}

TEST(Counts, OfTiedEmbeddingsLackTheOutputMatrixButNotItsProduct) {
  auto const untied = tiny_config(tiny_llama());
  auto const tied = tiny_config(with(tiny_llama(), {{"tie_word_embeddings", true}}));
  EXPECT_EQ(num_parameters(untied) - num_parameters(tied), 23 * 16);
  EXPECT_EQ(forward_flops_per_token(untied, 8), forward_flops_per_token(tied, 8));
}

TEST(SoftmaxScale, IsThatOfTheReleasedModels) {
  auto const v3 = tiny_config(deepseek_v3());
  auto const lite = tiny_config(deepseek_v2_lite());
  EXPECT_NEAR(softmax_scale(v3, Yarn::automatic), 0.13523378, 5e-9);
  EXPECT_NEAR(softmax_scale(lite, Yarn::on), 0.11472139, 5e-9);
  EXPECT_NEAR(softmax_scale(v3, Yarn::off), 0.07216878, 5e-9);
}

}  // namespace
}  // namespace isotrain::test
