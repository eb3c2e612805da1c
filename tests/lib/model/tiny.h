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
  for (auto const& piece : table.pieces()) {
    auto const& p = table.parameter(piece);
    Random const random(seed, "gain " + p.name);
    for (std::int64_t i = 0; p.initial == Initial::ones && i < p.size(); ++i) {
      flat[static_cast<std::size_t>(piece.offset + i)] = 0.5F + random.uniform(static_cast<std::uint64_t>(i));
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

/// The whole, row-major tensor of a parameter, from a flat space of the table.
template <class U>
std::vector<U> tensor_of(ParameterTable const& table, Parameter const& parameter, std::span<U const> flat) {
  std::vector<U> tensor(static_cast<std::size_t>(parameter.size()));
  for (auto const& piece : table.pieces_of(parameter)) {
    for_each_run(parameter, piece, {0, table.flat_size()},
                 [&](std::int64_t offset, std::int64_t element, std::int64_t count) {
                   std::copy_n(flat.begin() + offset, count, tensor.begin() + element);
                 });
  }
  return tensor;
}

/// Gradients of one lane, or for experts of the lanes of all sources, kept apart as a part of a model wants them, and
/// their sum in the order of the contract.
class TinyGradients {
 public:
  TinyGradients(Shard const& shard, ModelPart const& part, bool tied)
      : shard_(shard),
        tensor_(part.tensor),
        flat_(static_cast<std::size_t>(shard.flat_size())),
        slices_(static_cast<std::size_t>(shard.table().slices() / part.tensor_ranks()),
                std::vector<float>(flat_.size() - replicated_begin())),
        experts_(static_cast<std::size_t>(part.sources()),
                 std::vector<float>(static_cast<std::size_t>(shard.region(Region::experts).size()))) {
    for (auto& slice : slices_) slice_spans_.emplace_back(slice);
    for (auto& source : experts_) expert_spans_.emplace_back(source);
    if (tied) tied_.resize(static_cast<std::size_t>(shard.region(Region::sliced).end));
  }
  TinyGradients(TinyGradients const&) = delete;
  TinyGradients& operator=(TinyGradients const&) = delete;

  Gradients where() { return {flat_, expert_spans_, tied_, slice_spans_}; }

  /// Those of the part's shard, with the experts' of one source. Collective over the tensor group.
  std::vector<float> sum(int source = 0) {
    auto const own_experts = static_cast<std::ptrdiff_t>(shard_.region(Region::experts).begin);
    std::ranges::copy(experts_[static_cast<std::size_t>(source)], flat_.begin() + own_experts);
    auto slices = all_slices();
    TreeCounter counter(static_cast<std::int64_t>(slices.size()));
    for (std::size_t s = 0; s < slices.size(); ++s) {
      for (auto const& due : counter.push({0, static_cast<std::int64_t>(s)})) {
        add(slices[static_cast<std::size_t>(due.left)], slices[static_cast<std::size_t>(due.right)]);
      }
    }
    std::ranges::copy(slices.front(), flat_.begin() + static_cast<std::ptrdiff_t>(replicated_begin()));
    if (!tied_.empty()) {
      auto const embedding = shard_["model.embed_tokens.weight"];
      auto const begin = embedding.front().offset, end = embedding.back().end();
      add(std::span(flat_).subspan(static_cast<std::size_t>(begin)),
          std::span(tied_).first(static_cast<std::size_t>(end - begin)));
      std::ranges::fill(tied_, 0.0F);
    }
    return flat_;
  }

 private:
  static void add(std::span<float> to, std::span<float const> from) {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] += from[i];
  }
  std::size_t replicated_begin() const { return static_cast<std::size_t>(shard_.region(Region::replicated).begin); }
  /// Also those of the other tensor ranks.
  std::vector<std::vector<float>> all_slices() const {
    if (tensor_ == nullptr) return slices_;
    std::vector<std::vector<float>> all;
    std::size_t const size = slices_.front().size();
    std::vector<std::int64_t> const counts(static_cast<std::size_t>(tensor_->size()), static_cast<std::int64_t>(size));
    std::vector<std::vector<float>> of_ranks;
    for (auto const& slice : slices_) {
      of_ranks.emplace_back(size * counts.size());
      tensor_->all_gather(std::span(slice), std::span(of_ranks.back()), std::span<std::int64_t const>(counts));
    }
    for (std::size_t r = 0; r < counts.size(); ++r) {
      for (auto const& gathered : of_ranks) {
        auto const begin = gathered.begin() + static_cast<std::ptrdiff_t>(r * size);
        all.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(size));
      }
    }
    return all;
  }

  Shard const& shard_;
  Communicator const* tensor_;
  std::vector<float> flat_;
  std::vector<std::vector<float>> slices_;   // of own token slices
  std::vector<std::vector<float>> experts_;  // of each source
  std::vector<std::span<float>> slice_spans_, expert_spans_;
  std::vector<float> tied_;
};

