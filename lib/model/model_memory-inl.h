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

/// What one micro-batch has for itself from its forward pass to the end of its backward pass.
template <class Place, class T>
struct SlotMemory {
  std::vector<std::span<T>> inputs;   // (n,d) of each layer of the part, and what comes out of the last
  std::vector<std::span<T>> middles;  // (n,d) between attention and feed-forward of each layer
  std::vector<std::variant<typename GqaBlock<Place, T>::Memory, typename MlaBlock<Place, T>::Memory>> attention;
  std::vector<std::variant<typename DenseBlock<Place, T>::Memory, typename MoeBlock<Place, T>::Memory>> ffn;
  std::span<T> d_stream;  // (n,d) gradient of the stream between the blocks

  SlotMemory(BufferMap& map, ModelConfig const& config, ModelOptions const& options, ModelPart const& part,
             PartSizes const& sizes) {
    std::int64_t const elements = sizes.rows * config.hidden_size;
    for (int layer = part.first_layer(); layer < part.end_layer(config); ++layer) {
      std::string const name = "layer " + std::to_string(layer);
      inputs.push_back(map.own<T>("activations", name + ": input", elements));
      if (middles.empty() || options.recompute != Recompute::full || options.deferred_weights) {
        middles.push_back(map.own<T>("activations", name + ": between attention and feed-forward", elements));
      } else {
        middles.push_back(middles.front());
      }
      if (config.latent_attention()) {
        attention.emplace_back(typename MlaBlock<Place, T>::Memory(map, config, options, sizes, layer));
      } else {
        attention.emplace_back(typename GqaBlock<Place, T>::Memory(map, config, options, sizes, layer));
      }
      if (config.is_moe(layer)) {
        ffn.emplace_back(typename MoeBlock<Place, T>::Memory(map, config, options, sizes, layer));
      } else {
        ffn.emplace_back(typename DenseBlock<Place, T>::Memory(map, config, options, sizes, layer));
      }
    }
    inputs.push_back(map.own<T>("activations", "output", elements));
    d_stream = map.own<T>("activations", "gradient of the residual stream", elements);
  }
};

/// All memory of a part of a model. Walked once to plan and once to bind, see BufferMap.
template <class Place, class T>
struct ModelMemory {
  std::vector<SlotMemory<Place, T>> slots;
  std::vector<typename Head<Place, T>::Memory> head;  // one, or none
  typename TensorGroup<Place>::Memory tensor;
  std::span<T> all_stream;                           // (N,d) for the embedding, where tokens are split
  std::span<T> own_stream;                           // (n,d) the same
  std::span<std::int32_t> positions, all_positions;  // (n), (N)
  std::span<std::int32_t> present_tokens;            // (N)
  std::span<float> rope;                             // (rope_positions, rope_dim)
  std::span<float> router_biases;                    // (MoE layers, E) of the whole model
  std::span<std::int64_t> expert_loads;              // (MoE layers, E)

  ModelMemory(BufferMap map, ModelConfig const& config, ModelOptions const& options, ModelPart const& part,
              std::int64_t rope_positions) {
    walk(map, config, options, part, rope_positions);
  }
  ModelMemory(BufferPlan& plan, BufferLayout& layout, ModelConfig const& config, ModelOptions const& options,
              ModelPart const& part, std::int64_t rope_positions, BufferLayout const* beside = nullptr) {
    BufferMap map(plan);
    walk(map, config, options, part, rope_positions);
    layout = map.finish(beside);
  }

