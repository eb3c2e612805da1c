#pragma once

#include <cmath>

#include "kernels/embedding.h"
#include "kernels/reduce.h"
#include "lib/model/model.h"
#include "lib/model/model_memory-inl.h"

namespace isotrain {

template <class Place, class T>
BufferLayout Model<Place, T>::plan(ModelConfig const& config, ModelOptions const& options, BufferPlan& plan) {
  check_options(config, options);
  BufferLayout layout;
  ModelMemory<Place, T> const planned(plan, layout, config, options, options.sequence);
  return layout;
}

template <class Place, class T>
Model<Place, T>::Model(Place place, ModelConfig config, ModelOptions options, ParameterTable const& table,
                       BufferLayout layout, Buffers const& buffers, Weights<T> weights)
    : Model(place, config, options, table,
            ModelMemory<Place, T>(BufferMap(std::move(layout), buffers), config, options, options.sequence), weights) {}

template <class Place, class T>
Model<Place, T>::Model(Place place, ModelConfig config, ModelOptions options, ParameterTable const& table,
                       ModelMemory<Place, T> memory, Weights<T> weights)
    : place_(place),
      config_(std::move(config)),
      options_(options),
      table_(table),
      weights_(weights),
      inputs_(memory.inputs),
      middles_(memory.middles),
      d_stream_(memory.d_stream),
      positions_(memory.positions),
      embedding_gradient_(memory.embedding_gradient),
      router_biases_(memory.router_biases),
      expert_loads_(memory.expert_loads) {
  check_options(config_, options_);
  fill_constants(memory, config_, options_);
  for (std::size_t row = 0; row < positions_.size(); ++row) {
    positions_[row] = static_cast<std::int32_t>(static_cast<std::int64_t>(row) % options_.sequence);
  }

  ParameterIndex const parameters(table_);
  Setup<Place, T> const setup{place_,   config_,
                              options_, parameters,
                              weights_, {memory.rope, static_cast<float>(softmax_scale(config_, options_.yarn))}};
  embedding_ = find_linear<T>(parameters, weights_, "model.embed_tokens.weight");
  layers_ = make_layers(setup, memory);
  head_ = std::make_unique<Head<Place, T>>(setup, memory.head.front());
}

template <class Place, class T>
Model<Place, T>::~Model() = default;

template <class Place, class T>
Pass Model<Place, T>::make_pass(Batch const& batch) const {
  Pass pass;
  pass.samples = batch.samples;
  pass.sequence = options_.sequence;
  auto const rows = static_cast<std::size_t>(pass.rows());
  expects(batch.samples >= 1 && batch.samples <= options_.micro_batch, "at least 1 and at most micro_batch samples");
  expects(batch.tokens.size() == rows && batch.targets.size() == rows, "sequence tokens and targets for each sample");
  pass.positions = positions_.first(rows);
  return pass;
}

template <class Place, class T>
void Model<Place, T>::forward(Pass const& pass, Batch const& batch) {
  kernels::embedding_forward<T>(place_, input(pass, 0), embedding_.matrix(), batch.tokens);
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    auto const& [attention, ffn] = layers_[static_cast<std::size_t>(layer)];
    attention->forward(pass, middle(pass, layer), input(pass, layer));
    ffn->forward(pass, input(pass, layer + 1), middle(pass, layer));
  }
}

template <class Place, class T>
void Model<Place, T>::backward_layer(Pass const& pass, int layer, std::span<float> gradients) {
  auto const& [attention, ffn] = layers_[static_cast<std::size_t>(layer)];
  auto const x = input(pass, layer), between = middle(pass, layer);
  auto const stream = rows_of(d_stream_, pass, config_.hidden_size);
  if (options_.recompute == Recompute::full) attention->forward(pass, between, x);
  ffn->recompute(pass, between);
  ffn->backward_input(pass, stream, between);
  ffn->backward_weight(pass, gradients, stream, between);
  ffn->backward_residual(pass, stream, between);
  if (options_.recompute == Recompute::selective) attention->recompute(pass, x);
  attention->backward_input(pass, stream, x);
  attention->backward_weight(pass, gradients, stream, x);
  attention->backward_residual(pass, stream, x);
}

template <class Place, class T>
void Model<Place, T>::backward_embedding(Pass const& pass, Batch const& batch, std::span<float> gradients) {
  auto const target = config_.tied_embeddings ? Matrix<float>(embedding_gradient_.data(), embedding_.out, embedding_.in)
                                              : embedding_.gradient(gradients);
  kernels::embedding_backward<T>(place_, target, rows_of(d_stream_, pass, config_.hidden_size), batch.tokens);
}

