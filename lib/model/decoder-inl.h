#pragma once

#include "kernels/embedding.h"
#include "lib/model/decoder.h"
#include "lib/model/model_memory-inl.h"

namespace isotrain {

template <class Place, class T>
Decoder<Place, T>::Decoder(Place place, ModelConfig config, DecoderOptions options, ParameterTable const& table,
                           Weights<T> weights, std::span<float const> router_biases)
    : place_(place), config_(std::move(config)), shard_(table), positions_(options.positions) {
  options_.sequence = options.positions;
  options_.slices = options.slices;
  options_.yarn = options.yarn;
  check_options(config_, options_);
  options_.sequence = 1;  // rows in flight
  { ModelMemory<Place, T> const planned(plan_, layout_, config_, options_, part_, positions_); }
  buffers_ = std::make_unique<Buffers>(plan_);
  memory_ =
      std::make_unique<ModelMemory<Place, T>>(BufferMap(layout_, *buffers_), config_, options_, part_, positions_);
  tensor_ = std::make_unique<TensorGroup<Place>>(nullptr, 1, options_.slices, memory_->tensor);
  experts_ = std::make_unique<ExpertExchange>(nullptr, 1, std::max(1, config_.num_experts), 1);
  fill_constants(*memory_, config_, options_, tensor_->split());
  if (!router_biases.empty()) {
    expects(router_biases.size() == memory_->router_biases.size(), "a bias for each expert of each layer");
    std::copy(router_biases.begin(), router_biases.end(), memory_->router_biases.begin());
  }
  Setup<Place, T> const setup{.place = place_,
                              .config = config_,
                              .options = options_,
                              .part = part_,
                              .shard = shard_,
                              .weights = weights,
                              .rope = {memory_->rope, static_cast<float>(softmax_scale(config_, options_.yarn))},
                              .tensor = *tensor_,
                              .experts = *experts_};
  embedding_ = Stack<T>({find_linear<T>(shard_, weights, "model.embed_tokens.weight")});
  layers_ = make_layers(setup, *memory_, memory_->slots.front());
  head_ = std::make_unique<Head<Place, T>>(setup, memory_->head.front());
  caches_.resize(layers_.size());
  auto const rows = static_cast<std::size_t>(positions_) *
                    static_cast<std::size_t>(config_.latent_attention() ? config_.num_heads : config_.num_kv_heads);
  for (auto& cache : caches_) {
    cache.keys.resize(rows * static_cast<std::size_t>(config_.query_dim()));
    cache.values.resize(rows * static_cast<std::size_t>(config_.value_dim()));
  }
  logits_.resize(static_cast<std::size_t>(config_.vocab_size));
}

template <class Place, class T>
Decoder<Place, T>::~Decoder() = default;

template <class Place, class T>
KeyValueCache<T> Decoder<Place, T>::cache(std::size_t layer) {
  std::int64_t const heads = config_.latent_attention() ? config_.num_heads : config_.num_kv_heads;
  std::int64_t const key_dim = config_.query_dim(), value_dim = config_.value_dim();
  return {{caches_[layer].keys.data(), positions_, heads, key_dim, heads * key_dim, key_dim},
          {caches_[layer].values.data(), positions_, heads, value_dim, heads * value_dim, value_dim}};
}

template <class Place, class T>
void Decoder<Place, T>::append(std::int32_t token) {
  if (length_ == positions_) {
    throw Error("the text is at its end", "there is room for " + std::to_string(positions_) + " tokens");
  }
  if (token < 0 || token >= config_.vocab_size) {
    throw Error("token " + std::to_string(token) + " does not exist",
                "the model's vocabulary has " + std::to_string(config_.vocab_size),
                "is this the model's own tokenizer?");
  }
  memory_->positions[0] = memory_->all_positions[0] = static_cast<std::int32_t>(length_++);
  Pass const pass{
      .samples = 1, .sequence = 1, .own = 1, .positions = memory_->positions, .all_positions = memory_->all_positions};
  auto const& slot = memory_->slots.front();
  auto const row = [&](std::span<T> memory) { return Matrix<T>(memory.data(), 1, config_.hidden_size); };
  for_each_vocabulary_part(embedding_, 0, [&](Linear<T> const& part, std::int64_t first_row) {
    std::int32_t const present = row_of_token(token, first_row, part.out);
    kernels::embedding_forward<T>(place_, row(slot.inputs[0]), part.matrix(), std::span(&present, 1));
  });
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    layers_[layer].attention->decode(pass, row(slot.middles[layer]), row(slot.inputs[layer]), cache(layer));
    layers_[layer].ffn->forward(pass, row(slot.inputs[layer + 1]), row(slot.middles[layer]));
  }
}

template <class Place, class T>
std::span<float const> Decoder<Place, T>::step(std::int32_t token) {
  append(token);
  head_->logits({logits_.data(), 1, config_.vocab_size},
                Matrix<T const>(memory_->slots.front().inputs.back().data(), 1, config_.hidden_size));
  return logits_;
}

template <class Place, class T>
std::span<float const> Decoder<Place, T>::prefill(std::span<std::int32_t const> tokens) {
  expects(!tokens.empty(), "a prompt of at least one token");
  for (auto const token : tokens.first(tokens.size() - 1)) append(token);
  return step(tokens.back());
}

}  // namespace isotrain
