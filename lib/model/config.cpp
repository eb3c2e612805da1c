#include "lib/model/config.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "lib/base/error.h"
#include "lib/base/json.h"
#include "lib/model/json_fields.h"

namespace isotrain {

namespace {

std::string join(std::vector<std::string> const& parts) {
  std::string text;
  for (auto const& part : parts) text += (text.empty() ? "" : "; ") + part;
  return text;
}

Architecture read_architecture(JsonFields& fields) {
  char const* const choices =
      "must be one of [\"LlamaForCausalLM\"], [\"DeepseekV2ForCausalLM\"], [\"DeepseekV3ForCausalLM\"]";
  if (!fields.has("architectures")) {
    fields.problem("architectures", std::string("is missing, ") + choices);
    return Architecture::llama;
  }
  auto const& value = fields.raw("architectures");
  if (value == nlohmann::json{"LlamaForCausalLM"}) return Architecture::llama;
  if (value == nlohmann::json{"DeepseekV2ForCausalLM"}) return Architecture::deepseek_v2;
  if (value == nlohmann::json{"DeepseekV3ForCausalLM"}) return Architecture::deepseek_v3;
  fields.problem("architectures", "is " + value.dump() + ", " + choices);
  return Architecture::llama;
}

/// One of the two spellings: "rope_scaling", or "rope_parameters", which also holds rope_theta.
void read_rope(ModelConfig& config, JsonFields& fields, std::vector<std::string>& problems) {
  config.rope_theta = fields.number("rope_theta", 1, 10000.0);
  for (std::string const name : {"rope_scaling", "rope_parameters"}) {
    if (!fields.has(name)) continue;
    if (!fields.raw(name).is_object()) {
      fields.problem(name, "is " + fields.raw(name).dump() + ", not an object");
      continue;
    }
    JsonFields rope(fields.raw(name), problems, name + ".");
    config.rope_theta = rope.number("rope_theta", 1, config.rope_theta);
    std::string const kind = rope.text("rope_type", rope.text("type", "default"));
    if (kind == "default") continue;
    if (kind != "yarn") {
      rope.problem("type", "is \"" + kind + "\", only \"yarn\" and \"default\" are supported");
      continue;
    }
    kernels::YarnConfig yarn;
    yarn.factor = rope.number("factor", 0);
    yarn.original_positions = rope.integer("original_max_position_embeddings", 1, config.max_positions);
    yarn.beta_fast = rope.number("beta_fast", 0, yarn.beta_fast);
    yarn.beta_slow = rope.number("beta_slow", 0, yarn.beta_slow);
    yarn.mscale = rope.has("mscale") ? rope.number("mscale", 0) : 0;
    yarn.mscale_all_dim = rope.has("mscale_all_dim") ? rope.number("mscale_all_dim", 0) : 0;
    if (yarn.beta_fast < yarn.beta_slow) rope.problem("beta_fast", "is below beta_slow");
    rope.must_be("truncate", true);
    if (rope.has("attention_factor")) rope.problem("attention_factor", "is not supported");
    config.yarn = yarn;
  }
}

void read_grouped_attention(ModelConfig& config, JsonFields& fields, std::vector<std::string>& problems) {
  config.num_kv_heads = static_cast<int>(fields.integer("num_key_value_heads", 1, config.num_heads));
  std::int64_t const shared = config.hidden_size / config.num_heads;
  if (!fields.has("head_dim") && config.hidden_size % config.num_heads != 0) {
    problems.push_back("num_attention_heads " + std::to_string(config.num_heads) + " does not divide hidden_size " +
                       std::to_string(config.hidden_size) + ", and there is no head_dim");
  }
  config.head_dim = static_cast<int>(fields.integer("head_dim", 1, shared));
  if (config.num_heads % config.num_kv_heads != 0) {
    problems.push_back("num_key_value_heads " + std::to_string(config.num_kv_heads) +
                       " does not divide num_attention_heads " + std::to_string(config.num_heads));
  }
  fields.must_be("mlp_bias", false);
}

void read_latent_attention(ModelConfig& config, JsonFields& fields) {
  config.num_kv_heads = config.num_heads;
  if (fields.integer("num_key_value_heads", 1, config.num_heads) != config.num_heads) {
    fields.problem("num_key_value_heads", "differs from num_attention_heads, which latent attention does not have");
  }
  config.q_lora_rank = static_cast<int>(fields.integer_or_null("q_lora_rank", 1, 0));
  config.kv_lora_rank = static_cast<int>(fields.integer("kv_lora_rank", 1));
  config.qk_nope_head_dim = static_cast<int>(fields.integer("qk_nope_head_dim", 1));
  config.qk_rope_head_dim = static_cast<int>(fields.integer("qk_rope_head_dim", 2));
  config.v_head_dim = static_cast<int>(fields.integer("v_head_dim", 1));
  fields.must_be("rope_interleave", true);
}

void check_router(ModelConfig const& config, std::vector<std::string>& problems) {
  auto const& router = config.router;
  auto const text = [](std::int64_t number) { return std::to_string(number); };
  if (router.experts % router.num_groups != 0) {
    problems.push_back("n_group " + text(router.num_groups) + " does not divide n_routed_experts " +
                       text(router.experts));
    return;
  }
  if (router.top_groups > router.num_groups) {
    problems.push_back("topk_group " + text(router.top_groups) + " is above n_group " + text(router.num_groups));
  }
  bool const limited = router.method != kernels::TopkMethod::greedy;
  int const per_group = router.experts / router.num_groups;
  int const available = limited ? per_group * router.top_groups : router.experts;
  if (router.top_k > available) {
    problems.push_back("num_experts_per_tok " + text(router.top_k) + " is above the " + text(available) +
                       " experts that a token may choose from");
  }
  if (router.method == kernels::TopkMethod::noaux_tc && per_group < 2) {
    problems.push_back("n_group " + text(router.num_groups) +
                       " leaves groups of one expert, and a group's score is the sum of its two best");
  }
}

void read_experts(ModelConfig& config, JsonFields& fields, std::vector<std::string>& problems) {
  bool const v3 = config.architecture == Architecture::deepseek_v3;
  config.num_experts = static_cast<int>(fields.integer_or_null("n_routed_experts", 1, 0));
  if (config.num_experts == 0) return;
  config.num_shared_experts =
      fields.has("n_shared_experts") ? static_cast<int>(fields.integer("n_shared_experts", 0)) : 0;
  config.moe_intermediate_size = static_cast<int>(fields.integer("moe_intermediate_size", 1));
  config.first_dense_layers = static_cast<int>(fields.integer("first_k_dense_replace", 0, v3 ? 3 : 0));
  config.moe_layer_freq = static_cast<int>(fields.integer("moe_layer_freq", 1, 1));
  config.aux_loss_alpha = fields.has("aux_loss_alpha") ? fields.number("aux_loss_alpha", -1e-300) : (v3 ? 1e-4 : 1e-3);
  if (!fields.boolean("seq_aux", true)) {
    config.notes.push_back("seq_aux false is ignored: balancing losses are per sequence");
  }

  auto& router = config.router;
  router.experts = config.num_experts;
  router.top_k = static_cast<int>(fields.integer("num_experts_per_tok", 1));
  std::optional<std::int64_t> const no_groups = v3 ? std::nullopt : std::optional<std::int64_t>(1);
  router.num_groups = static_cast<int>(fields.integer("n_group", 1, no_groups));
  router.top_groups = static_cast<int>(fields.integer("topk_group", 1, no_groups));
  router.normalize_top_k = fields.boolean("norm_topk_prob", v3);
  router.scaling = static_cast<float>(fields.number("routed_scaling_factor", 0, v3 ? 2.5 : 1.0));
  if (v3) {
    router.scoring = kernels::Scoring::sigmoid;
    router.method = kernels::TopkMethod::noaux_tc;
    fields.must_be("scoring_func", "sigmoid");
    fields.must_be("topk_method", "noaux_tc");
  } else {
    router.scoring = kernels::Scoring::softmax;
    fields.must_be("scoring_func", "softmax");
    std::string const method = fields.text("topk_method", "greedy");
    router.method = kernels::TopkMethod::greedy;
    if (method == "group_limited_greedy") {
      router.method = kernels::TopkMethod::group_limited_greedy;
    } else if (method != "greedy") {
      fields.problem("topk_method",
                     "is \"" + method + "\", only \"greedy\" and \"group_limited_greedy\" are supported");
    }
  }
  check_router(config, problems);
}

/// "1, 2, 4" for the divisors of what must be divided.
std::string divisors(std::int64_t number) {
  std::string list;
  for (std::int64_t d = 1; d <= number; ++d) {
    if (number % d == 0) list += (list.empty() ? "" : ", ") + std::to_string(d);
  }
  return list;
}

}  // namespace

int ModelConfig::moe_index(int layer) const {
  int count = 0;
  for (int before = 0; before < layer; ++before) count += is_moe(before) ? 1 : 0;
  return count;
}

ModelConfig parse_model_config(std::string const& text, std::string const& source) {
  nlohmann::json const object = parse_json(text, source);
  if (!object.is_object()) throw UsageError("'" + source + "' does not describe a model", "it is not a JSON object");

  ModelConfig config;
  std::vector<std::string> problems;
  JsonFields fields(object, problems);
  config.architecture = read_architecture(fields);
  config.vocab_size = fields.integer("vocab_size", 1);
  config.hidden_size = fields.integer("hidden_size", 1);
  config.intermediate_size = fields.integer("intermediate_size", 1);
  config.num_layers = static_cast<int>(fields.integer("num_hidden_layers", 1));
  config.num_heads = static_cast<int>(fields.integer("num_attention_heads", 1));
  bool const v3 = config.architecture == Architecture::deepseek_v3;
  config.max_positions = fields.integer("max_position_embeddings", 1, v3 ? 4096 : 2048);
  config.norm_epsilon = fields.number("rms_norm_eps", 0, config.norm_epsilon);
  config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
  config.initializer_range = fields.number("initializer_range", 0, config.initializer_range);
  fields.must_be("hidden_act", "silu");
  fields.must_be("attention_bias", false);
  if (fields.has("attention_dropout") && fields.raw("attention_dropout") != 0) {
    fields.problem("attention_dropout", "is " + fields.raw("attention_dropout").dump() + ", only 0 is supported");
  }
  read_rope(config, fields, problems);
  if (config.latent_attention()) {
    read_latent_attention(config, fields);
    read_experts(config, fields, problems);
  } else {
    read_grouped_attention(config, fields, problems);
  }
  if (config.rope_dim() % 2 != 0) {
    problems.push_back("rotary embedding needs an even head width, not " + std::to_string(config.rope_dim()));
  }
  if (fields.integer("num_nextn_predict_layers", 0, 0) > 0) {
    config.notes.push_back("num_nextn_predict_layers is ignored: multi-token prediction is not trained");
  }
  if (fields.has("quantization_config")) {
    config.notes.push_back("quantization_config is ignored: it describes stored weights, not the model");
  }
  if (!problems.empty()) throw UsageError("cannot use the model of '" + source + "'", join(problems));
  return config;
}

ModelConfig read_model_config(std::filesystem::path const& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf())) {
    throw Error("cannot read the model's description '" + file.string() + "'",
                "no such file, or it is empty or not readable", "--model.config takes a Hugging Face config.json");
  }
  return parse_model_config(text.str(), file.string());
}

void check_slices(ModelConfig const& config, int slices) {
  if (slices < 1) throw UsageError("the number of slices is " + std::to_string(slices), "must be at least 1");
  std::vector<std::string> wrong;
  std::int64_t common = 0;
  auto const check = [&](char const* what, std::int64_t size) {
    common = std::gcd(common, size);
    if (size % slices != 0) wrong.push_back(std::to_string(size) + " " + what);
  };
  check("attention heads", config.num_heads);
  if (!config.latent_attention()) check("key/value heads", config.num_kv_heads);
  if (config.num_moe_layers() < config.num_layers) check("columns of the feed-forward layer", config.intermediate_size);
  if (config.num_moe_layers() > 0 && config.num_shared_experts > 0) {
    check("columns of the shared experts", config.shared_width());
  }
  if (wrong.empty()) return;
  throw UsageError("the model cannot be cut into " + std::to_string(slices) + " slices",
                   join(wrong) + (wrong.size() == 1 ? " does" : " do") + " not divide by it",
                   "these would do: " + divisors(common));
}

}  // namespace isotrain