template <class Place, class T>
void Model<Place, T>::forward_backward(Batch batch, std::span<float> gradients, LossScale scale,
                                       std::span<double> sample_loss, std::span<double> sample_balance_loss) {
  Pass pass = make_pass(batch);
  expects(gradients.size() == static_cast<std::size_t>(table_.flat_size()), "gradients of the whole flat space");
  expects(sample_loss.size() == static_cast<std::size_t>(batch.samples) &&
              sample_balance_loss.size() == static_cast<std::size_t>(batch.samples),
          "one loss for each sample");
  std::fill(sample_balance_loss.begin(), sample_balance_loss.end(), 0.0);
  pass.balance_loss = sample_balance_loss;
  pass.sequence_scale = scale.sequence;
  pass.count_loads = true;
  forward(pass, batch);
  pass.count_loads = false;
  head_->forward_backward(pass, rows_of(d_stream_, pass, config_.hidden_size), gradients,
                          input(pass, config_.num_layers), batch.targets, scale.token, sample_loss);
  for (int layer = config_.num_layers - 1; layer >= 0; --layer) backward_layer(pass, layer, gradients);
  backward_embedding(pass, batch, gradients);
}

template <class Place, class T>
void Model<Place, T>::finish_gradients(std::span<float> gradients) {
  if (!config_.tied_embeddings) return;
  auto const output_side = gradients.subspan(static_cast<std::size_t>(embedding_.offset), embedding_gradient_.size());
  kernels::add(place_, output_side, std::span<float const>(embedding_gradient_));
  kernels::fill_zero(place_, embedding_gradient_);
}

template <class Place, class T>
void Model<Place, T>::evaluate(Batch batch, std::span<double> sample_loss) {
  Pass const pass = make_pass(batch);
  expects(sample_loss.size() == static_cast<std::size_t>(batch.samples), "one loss for each sample");
  forward(pass, batch);
  head_->losses(pass, input(pass, config_.num_layers), batch.targets, sample_loss);
}

/// "NAME, element I is NaN" for the first NaN or infinity among the values, or nothing.
template <class U>
std::optional<std::string> describe_non_finite(std::string const& name, std::span<U const> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    float const value = to_float(values[i]);
    if (!std::isfinite(value)) {
      return name + ", element " + std::to_string(i) + (std::isnan(value) ? " is NaN" : " is infinite");
    }
  }
  return std::nullopt;
}

template <class Place, class T>
std::optional<std::string> Model<Place, T>::find_non_finite_weight(std::string const& prefix) const {
  for (auto const& parameter : table_.all()) {
    if (!parameter.name.starts_with(prefix)) continue;
    auto const size = static_cast<std::size_t>(parameter.size());
    auto found = parameter.segment == Segment::matrix
                     ? describe_non_finite<T>("weight " + parameter.name, {weights_.matrix(parameter), size})
                     : describe_non_finite<float>("weight " + parameter.name, {weights_.vector(parameter), size});
    if (found) return found;
  }
  return std::nullopt;
}

template <class Place, class T>
std::optional<std::string> Model<Place, T>::find_non_finite(Batch batch) {
  Pass const pass = make_pass(batch);
  auto const check_block = [&](int layer, Block<Place, T> const& block) -> std::optional<std::string> {
    for (auto const& activation : block.activations(pass)) {
      auto found = describe_non_finite<T>("layer " + std::to_string(layer) + ": " + activation.name, activation.values);
      if (found) return found;
    }
    return std::nullopt;
  };
  if (auto found = find_non_finite_weight("model.embed_tokens.")) return found;
  kernels::embedding_forward<T>(place_, input(pass, 0), embedding_.matrix(), batch.tokens);
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    auto const& [attention, ffn] = layers_[static_cast<std::size_t>(layer)];
    std::string const name = "layer " + std::to_string(layer) + ": ";
    if (auto found = find_non_finite_weight(layer_prefix(layer))) return found;
    attention->forward(pass, middle(pass, layer), input(pass, layer));
    if (auto found = check_block(layer, *attention)) return found;
    auto const after_attention = used(middles_[static_cast<std::size_t>(layer)], pass, config_.hidden_size);
    if (auto found = describe_non_finite<T>(name + "sum after attention", after_attention)) return found;
    ffn->forward(pass, input(pass, layer + 1), middle(pass, layer));
    if (auto found = check_block(layer, *ffn)) return found;
    auto const output = used(inputs_[static_cast<std::size_t>(layer) + 1], pass, config_.hidden_size);
    if (auto found = describe_non_finite<T>(name + "output", output)) return found;
  }
  if (auto found = find_non_finite_weight("model.norm.")) return found;
  if (auto found = find_non_finite_weight("lm_head.")) return found;
  std::vector<double> sample_loss(static_cast<std::size_t>(batch.samples));
  head_->losses(pass, input(pass, config_.num_layers), batch.targets, sample_loss);
  for (std::size_t s = 0; s < sample_loss.size(); ++s) {
    if (!std::isfinite(sample_loss[s])) return "loss of sample " + std::to_string(s) + " of the micro-batch";
  }
  return std::nullopt;
}

}  // namespace isotrain
