#include "tests/app/tiny_run.h"

#include <algorithm>
#include <cstdio>
#include <ostream>
#include <random>
#include <sstream>
#include <stdexcept>

namespace isotrain::test {

std::string made_up_text(std::size_t bytes, unsigned seed) {
  std::minstd_rand random(seed);
  std::vector<std::string> words;
  for (int i = 0; i < 200; ++i) {
    std::string word;
    for (unsigned n = 1 + random() % 6; n > 0; --n) word += "etaoinshrdlu"[random() % 12];
    words.push_back(word);
  }
  std::string text;
  while (text.size() < bytes) {
    for (unsigned n = 20 + random() % 60; n > 0; --n) text += words[random() % (1 + random() % words.size())] + " ";
    text.back() = '\n';
    text += '\n';
  }
  return text;
}

namespace {

nlohmann::json tiny_llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", 257},
          {"hidden_size", 32},
          {"intermediate_size", 72},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 4},
          {"hidden_act", "silu"},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 10000},
          {"initializer_range", 0.05},
          {"tie_word_embeddings", false},
          {"attention_bias", false}};
}

nlohmann::json tiny_moe() {
  return {{"architectures", {"DeepseekV3ForCausalLM"}},
          {"model_type", "deepseek_v3"},
          {"vocab_size", 257},
          {"hidden_size", 32},
          {"intermediate_size", 72},
          {"moe_intermediate_size", 20},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 4},
          {"q_lora_rank", 20},
          {"kv_lora_rank", 12},
          {"qk_nope_head_dim", 8},
          {"qk_rope_head_dim", 4},
          {"v_head_dim", 8},
          {"first_k_dense_replace", 1},
          {"n_routed_experts", 8},
          {"n_shared_experts", 1},
          {"num_experts_per_tok", 2},
          {"n_group", 4},
          {"topk_group", 2},
          {"norm_topk_prob", true},
          {"routed_scaling_factor", 2.5},
          {"scoring_func", "sigmoid"},
          {"topk_method", "noaux_tc"},
          {"hidden_act", "silu"},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 10000},
          {"initializer_range", 0.05},
          {"tie_word_embeddings", false},
          {"attention_bias", false}};
}

}  // namespace

TinyWorld::TinyWorld() {
  write_file(folder_ / "text.txt", made_up_text(80'000));
  nlohmann::json const llama = tiny_llama(), moe = tiny_moe();
  write_file(folder_ / "llama.json", llama.dump(2));
  write_file(folder_ / "moe.json", moe.dump(2));
  auto const write = [&](std::string const& name, nlohmann::json config, nlohmann::json const& changes) {
    config.update(changes);
    config["num_hidden_layers"] = 8;
    write_file(folder_ / (name + ".json"), config.dump(2));
  };
  write("deep-llama", llama, nlohmann::json::object());
  write("deep-moe", moe, nlohmann::json::object());
  write("tied", llama, {{"tie_word_embeddings", true}});
  write("v2-lite", moe,
        {{"architectures", {"DeepseekV2ForCausalLM"}},
         {"model_type", "deepseek_v2"},
         {"q_lora_rank", nullptr},
         {"n_group", 1},
         {"topk_group", 1},
         {"n_shared_experts", 2},
         {"norm_topk_prob", false},
         {"routed_scaling_factor", 1.0},
         {"scoring_func", "softmax"},
         {"topk_method", "greedy"},
         {"aux_loss_alpha", 0.01},
         {"seq_aux", true}});
  auto const prepared = run(isotrain({"prepare", folder_ / "text.txt", "--documents", "paragraphs", "--tokenizer",
                                      "bytes", "--validation", "0.1", "--shards", "24", "--out", folder_ / "corpus"}));
  if (prepared.exit_code != 0) throw std::runtime_error("prepare failed: " + prepared.err);
}

std::vector<std::string> TinyWorld::train(std::string const& model, std::string const& name,
                                          std::vector<std::string> const& more) const {
  // Later arguments would be refused as repeated ones, so defaults that `more` names are left out.
  std::vector<std::pair<std::string, std::string>> const defaults{{"--model.config", folder_ / (model + ".json")},
                                                                  {"--data.corpus", folder_ / "corpus"},
                                                                  {"--run.dir", folder_ / name},
                                                                  {"--train.steps", "4"},
                                                                  {"--train.global_batch", "32"},
                                                                  {"--train.sequence", "32"},
                                                                  {"--optim.lr", "1e-2"}};
  std::vector<std::string> arguments{"train"};
  for (auto const& [key, value] : defaults) {
    if (std::find(more.begin(), more.end(), key) == more.end()) arguments.insert(arguments.end(), {key, value});
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<TinyWorld::Step> TinyWorld::steps(std::string const& name) const {
  std::istringstream lines(read_file(folder_ / name / "metrics.jsonl"));
  std::vector<Step> result;
  for (std::string line; std::getline(lines, line);) {
    auto const object = nlohmann::json::parse(line);
    Step step{.step = object.at("step"),
              .loss = object.at("loss"),
              .fingerprint = object.at("fingerprint"),
              .gradient_norm = object.at("grad_norm"),
              .balance_loss = object.value("balance_loss", 0.0),
              .max_violation = object.value("max_vio_by_layer", std::vector<double>()),
              .validation_loss = {}};
    if (object.contains("eval_loss")) step.validation_loss = object["eval_loss"];
    result.push_back(std::move(step));
  }
  return result;
}

std::size_t TinyWorld::steps_so_far(std::string const& name) const {
  std::string const text = read_file(folder_ / name / "metrics.jsonl");
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

std::string checkpoint_name(std::size_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%08zu.h5", step);
  return text;
}

std::ostream& operator<<(std::ostream& out, TinyWorld::Step const& step) {
  out << "step " << step.step << " loss " << step.loss << " fingerprint " << step.fingerprint << " gradient norm "
      << step.gradient_norm << " balance loss " << step.balance_loss << " loads";
  for (double const violation : step.max_violation) out << ' ' << violation;
  if (step.validation_loss) out << " validation loss " << *step.validation_loss;
  return out;
}

}  // namespace isotrain::test
