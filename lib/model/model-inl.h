#pragma once

#include <cmath>

#include "kernels/embedding.h"
#include "kernels/reduce.h"
#include "lib/model/model.h"
#include "lib/model/model_memory-inl.h"

namespace isotrain {

template <class Place, class T>
BufferLayout Model<Place, T>::plan(ModelConfig const& config, ModelOptions const& options, ModelPart const& part,
                                   BufferPlan& plan, BufferLayout const* beside) {
  check_options(config, options);
  BufferLayout layout;
  ModelMemory<Place, T> const planned(plan, layout, config, options, part, options.sequence, beside);
  return layout;
}

template <class Place, class T>
Model<Place, T>::Model(Place place, ModelConfig config, ModelOptions options, ModelPart part, Shard const& shard,
                       BufferLayout layout, Buffers const& buffers, Weights<T> weights)
    : Model(place, config, options, part, shard,
            std::make_unique<ModelMemory<Place, T>>(BufferMap(std::move(layout), buffers), config, options, part,
                                                    options.sequence),
            weights) {}

template <class Place, class T>
Model<Place, T>::Model(Place place, ModelConfig config, ModelOptions options, ModelPart part, Shard const& shard,
                       std::unique_ptr<ModelMemory<Place, T>> memory, Weights<T> weights)
    : place_(place),
      config_(std::move(config)),
      options_(options),
      part_(part),
      shard_(shard),
      weights_(weights),
      memory_(std::move(memory)),
      tensor_(part.tensor, options.sequence, options.slices, memory_->tensor),
      experts_(part.experts, part.experts == nullptr ? 1 : part.tensor_ranks(), std::max(1, config_.num_experts),
               options.micro_batch) {
  check_options(config_, options_);
  fill_constants(*memory_, config_, options_, tensor_.split());
  Setup<Place, T> const setup{.place = place_,
                              .config = config_,
                              .options = options_,
                              .part = part_,
                              .shard = shard_,
                              .weights = weights_,
                              .rope = {memory_->rope, static_cast<float>(softmax_scale(config_, options_.yarn))},
                              .tensor = tensor_,
                              .experts = experts_};
  if (part_.has_embedding()) embedding_ = Stack<T>({find_linear<T>(shard_, weights_, "model.embed_tokens.weight")});
  for (auto const& slot : memory_->slots) slots_.push_back(make_layers(setup, *memory_, slot));
  if (part_.has_head(config_)) head_ = std::make_unique<Head<Place, T>>(setup, memory_->head.front());
}

template <class Place, class T>
Model<Place, T>::~Model() = default;

template <class Place, class T>
std::span<float> Model<Place, T>::router_biases() const {
  return memory_->router_biases;
}
template <class Place, class T>
std::span<std::int64_t> Model<Place, T>::expert_loads() const {
  return memory_->expert_loads;
}

template <class Place, class T>
Pass Model<Place, T>::make_pass(Batch const& batch) const {
  Pass pass;
  pass.samples = batch.samples;
  pass.sequence = options_.sequence;
  pass.own = tensor_.split().rows();
  expects(batch.samples >= 0 && batch.samples <= options_.micro_batch, "at most micro_batch samples");
  auto const all = static_cast<std::size_t>(pass.all_rows());
  expects(!part_.has_embedding() || batch.tokens.size() == all, "sequence tokens for each sample");
  expects(!part_.has_head(config_) || batch.targets.size() == all, "sequence targets for each sample");
  pass.positions = memory_->positions.first(static_cast<std::size_t>(pass.rows()));
  pass.all_positions = memory_->all_positions.first(all);
  return pass;
}

template <class Place, class T>
Layer<Place, T> const& Model<Place, T>::layer(int slot, int layer) const {
  return slots_[static_cast<std::size_t>(slot)][static_cast<std::size_t>(layer - part_.first_layer())];
}

template <class Place, class T>
Matrix<T> Model<Place, T>::layer_input(int slot, int layer, int samples) const {
  auto const& memory = memory_->slots[static_cast<std::size_t>(slot)];
  return {memory.inputs[static_cast<std::size_t>(layer - part_.first_layer())].data(), samples * tensor_.split().rows(),
          config_.hidden_size};
}

template <class Place, class T>
Matrix<T> Model<Place, T>::stream_gradient(int slot, int samples) const {
  return {memory_->slots[static_cast<std::size_t>(slot)].d_stream.data(), samples * tensor_.split().rows(),
          config_.hidden_size};
}

template <class Place, class T>
Matrix<T> Model<Place, T>::middle(int slot, int layer, Pass const& pass) const {
  auto const& memory = memory_->slots[static_cast<std::size_t>(slot)];
  return rows_of(memory.middles[static_cast<std::size_t>(layer - part_.first_layer())], pass, config_.hidden_size);
}

/// Tokens as rows of the part [first_row, first_row + rows) of the vocabulary.
template <class Place, class T>
std::span<std::int32_t const> Model<Place, T>::tokens_of(Batch const& batch, std::int64_t first_row,
                                                         std::int64_t rows) const {
  auto const present = memory_->present_tokens.first(batch.tokens.size());
  std::transform(batch.tokens.begin(), batch.tokens.end(), present.begin(),
                 [&](std::int32_t token) { return row_of_token(token, first_row, rows); });
  return present;
}

template <class Place, class T>
void Model<Place, T>::embed(int slot, Pass const& pass, Batch const& batch) {
  auto const first_row = shard_["model.embed_tokens.weight"].front().piece->first_row;
  auto const y = input(slot, pass.samples);
  auto const candidates = tensor_.alone() ? y : all_rows_of(memory_->all_stream, pass, config_.hidden_size);
  if (!tensor_.alone()) std::fill_n(candidates.data, candidates.rows * candidates.cols, T{});
  for_each_vocabulary_part(embedding_, first_row, [&](Linear<T> const& part, std::int64_t first) {
    kernels::embedding_forward<T>(place_, candidates, part.matrix(), tokens_of(batch, first, part.out));
  });
  if (!tensor_.alone()) {
    tensor_.exchange().template merge<T>(place_, y, candidates, memory_->own_stream, pass.samples);
  }
}

template <class Place, class T>
void Model<Place, T>::forward(int slot, Batch const& batch, bool count_loads) {
  Pass pass = make_pass(batch);
  pass.count_loads = count_loads;
  if (part_.has_embedding()) embed(slot, pass, batch);
  for (int l = part_.first_layer(); l < part_.end_layer(config_); ++l) {
    auto const& [attention, ffn] = layer(slot, l);
    attention->forward(pass, middle(slot, l, pass), layer_input(slot, l, pass.samples));
    ffn->forward(pass, layer_input(slot, l + 1, pass.samples), middle(slot, l, pass));
  }
}

template <class Place, class T>
void Model<Place, T>::backward_layer(int slot, int l, Pass& pass, Gradients const& gradients,
                                     Matrix<double> balance_loss) {
  auto const& [attention, ffn] = layer(slot, l);
  auto const x = layer_input(slot, l, pass.samples), between = middle(slot, l, pass);
  auto const stream = stream_gradient(slot, pass.samples);
  if (config_.is_moe(l) && balance_loss.data != nullptr) {
    pass.balance_loss = {balance_loss.row(config_.moe_index(l)), static_cast<std::size_t>(pass.samples)};
  }
  if (options_.recompute == Recompute::full) attention->forward(pass, between, x);
  ffn->recompute(pass, between);
  ffn->backward_input(pass, stream, between);
  if (!options_.deferred_weights) ffn->backward_weight(pass, gradients, between);
  ffn->backward_residual(pass, stream, between);
  between_blocks_();
  if (options_.recompute == Recompute::selective) attention->recompute(pass, x);
  attention->backward_input(pass, stream, x);
  if (!options_.deferred_weights) attention->backward_weight(pass, gradients, x);
  attention->backward_residual(pass, stream, x);
  between_blocks_();
}

template <class Place, class T>
void Model<Place, T>::backward_input(int slot, Batch const& batch, Gradients const& gradients, LossScale scale,
                                     std::span<double> sample_loss, Matrix<double> balance_loss) {
  Pass pass = make_pass(batch);
  pass.sequence_scale = scale.sequence;
  int const end = part_.end_layer(config_);
  auto const stream = stream_gradient(slot, pass.samples);
  if (head_) {
    head_->forward_backward(pass, stream, gradients, output(slot, pass.samples), batch.targets, scale.token,
                            sample_loss);
    between_blocks_();
  }
  for (int l = end - 1; l >= part_.first_layer(); --l) {
    if (observer_) observer_(l, stream);
    backward_layer(slot, l, pass, gradients, balance_loss);
  }
  if (observer_ && part_.has_embedding()) observer_(-1, stream);
  if (part_.has_embedding() && !options_.deferred_weights) backward_embedding(slot, pass, batch, gradients);
}

template <class Place, class T>
void Model<Place, T>::backward_weight(int slot, Batch const& batch, Gradients const& gradients) {
  if (!options_.deferred_weights) return;
  Pass const pass = make_pass(batch);
  for (int l = part_.end_layer(config_) - 1; l >= part_.first_layer(); --l) {
    auto const& [attention, ffn] = layer(slot, l);
    ffn->backward_weight(pass, gradients, middle(slot, l, pass));
    attention->backward_weight(pass, gradients, layer_input(slot, l, pass.samples));
    between_blocks_();
  }
  if (part_.has_embedding()) backward_embedding(slot, pass, batch, gradients);
}

template <class Place, class T>
void Model<Place, T>::backward_embedding(int slot, Pass const& pass, Batch const& batch, Gradients const& gradients) {
  if (pass.samples == 0) return;
  auto const stream = tensor_.template gather<T>(pass, memory_->all_stream, stream_gradient(slot, pass.samples));
  auto const first_row = shard_["model.embed_tokens.weight"].front().piece->first_row;
  std::int64_t const begin = embedding_.pieces().front().offset;
  for_each_vocabulary_part(embedding_, first_row, [&](Linear<T> const& part, std::int64_t first) {
    auto const target = config_.tied_embeddings
                            ? Matrix<float>(gradients.tied.data() + (part.offset - begin), part.out, part.in)
                            : part.gradient(gradients.sliced);
    kernels::embedding_backward<T>(place_, target, stream, tokens_of(batch, first, part.out));
  });
}

template <class Place, class T>
void Model<Place, T>::losses(int slot, Batch const& batch, std::span<double> sample_loss) {
  Pass const pass = make_pass(batch);
  head_->losses(pass, output(slot, pass.samples), batch.targets, sample_loss);
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
std::optional<std::string> Model<Place, T>::find_non_finite_weight(int layer) const {
  auto const& table = shard_.table();
  for (auto const& held : shard_.all()) {
    auto const& parameter = table.parameter(*held.piece);
    if (parameter.layer != layer) continue;
    auto const size = static_cast<std::size_t>(held.piece->size());
    std::string const name = "weight " + parameter.name;
    auto found = parameter.segment == Segment::matrix
                     ? describe_non_finite<T>(name, {weights_.matrix(held.offset), size})
                     : describe_non_finite<float>(name, {weights_.vector(held.offset), size});
    if (found) return found;
  }
  return std::nullopt;
}

template <class Place, class T>
std::optional<std::string> Model<Place, T>::find_non_finite(int slot, Batch const& batch) {
  Pass const pass = make_pass(batch);
  std::optional<std::string> first;
  // The pass goes on in any case: other ranks take part in it.
  auto const note = [&](std::optional<std::string> found) {
    if (!first) first = std::move(found);
  };
  if (part_.has_embedding()) {
    note(find_non_finite_weight(-1));
    embed(slot, pass, batch);
  }
  for (int l = part_.first_layer(); l < part_.end_layer(config_); ++l) {
    auto const& [attention, ffn] = layer(slot, l);
    std::string const name = "layer " + std::to_string(l) + ": ";
    auto const note_block = [&](Block<Place, T> const& block) {
      for (auto const& activation : block.activations(pass)) {
        note(describe_non_finite<T>(name + activation.name, activation.values));
      }
    };
    note(find_non_finite_weight(l));
    auto const between = middle(slot, l, pass);
    attention->forward(pass, between, layer_input(slot, l, pass.samples));
    note_block(*attention);
    note(describe_non_finite<T>(name + "sum after attention", used(between)));
    auto const y = layer_input(slot, l + 1, pass.samples);
    ffn->forward(pass, y, between);
    note_block(*ffn);
    note(describe_non_finite<T>(name + "output", used(y)));
  }
  if (!head_) return first;
  note(find_non_finite_weight(config_.num_layers));
  std::vector<double> sample_loss(static_cast<std::size_t>(batch.samples));
  head_->losses(pass, output(slot, pass.samples), batch.targets, sample_loss);
  for (std::size_t s = 0; s < sample_loss.size(); ++s) {
    if (!std::isfinite(sample_loss[s])) note("loss of sample " + std::to_string(s) + " of the micro-batch");
  }
  return first;
}

}  // namespace isotrain
