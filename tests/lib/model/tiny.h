#pragma once

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/reduce.h"
#include "lib/base/random.h"
#include "lib/model/model.h"
#include "lib/model/parameter_list.h"

/// Small models for tests.
namespace isotrain::test {

using Json = nlohmann::json;

inline Json tiny_llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 23},
          {"hidden_size", 16},
          {"intermediate_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 4}};
}

inline Json tiny_v3() {
  return {{"architectures", {"DeepseekV3ForCausalLM"}},
          {"vocab_size", 23},
          {"hidden_size", 16},
          {"intermediate_size", 24},
          {"moe_intermediate_size", 8},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 2},
          {"q_lora_rank", 12},
          {"kv_lora_rank", 8},
          {"qk_nope_head_dim", 6},
          {"qk_rope_head_dim", 4},
          {"v_head_dim", 5},
          {"n_routed_experts", 8},
          {"n_shared_experts", 1},
          {"num_experts_per_tok", 3},
          {"n_group", 4},
          {"topk_group", 2},
          {"first_k_dense_replace", 1}};
}

inline Json tiny_v2() {
  Json json = tiny_v3();
  json["architectures"] = {"DeepseekV2ForCausalLM"};
  json["q_lora_rank"] = nullptr;
  json["n_group"] = 1;
  json["topk_group"] = 1;
  json["n_shared_experts"] = 2;
  return json;
}

inline Json with(Json json, Json const& changes) {
  json.update(changes);
  return json;
}

inline Json yarn_scaling(double mscale) {
  return {{"type", "yarn"},
          {"factor", 4},
          {"original_max_position_embeddings", 64},
          {"mscale", mscale},
          {"mscale_all_dim", mscale}};
}

struct Variant {
  std::string name;
  Json json;
  float bias = 0;  // added to every router bias
};

inline void PrintTo(Variant const& variant, std::ostream* out) {
  *out << variant.name;
}

/// One of each path through the model. "Adjacent" ones have matrices without gaps between them.
inline std::vector<Variant> variants() {
  Json const adjacent_llama = with(tiny_llama(), {{"hidden_size", 64}, {"intermediate_size", 64}});
  Json const adjacent_v3 = with(tiny_v3(), {{"hidden_size", 64}, {"moe_intermediate_size", 64}, {"q_lora_rank", 64}});
  return {{"llama_mha", tiny_llama()},
          {"llama_gqa", with(tiny_llama(), {{"num_key_value_heads", 2}, {"head_dim", 6}})},
          {"llama_tied", with(tiny_llama(), {{"tie_word_embeddings", true}})},
          {"llama_adjacent", adjacent_llama},
          {"v2_greedy", tiny_v2()},
          {"v2_group_limited_yarn", with(tiny_v2(), {{"q_lora_rank", 12},
                                                     {"n_group", 4},
                                                     {"topk_group", 2},
                                                     {"topk_method", "group_limited_greedy"},
                                                     {"routed_scaling_factor", 4.0},
                                                     {"rope_scaling", yarn_scaling(0.707)}})},
          {"v3", tiny_v3()},
          {"v3_plain_queries_yarn", with(tiny_v3(), {{"q_lora_rank", nullptr}, {"rope_scaling", yarn_scaling(1.0)}})},
          {"v3_negative_bias", tiny_v3(), -1.5F},
          {"v3_no_shared_unnormalized", with(tiny_v3(), {{"n_shared_experts", 0}, {"norm_topk_prob", false}})},
          {"v3_adjacent", adjacent_v3}};
}

inline ModelConfig tiny_config(Json const& json) {
  return parse_model_config(json.dump(), "tiny");
}

/// Weights with norm gains that are not 1, so that a missing one shows.
inline std::vector<float> random_weights(ParameterTable const& table, std::uint64_t seed = 1, double stddev = 0.3) {
  std::vector<float> flat(static_cast<std::size_t>(table.flat_size()));
  initialize(table, flat, {0, table.flat_size()}, seed, stddev);
  for (auto const& p : table.all()) {
    Random const random(seed, "gain " + p.name);
    for (std::int64_t i = 0; p.initial == Initial::ones && i < p.size(); ++i) {
      flat[static_cast<std::size_t>(p.offset + i)] = 0.5F + random.uniform(static_cast<std::uint64_t>(i));
    }
  }
  return flat;
}

/// Random samples; now and then a target is ignored.
struct TinyData {
  std::int64_t sequence;
  std::vector<std::int32_t> tokens, targets;

