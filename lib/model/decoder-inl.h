#pragma once

#include "kernels/embedding.h"
#include "lib/model/decoder.h"
#include "lib/model/model_memory-inl.h"

namespace isotrain {

template <class Place, class T>
Decoder<Place, T>::Decoder(Place place, ModelConfig config, DecoderOptions options, ParameterTable const& table,
                           Weights<T> weights, std::span<float const> router_biases)
    : place_(place), config_(std::move(config)), positions_(options.positions) {
  options_.sequence = options.positions;
  options_.slices = options.slices;
  options_.yarn = options.yarn;
  check_options(config_, options_);
  options_.sequence = 1;  // rows in flight
  { ModelMemory<Place, T> const planned(plan_, layout_, config_, options_, positions_); }
  buffers_ = std::make_unique<Buffers>(plan_);
  memory_ = std::make_unique<ModelMemory<Place, T>>(BufferMap(layout_, *buffers_), config_, options_, positions_);
  fill_constants(*memory_, config_, options_);
  if (!router_biases.empty()) {
    expects(router_biases.size() == memory_->router_biases.size(), "a bias for each expert of each layer");
    std::copy(router_biases.begin(), router_biases.end(), memory_->router_biases.begin());
  }
  ParameterIndex const parameters(table);
  Setup<Place, T> const setup{place_,   config_,
                              options_, parameters,
                              weights,  {memory_->rope, static_cast<float>(softmax_scale(config_, options_.yarn))}};
  embedding_ = find_linear<T>(parameters, weights, "model.embed_tokens.weight").matrix();
  layers_ = make_layers(setup, *memory_);
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
  memory_->positions[0] = static_cast<std::int32_t>(length_++);
  Pass const pass{.samples = 1, .sequence = 1, .positions = memory_->positions};
  auto const row = [&](std::span<T> memory) { return Matrix<T>(memory.data(), 1, config_.hidden_size); };
  kernels::embedding_forward<T>(place_, row(memory_->inputs[0]), embedding_, std::span<std::int32_t const>(&token, 1));
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    layers_[layer].attention->decode(pass, row(memory_->middles[layer]), row(memory_->inputs[layer]), cache(layer));
    layers_[layer].ffn->forward(pass, row(memory_->inputs[layer + 1]), row(memory_->middles[layer]));
  }
}

template <class Place, class T>
std::span<float const> Decoder<Place, T>::step(std::int32_t token) {
  append(token);
  head_->logits({logits_.data(), 1, config_.vocab_size},
                Matrix<T const>(memory_->inputs.back().data(), 1, config_.hidden_size));
  return logits_;
}

template <class Place, class T>
std::span<float const> Decoder<Place, T>::prefill(std::span<std::int32_t const> tokens) {
  expects(!tokens.empty(), "a prompt of at least one token");
  for (auto const token : tokens.first(tokens.size() - 1)) append(token);
  return step(tokens.back());
}

}  // namespace isotrain