/// A model, or the part of it that a rank has, with all that it needs.
template <class T>
struct TinyModel {
  ModelConfig config;
  ParameterTable table;
  Shard shard;
  std::vector<float> flat;
  std::vector<T> matrices;
  BufferPlan plan;
  BufferLayout layout;
  Buffers buffers;
  Model<Cpu, T> model;

  TinyModel(ModelConfig const& config, ModelOptions options, Cpu place = Cpu(), Fill fill = Fill::nan,
            double stddev = 0.3, ModelPart const& part = {})
      : config(config),
        table(model_parameters(config), options.slices),
        shard(shard_of(table, config, part)),
        flat(held(random_weights(table, 1, stddev))),
        matrices(static_cast<std::size_t>(shard.matrix_size())),
        layout(Model<Cpu, T>::plan(config, options, part, plan)),
        buffers(plan, fill),
        model(place, config, options, part, shard, layout, buffers, weights()) {
    for (std::size_t i = 0; i < matrices.size(); ++i) matrices[i] = from_float<T>(flat[i]);
    for (std::size_t i = 0; i < model.router_biases().size(); ++i) {
      model.router_biases()[i] = 0.2F * Random(3, "bias").uniform(i) - 0.1F;
    }
  }
  Weights<T> weights() const { return {matrices.data(), flat.data() + shard.matrix_size(), shard.matrix_size()}; }

 private:
  /// What the shard has of a flat space of the table.
  std::vector<float> held(std::vector<float> const& whole) const {
    std::vector<float> mine;
    for (auto const& run : shard.global_runs({0, shard.flat_size()})) {
      mine.insert(mine.end(), whole.begin() + run.begin, whole.begin() + run.end);
    }
    return mine;
  }
};

/// What a step gives, and where two of them first differ.
struct StepResult {
  std::vector<float> gradients;
  std::vector<double> losses, balance_losses;
  std::vector<std::int64_t> loads;
};

/// The passes of a step: `passes` micro-batches, those after the last sample without any.
template <class T>
void run_passes(TinyModel<T>& tiny, TinyData const& data, int samples, int micro_batch, int passes, LossScale scale,
                TinyGradients& gradients, StepResult& result) {
  auto const layers = tiny.config.num_moe_layers();
  result.losses.assign(static_cast<std::size_t>(samples), 0);
  result.balance_losses.assign(static_cast<std::size_t>(samples), 0);
  for (int pass = 0; pass < passes; ++pass) {
    int const first = std::min(samples, pass * micro_batch), count = std::min(micro_batch, samples - first);
    auto const begin = static_cast<std::size_t>(first), size = static_cast<std::size_t>(count);
    auto const batch = data.batch(first, count);
    std::vector<double> balance(static_cast<std::size_t>(layers) * size);
    tiny.model.forward(0, batch, true);
    tiny.model.backward_input(0, batch, gradients.where(), scale, std::span(result.losses).subspan(begin, size),
                              {balance.data(), layers, count});
    tiny.model.backward_weight(0, batch, gradients.where());
    for (std::size_t i = balance.size(); i-- > 0;) result.balance_losses[begin + i % size] += balance[i];
  }
  result.loads.assign(tiny.model.expert_loads().begin(), tiny.model.expert_loads().end());
}

/// What the sums over `samples` samples are multiplied by.
inline LossScale scale_of(int samples, std::int64_t sequence) {
  return {1.0F / static_cast<float>(samples * sequence), 1.0F / static_cast<float>(samples)};
}

template <class T>
StepResult run_step(TinyModel<T>& tiny, TinyData const& data, int samples, int micro_batch) {
  StepResult result;
  TinyGradients gradients(tiny.shard, ModelPart{}, tiny.config.tied_embeddings);
  run_passes(tiny, data, samples, micro_batch, (samples + micro_batch - 1) / micro_batch,
             scale_of(samples, data.sequence), gradients, result);
  result.gradients = gradients.sum();
  return result;
}

template <class T>
void evaluate(TinyModel<T>& tiny, Batch const& batch, std::span<double> losses) {
  tiny.model.forward(0, batch, false);
  tiny.model.losses(0, batch, losses);
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
      auto const& piece = table.at(static_cast<std::int64_t>(i));
      return "gradient of " + table.parameter(piece).name + ", element " +
             std::to_string(static_cast<std::int64_t>(i) - piece.offset) + " of slice " + std::to_string(piece.slice) +
             ": " + std::to_string(a.gradients[i]) + " and " + std::to_string(b.gradients[i]);
    }
  }
  return {};
}

}  // namespace isotrain::test