 private:
  void walk(BufferMap& map, ModelConfig const& config, ModelOptions const& options, ModelPart const& part,
            std::int64_t rope_positions) {
    PartSizes const sizes(config, options, part);
    for (int slot = 0; slot < part.slots; ++slot) slots.emplace_back(map, config, options, part, sizes);
    if (part.has_head(config)) head.emplace_back(map, config, options, sizes);
    std::int64_t const d = config.hidden_size;
    std::int64_t const widest = std::max<std::int64_t>({d, config.q_lora_rank, config.kv_lora_rank});
    tensor = {map, TokenExchange(part.tensor, options.sequence, options.slices), sizes.all_rows, widest};
    bool const exchanged = sizes.split() && part.has_embedding();
    all_stream = map.own<T>("workspace", "embedding of all tensor ranks", exchanged ? sizes.all_rows * d : 0);
    own_stream = map.own<T>("workspace", "embedding of another tensor rank", exchanged ? sizes.rows * d : 0);
    positions = map.own<std::int32_t>("workspace", "positions", sizes.rows);
    all_positions = map.own<std::int32_t>("workspace", "positions of all tensor ranks", sizes.all_rows);
    present_tokens = map.own<std::int32_t>("workspace", "tokens of this rank's vocabulary", sizes.all_rows);
    rope = map.own<float>("workspace", "cosines and sines", rope_positions * config.rope_dim());
    std::int64_t const experts = std::int64_t{config.num_moe_layers()} * config.num_experts;
    router_biases = map.own<float>("weights", "router biases", experts);
    expert_loads = map.own<std::int64_t>("workspace", "experts' loads", experts);
  }
};

/// Fills what the model reads but never writes: the table of angles; positions; biases and loads of zero.
template <class Place, class T>
void fill_constants(ModelMemory<Place, T> const& memory, ModelConfig const& config, ModelOptions const& options,
                    TokenSplit const& split) {
  auto const angles = kernels::rope_table(config.rope_theta, config.rope_dim(),
                                          static_cast<std::int64_t>(memory.rope.size()) / config.rope_dim(),
                                          active_yarn(config, options.yarn));
  std::copy(angles.begin(), angles.end(), memory.rope.begin());
  for (std::size_t row = 0; row < memory.all_positions.size(); ++row) {
    memory.all_positions[row] = static_cast<std::int32_t>(static_cast<std::int64_t>(row) % options.sequence);
  }
  for (std::size_t row = 0; row < memory.positions.size(); ++row) {
    memory.positions[row] =
        static_cast<std::int32_t>(split.positions().begin + static_cast<std::int64_t>(row) % split.rows());
  }
  std::fill(memory.router_biases.begin(), memory.router_biases.end(), 0.0F);
  std::fill(memory.expert_loads.begin(), memory.expert_loads.end(), 0);
}

template <class Place, class T>
struct Layer {
  std::unique_ptr<AttentionBlock<Place, T>> attention;
  std::unique_ptr<Block<Place, T>> ffn;
};

/// The layers of the part, working in the memory of a slot. `setup` may go afterwards, what it refers to may not.
template <class Place, class T>
std::vector<Layer<Place, T>> make_layers(Setup<Place, T> const& setup, ModelMemory<Place, T> const& memory,
                                         SlotMemory<Place, T> const& slot) {
  auto const& config = setup.config;
  auto const experts = static_cast<std::size_t>(config.num_experts);
  bool const biased = config.router.method == kernels::TopkMethod::noaux_tc;
  std::vector<Layer<Place, T>> layers;
  for (int layer = setup.part.first_layer(); layer < setup.part.end_layer(config); ++layer) {
    auto const index = layers.size();
    Layer<Place, T> made;
    if (config.latent_attention()) {
      made.attention = std::make_unique<MlaBlock<Place, T>>(setup, layer, std::get<1>(slot.attention[index]));
    } else {
      made.attention = std::make_unique<GqaBlock<Place, T>>(setup, layer, std::get<0>(slot.attention[index]));
    }
    if (config.is_moe(layer)) {
      auto const first = static_cast<std::size_t>(config.moe_index(layer)) * experts;
      made.ffn = std::make_unique<MoeBlock<Place, T>>(
          setup, layer, std::get<1>(slot.ffn[index]),
          biased ? memory.router_biases.subspan(first, experts) : std::span<float>(),
          memory.expert_loads.subspan(first, experts));
    } else {
      made.ffn = std::make_unique<DenseBlock<Place, T>>(setup, layer, std::get<0>(slot.ffn[index]));
    }
    layers.push_back(std::move(made));
  }
  return layers;
}

}  // namespace isotrain
