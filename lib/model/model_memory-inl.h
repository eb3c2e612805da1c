#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "lib/model/dense_block-inl.h"
#include "lib/model/gqa_block-inl.h"
#include "lib/model/head-inl.h"
#include "lib/model/mla_block-inl.h"
#include "lib/model/moe_block-inl.h"
#include "lib/model/rope_scaling.h"

namespace isotrain {

/// All memory of a model. Walked once to plan and once to bind, see BufferMap.
template <class Place, class T>
struct ModelMemory {
  std::vector<std::span<T>> inputs;   // (N,d) of each layer, and of the head
  std::vector<std::span<T>> middles;  // (N,d) between attention and feed-forward of each layer
  std::vector<std::variant<typename GqaBlock<Place, T>::Memory, typename MlaBlock<Place, T>::Memory>> attention;
  std::vector<std::variant<typename DenseBlock<Place, T>::Memory, typename MoeBlock<Place, T>::Memory>> ffn;
  std::vector<typename Head<Place, T>::Memory> head;  // one
  std::span<T> d_stream;                              // (N,d)
  std::span<std::int32_t> positions;                  // (N)
  std::span<float> rope;                              // (rope_positions, rope_dim)
  std::span<float> embedding_gradient;                // (V,d), tied embeddings only
  std::span<float> router_biases;                     // (MoE layers, E)
  std::span<std::int64_t> expert_loads;               // (MoE layers, E)

  ModelMemory(BufferMap map, ModelConfig const& config, ModelOptions const& options, std::int64_t rope_positions) {
    walk(map, config, options, rope_positions);
  }
  ModelMemory(BufferPlan& plan, BufferLayout& layout, ModelConfig const& config, ModelOptions const& options,
              std::int64_t rope_positions) {
    BufferMap map(plan);
    walk(map, config, options, rope_positions);
    layout = map.finish();
  }

 private:
  void walk(BufferMap& map, ModelConfig const& config, ModelOptions const& options, std::int64_t rope_positions) {
    std::int64_t const elements = options.micro_batch * options.sequence * config.hidden_size;
    for (int layer = 0; layer < config.num_layers; ++layer) {
      std::string const name = "layer " + std::to_string(layer);
      inputs.push_back(map.own<T>("activations", name + ": input", elements));
      if (layer == 0 || options.recompute != Recompute::full) {
        middles.push_back(map.own<T>("activations", name + ": between attention and feed-forward", elements));
      } else {
        middles.push_back(middles.front());
      }
      if (config.latent_attention()) {
        attention.emplace_back(typename MlaBlock<Place, T>::Memory(map, config, options, layer));
      } else {
        attention.emplace_back(typename GqaBlock<Place, T>::Memory(map, config, options, layer));
      }
      if (config.is_moe(layer)) {
        ffn.emplace_back(typename MoeBlock<Place, T>::Memory(map, config, options, layer));
      } else {
        ffn.emplace_back(typename DenseBlock<Place, T>::Memory(map, config, options, layer));
      }
    }
    inputs.push_back(map.own<T>("activations", "head: input", elements));
    head.emplace_back(map, config, options);
    d_stream = map.own<T>("workspace", "gradient of the residual stream", elements);
    positions = map.own<std::int32_t>("workspace", "positions", options.micro_batch * options.sequence);
    rope = map.own<float>("workspace", "cosines and sines", rope_positions * config.rope_dim());
    if (config.tied_embeddings) {
      embedding_gradient = map.own<float>("gradients", "embedding, input side", config.vocab_size * config.hidden_size);
    }
    std::int64_t const experts = std::int64_t{config.num_moe_layers()} * config.num_experts;
    router_biases = map.own<float>("weights", "router biases", experts);
    expert_loads = map.own<std::int64_t>("workspace", "experts' loads", experts);
  }
};

/// Fills what the model reads but never writes: the table of angles; biases and loads of zero.
template <class Place, class T>
void fill_constants(ModelMemory<Place, T> const& memory, ModelConfig const& config, ModelOptions const& options) {
  auto const angles = kernels::rope_table(config.rope_theta, config.rope_dim(),
                                          static_cast<std::int64_t>(memory.rope.size()) / config.rope_dim(),
                                          active_yarn(config, options.yarn));
  std::copy(angles.begin(), angles.end(), memory.rope.begin());
  std::fill(memory.embedding_gradient.begin(), memory.embedding_gradient.end(), 0.0F);
  std::fill(memory.router_biases.begin(), memory.router_biases.end(), 0.0F);
  std::fill(memory.expert_loads.begin(), memory.expert_loads.end(), 0);
}

template <class Place, class T>
struct Layer {
  std::unique_ptr<AttentionBlock<Place, T>> attention;
  std::unique_ptr<Block<Place, T>> ffn;
};

/// `setup` may go afterwards, what it refers to may not.
template <class Place, class T>
std::vector<Layer<Place, T>> make_layers(Setup<Place, T> const& setup, ModelMemory<Place, T> const& memory) {
  auto const& config = setup.config;
  auto const experts = static_cast<std::size_t>(config.num_experts);
  bool const biased = config.router.method == kernels::TopkMethod::noaux_tc;
  std::vector<Layer<Place, T>> layers;
  std::size_t moe_layer = 0;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    auto const index = static_cast<std::size_t>(layer);
    Layer<Place, T> made;
    if (config.latent_attention()) {
      made.attention = std::make_unique<MlaBlock<Place, T>>(setup, layer, std::get<1>(memory.attention[index]));
    } else {
      made.attention = std::make_unique<GqaBlock<Place, T>>(setup, layer, std::get<0>(memory.attention[index]));
    }
    if (config.is_moe(layer)) {
      auto const first = moe_layer++ * experts;
      made.ffn = std::make_unique<MoeBlock<Place, T>>(
          setup, layer, std::get<1>(memory.ffn[index]),
          biased ? memory.router_biases.subspan(first, experts) : std::span<float>(),
          memory.expert_loads.subspan(first, experts));
    } else {
      made.ffn = std::make_unique<DenseBlock<Place, T>>(setup, layer, std::get<0>(memory.ffn[index]));
    }
    layers.push_back(std::move(made));
  }
  return layers;
}

}  // namespace isotrain