  TinyData(ModelConfig const& config, int samples, std::int64_t sequence, std::uint64_t seed = 5) : sequence(sequence) {
    Random const random(seed, "tokens");
    auto const draw = [&](std::uint64_t i) {
      return static_cast<std::int32_t>(random.bits(i) % static_cast<std::uint64_t>(config.vocab_size));
    };
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(samples * sequence); ++i) {
      tokens.push_back(draw(2 * i));
      targets.push_back(i % 7 == 3 ? kernels_ignored : draw(2 * i + 1));
    }
  }
  Batch batch(int first, int samples) const {
    auto const begin = static_cast<std::size_t>(first * sequence), count = static_cast<std::size_t>(samples * sequence);
    return {std::span(tokens).subspan(begin, count), std::span(targets).subspan(begin, count), samples};
  }
  static constexpr std::int32_t kernels_ignored = -100;
};

/// With balancing losses that weigh: all three of V2, the one of V3.
inline ModelOptions tiny_options(ModelConfig const& config, std::int64_t sequence, int micro_batch) {
  ModelOptions options;
  options.sequence = sequence;
  options.micro_batch = micro_batch;
  options.balance.expert_alpha = 0.3F;
  if (config.architecture == Architecture::deepseek_v2) {
    options.balance = {
        .expert_alpha = 0.3F, .device_alpha = 0.2F, .comm_alpha = 0.1F, .device_groups = 4, .max_devices = 2};
  }
  return options;
}

/// A model with all that it needs.
template <class T>
struct TinyModel {
  ModelConfig config;
  ParameterTable table;
  std::vector<float> flat;
  std::vector<T> matrices;
  BufferPlan plan;
  BufferLayout layout;
  Buffers buffers;
  Model<Cpu, T> model;

  TinyModel(ModelConfig const& config, ModelOptions options, Cpu place = Cpu(), Fill fill = Fill::nan,
            double stddev = 0.3)
      : config(config),
        table(model_parameters(config)),
        flat(random_weights(table, 1, stddev)),
        matrices(static_cast<std::size_t>(table.matrix_size())),
        layout(Model<Cpu, T>::plan(config, options, plan)),
        buffers(plan, fill),
        model(place, config, options, table, layout, buffers, weights()) {
    for (std::size_t i = 0; i < matrices.size(); ++i) matrices[i] = from_float<T>(flat[i]);
    for (std::size_t i = 0; i < model.router_biases().size(); ++i) {
      model.router_biases()[i] = 0.2F * Random(3, "bias").uniform(i) - 0.1F;
    }
  }
  Weights<T> weights() const { return {matrices.data(), flat.data() + table.matrix_size(), table.matrix_size()}; }
};

/// What a step gives, and where two of them first differ.
struct StepResult {
  std::vector<float> gradients;
  std::vector<double> losses, balance_losses;
  std::vector<std::int64_t> loads;
};

template <class T>
StepResult run_step(TinyModel<T>& tiny, TinyData const& data, int samples, int micro_batch) {
  StepResult result;
  auto const total = static_cast<std::size_t>(samples);
  result.gradients.assign(static_cast<std::size_t>(tiny.table.flat_size()), 0.0F);
  result.losses.resize(total);
  result.balance_losses.resize(total);
  LossScale const scale{1.0F / static_cast<float>(samples * data.sequence), 1.0F / static_cast<float>(samples)};
  for (int first = 0; first < samples; first += micro_batch) {
    auto const begin = static_cast<std::size_t>(first);
    int const count = std::min(micro_batch, samples - first);
    tiny.model.forward_backward(data.batch(first, count), result.gradients, scale,
                                std::span(result.losses).subspan(begin, static_cast<std::size_t>(count)),
                                std::span(result.balance_losses).subspan(begin, static_cast<std::size_t>(count)));
  }
  tiny.model.finish_gradients(result.gradients);
  result.loads.assign(tiny.model.expert_loads().begin(), tiny.model.expert_loads().end());
  return result;
}

/// Empty if all bits are equal, else what differs first.
inline std::string difference(StepResult const& a, StepResult const& b, ParameterTable const& table) {
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    if (std::memcmp(&a.losses[i], &b.losses[i], sizeof(double)) != 0) return "loss of sample " + std::to_string(i);
    if (std::memcmp(&a.balance_losses[i], &b.balance_losses[i], sizeof(double)) != 0) {
      return "balance loss of sample " + std::to_string(i);
    }
  }
  if (a.loads != b.loads) return "expert loads";
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    if (std::memcmp(&a.gradients[i], &b.gradients[i], sizeof(float)) != 0) {
      auto const& p = table.at(static_cast<std::int64_t>(i));
      return "gradient of " + p.name + ", element " + std::to_string(static_cast<std::int64_t>(i) - p.offset) + ": " +
             std::to_string(a.gradients[i]) + " and " + std::to_string(b.gradients[i]);
    }
  }
  return {};
}

}  // namespace isotrain::test
