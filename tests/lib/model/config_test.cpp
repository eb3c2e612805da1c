#include "lib/model/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "lib/base/error.h"
#include "tests/lib/model/tiny.h"

namespace isotrain::test {
namespace {

/// What reading the description says, "" if it is accepted.
std::string complaint(Json const& json) {
  try {
    tiny_config(json);
    return {};
  } catch (UsageError const& error) {
    return error.what();
  }
}

testing::AssertionResult says(std::string const& text, std::string const& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << text << "' lacks '" << part << "'";
}

Json without(Json json, std::string const& name) {
  json.erase(name);
  return json;
}

TEST(Config, ReadsLlama) {
  auto const config = tiny_config(with(
      tiny_llama(),
      {{"num_key_value_heads", 2}, {"tie_word_embeddings", true}, {"rms_norm_eps", 1e-5}, {"rope_theta", 500000}}));
  EXPECT_EQ(config.architecture, Architecture::llama);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.norm_epsilon, 1e-5);
  EXPECT_EQ(config.rope_theta, 500000);
  EXPECT_EQ(config.num_moe_layers(), 0);
}

TEST(Config, TakesTheDefaultsOfTransformers) {
  auto const llama = tiny_config(without(tiny_llama(), "num_key_value_heads"));
  EXPECT_EQ(llama.num_kv_heads, 4);
  EXPECT_EQ(llama.norm_epsilon, 1e-6);
  EXPECT_EQ(llama.rope_theta, 10000);
  EXPECT_EQ(llama.initializer_range, 0.02);
  EXPECT_EQ(llama.max_positions, 2048);
  EXPECT_FALSE(llama.tied_embeddings);
  auto const v2 = tiny_config(tiny_v2());
  EXPECT_EQ(v2.router.scoring, kernels::Scoring::softmax);
  EXPECT_EQ(v2.router.method, kernels::TopkMethod::greedy);
  EXPECT_FALSE(v2.router.normalize_top_k);
  EXPECT_EQ(v2.router.scaling, 1);
  EXPECT_EQ(v2.aux_loss_alpha, 0.001);
  auto const v3 = tiny_config(tiny_v3());
  EXPECT_EQ(v3.router.scoring, kernels::Scoring::sigmoid);
  EXPECT_EQ(v3.router.method, kernels::TopkMethod::noaux_tc);
  EXPECT_TRUE(v3.router.normalize_top_k);
  EXPECT_EQ(v3.router.scaling, 2.5F);
  EXPECT_EQ(v3.aux_loss_alpha, 0.0001);
  EXPECT_EQ(v3.num_moe_layers(), 2);
}

TEST(Config, ReadsWhichLayersHaveExperts) {
  auto const config =
      tiny_config(with(tiny_v3(), {{"num_hidden_layers", 6}, {"first_k_dense_replace", 1}, {"moe_layer_freq", 2}}));
  EXPECT_FALSE(config.is_moe(0));
  EXPECT_FALSE(config.is_moe(1));
  EXPECT_TRUE(config.is_moe(2));
  EXPECT_FALSE(config.is_moe(3));
  EXPECT_TRUE(config.is_moe(4));
  EXPECT_EQ(tiny_config(with(tiny_v2(), {{"n_routed_experts", nullptr}})).num_moe_layers(), 0);
}

TEST(Config, ReadsBothSpellingsOfYarn) {
  Json const old_spelling = with(tiny_v3(), {{"rope_scaling", yarn_scaling(0.707)}, {"rope_theta", 20000}});
  Json scaling = yarn_scaling(0.707);
  scaling.erase("type");
  scaling["rope_type"] = "yarn";
  scaling["rope_theta"] = 20000.0;
  Json const new_spelling = with(tiny_v3(), {{"rope_parameters", scaling}});
  for (auto const& json : {old_spelling, new_spelling}) {
    auto const config = tiny_config(json);
    ASSERT_TRUE(config.yarn);
    EXPECT_EQ(config.yarn->factor, 4);
    EXPECT_EQ(config.yarn->original_positions, 64);
    EXPECT_EQ(config.yarn->beta_fast, 32);
    EXPECT_EQ(config.yarn->beta_slow, 1);
    EXPECT_EQ(config.yarn->mscale_all_dim, 0.707);
    EXPECT_EQ(config.rope_theta, 20000);
  }
  for (auto const& unscaled : {Json{{"rope_scaling", nullptr}}, Json{{"rope_parameters", {{"rope_type", "default"}}}},
                               Json{{"rope_scaling", {{"type", "default"}}}}}) {
    EXPECT_FALSE(tiny_config(with(tiny_v3(), unscaled)).yarn);
  }
}

TEST(Config, NotesWhatItIgnores) {
  auto const config = tiny_config(
      with(tiny_v3(),
           {{"num_nextn_predict_layers", 1}, {"quantization_config", {{"quant_method", "fp8"}}}, {"seq_aux", false}}));
  ASSERT_EQ(config.notes.size(), 3u);
  EXPECT_TRUE(says(config.notes[0], "seq_aux"));
  EXPECT_TRUE(says(config.notes[1], "num_nextn_predict_layers"));
  EXPECT_TRUE(says(config.notes[2], "quantization_config"));
  EXPECT_TRUE(tiny_config(tiny_v3()).notes.empty());
}

TEST(Config, NamesEveryMissingField) {
  Json const names = {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"};
  for (std::string const name : names) {
    EXPECT_TRUE(says(complaint(without(tiny_llama(), name)), name + " is missing"));
  }
  for (std::string const name :
       {"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_routed_experts",
        "moe_intermediate_size", "num_experts_per_tok", "n_group", "topk_group"}) {
    EXPECT_TRUE(says(complaint(without(tiny_v3(), name)), name + " is missing"));
  }
  auto const all = complaint({{"architectures", {"LlamaForCausalLM"}}});
  for (std::string const name : names) EXPECT_TRUE(says(all, name + " is missing"));
  EXPECT_TRUE(says(complaint(without(tiny_llama(), "architectures")), "architectures is missing"));
}

TEST(Config, NamesWrongTypesAndValues) {
  struct Case {
    Json json;
    char const* message;
  };
  Case const cases[] = {
      {with(tiny_llama(), {{"hidden_size", "16"}}), "hidden_size is \"16\", not an integer"},
      {with(tiny_llama(), {{"hidden_size", 16.5}}), "hidden_size is 16.5, not an integer"},
      {with(tiny_llama(), {{"vocab_size", 0}}), "vocab_size is 0, must be at least 1"},
      {with(tiny_llama(), {{"vocab_size", 3000000000}}), "below 2^31"},
      {with(tiny_llama(), {{"rms_norm_eps", "small"}}), "rms_norm_eps is \"small\", not a number"},
      {with(tiny_llama(), {{"rms_norm_eps", 0}}), "rms_norm_eps is 0, must be above 0"},
      {with(tiny_llama(), {{"rope_theta", 1}}), "rope_theta is 1, must be above 1"},
      {with(tiny_llama(), {{"tie_word_embeddings", 1}}), "tie_word_embeddings is 1, neither true nor false"},
      {with(tiny_llama(), {{"hidden_act", "gelu"}}), "hidden_act is \"gelu\", only \"silu\" is supported"},
      {with(tiny_llama(), {{"attention_bias", true}}), "attention_bias is true, only false is supported"},
      {with(tiny_llama(), {{"mlp_bias", true}}), "mlp_bias is true"},
      {with(tiny_llama(), {{"attention_dropout", 0.1}}), "attention_dropout is 0.1, only 0 is supported"},
      {with(tiny_llama(), {{"architectures", {"GPT2LMHeadModel"}}}), "architectures is [\"GPT2LMHeadModel\"]"},
      {with(tiny_llama(), {{"architectures", "LlamaForCausalLM"}}), "must be one of"},
      {with(tiny_llama(), {{"num_key_value_heads", 3}}), "num_key_value_heads 3 does not divide num_attention_heads 4"},
      {with(tiny_llama(), {{"num_attention_heads", 3}}), "num_attention_heads 3 does not divide hidden_size 16"},
      {with(tiny_llama(), {{"head_dim", 5}}), "needs an even head width, not 5"},
      {with(tiny_llama(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}),
       "rope_scaling.type is \"linear\", only \"yarn\" and \"default\" are supported"},
      {with(tiny_llama(), {{"rope_scaling", 4}}), "rope_scaling is 4, not an object"},
      {with(tiny_v3(), {{"rope_scaling", {{"type", "yarn"}}}}), "rope_scaling.factor is missing"},
      {with(tiny_v3(), {{"rope_scaling", with(yarn_scaling(1), {{"attention_factor", 2}})}}),
       "rope_scaling.attention_factor is not supported"},
      {with(tiny_v3(), {{"rope_scaling", with(yarn_scaling(1), {{"beta_fast", 0.5}})}}), "is below beta_slow"},
      {with(tiny_v3(), {{"rope_scaling", with(yarn_scaling(1), {{"truncate", false}})}}), "truncate is false"},
      {with(tiny_v3(), {{"rope_interleave", false}}), "rope_interleave is false"},
      {with(tiny_v3(), {{"qk_rope_head_dim", 3}}), "needs an even head width, not 3"},
      {with(tiny_v3(), {{"num_key_value_heads", 1}}), "num_key_value_heads differs from num_attention_heads"},
      {with(tiny_v3(), {{"scoring_func", "softmax"}}), "scoring_func is \"softmax\", only \"sigmoid\" is supported"},
      {with(tiny_v3(), {{"topk_method", "greedy"}}), "topk_method is \"greedy\", only \"noaux_tc\" is supported"},
      {with(tiny_v2(), {{"scoring_func", "sigmoid"}}), "scoring_func is \"sigmoid\", only \"softmax\" is supported"},
      {with(tiny_v2(), {{"topk_method", "noaux_tc"}}), "topk_method is \"noaux_tc\", only \"greedy\""},
      {with(tiny_v2(), {{"topk_method", 1}}), "topk_method is 1, not a text"},
      {with(tiny_v3(), {{"n_group", 3}}), "n_group 3 does not divide n_routed_experts 8"},
      {with(tiny_v3(), {{"topk_group", 5}}), "topk_group 5 is above n_group 4"},
      {with(tiny_v3(), {{"num_experts_per_tok", 5}}), "num_experts_per_tok 5 is above the 4 experts"},
      {with(tiny_v3(), {{"n_group", 8}, {"topk_group", 8}}), "leaves groups of one expert"},
  };
  for (auto const& [json, message] : cases) EXPECT_TRUE(says(complaint(json), message));
  EXPECT_EQ(complaint(tiny_llama()), "");
  EXPECT_EQ(complaint(tiny_v2()), "");
  EXPECT_EQ(complaint(tiny_v3()), "");
}

TEST(Config, NamesAllThatIsWrongInOneMessage) {
  auto const text = complaint(with(without(tiny_v3(), "kv_lora_rank"), {{"hidden_size", -1}, {"hidden_act", "relu"}}));
  EXPECT_TRUE(says(text, "'tiny'"));
  EXPECT_TRUE(says(text, "hidden_size is -1"));
  EXPECT_TRUE(says(text, "hidden_act is \"relu\""));
  EXPECT_TRUE(says(text, "kv_lora_rank is missing"));
}

TEST(Config, RefusesWhatIsNoDescription) {
  EXPECT_THROW(parse_model_config("{", "broken.json"), Error);
  EXPECT_THROW(parse_model_config("[1]", "list.json"), UsageError);
  EXPECT_THROW(read_model_config("/nonexistent/config.json"), Error);
}

TEST(Config, ReadsAFile) {
  auto const file = std::filesystem::temp_directory_path() / ("isotrain_config_" + std::to_string(getpid()) + ".json");
  std::ofstream(file) << tiny_v3().dump();
  EXPECT_EQ(read_model_config(file).kv_lora_rank, 8);
  std::filesystem::remove(file);
}

TEST(Slices, NamesTheNumbersThatWouldDo) {
  auto const complaint_of = [](Json const& json, int slices) -> std::string {
    try {
      check_slices(tiny_config(json), slices);
      return {};
    } catch (UsageError const& error) {
      return error.what();
    }
  };
  EXPECT_EQ(complaint_of(tiny_llama(), 4), "");
  EXPECT_TRUE(says(complaint_of(tiny_llama(), 3), "4 attention heads; 4 key/value heads do not divide by it"));
  EXPECT_TRUE(says(complaint_of(tiny_llama(), 3), "these would do: 1, 2, 4"));
  auto const gqa = with(tiny_llama(), {{"num_key_value_heads", 2}});
  EXPECT_TRUE(says(complaint_of(gqa, 4), "2 key/value heads does not divide by it"));
  EXPECT_TRUE(says(complaint_of(with(tiny_llama(), {{"intermediate_size", 26}}), 4), "26 columns of the feed-forward"));
  EXPECT_EQ(complaint_of(tiny_v3(), 2), "");
  EXPECT_TRUE(
      says(complaint_of(with(tiny_v3(), {{"moe_intermediate_size", 7}}), 2), "7 columns of the shared experts"));
  EXPECT_TRUE(says(complaint_of(tiny_v3(), 0), "must be at least 1"));
}

TEST(Options, MustFitTheModel) {
  auto const config = tiny_config(tiny_v3());
  auto const fits = [&](auto change) {
    auto options = tiny_options(config, 8, 1);
    change(options);
    try {
      check_options(config, options);
      return true;
    } catch (UsageError const&) {
      return false;
    }
  };
  EXPECT_TRUE(fits([](ModelOptions&) {}));
  EXPECT_FALSE(fits([](ModelOptions& o) { o.sequence = 0; }));
  EXPECT_FALSE(fits([](ModelOptions& o) { o.sequence = 4097; }));
  EXPECT_FALSE(fits([](ModelOptions& o) { o.micro_batch = 0; }));
  EXPECT_FALSE(fits([](ModelOptions& o) { o.head_rows = 0; }));
  EXPECT_FALSE(fits([](ModelOptions& o) { o.head_rows = 48; }));
  EXPECT_FALSE(fits([](ModelOptions& o) { o.slices = 4; }));
  EXPECT_FALSE(fits([](ModelOptions& o) { o.yarn = Yarn::on; }));
  EXPECT_FALSE(fits([](ModelOptions& o) {
    o.balance.device_alpha = 1;
    o.balance.device_groups = 3;
  }));
}

}  // namespace
}  // namespace isotrain::test
