#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/device/buffers.h"
#include "lib/model/block.h"
#include "lib/model/buffer_map.h"
#include "lib/model/config.h"
#include "lib/model/head.h"
#include "lib/model/options.h"
#include "lib/tensor/parameters.h"

/// A whole decoder-only transformer on one place. T is float or bfloat16, the precision of weights and activations;
/// sums, gradients of weights, norm gains and the router are fp32.
/// Letters: N = samples * T rows (sample-major), d hidden size, V vocabulary, E experts.
namespace isotrain {

template <class Place, class T>
struct ModelMemory;
template <class Place, class T>
struct Layer;

template <class Place, class T>
class Model {
 public:
  /// Adds all activations and workspace of a model to `plan`. Throws UsageError if the options do not fit the config.
  static BufferLayout plan(ModelConfig const& config, ModelOptions const& options, BufferPlan& plan);

  /// `table` is ParameterTable(model_parameters(config)); it, `buffers` and what `weights` points to outlive the model.
  /// Weights may change between calls. Router biases and loads start at zero.
  Model(Place place, ModelConfig config, ModelOptions options, ParameterTable const& table, BufferLayout layout,
        Buffers const& buffers, Weights<T> weights);
  ~Model();
  Model(Model const&) = delete;
  Model& operator=(Model const&) = delete;

  /// Adds to `gradients` (flat space, fp32) the gradient of
  ///   scale.token * (sum of token losses) + scale.sequence * (sum over samples and layers of the balancing losses).
  /// sample_loss and sample_balance_loss (batch.samples, fp64 out): per sample, the sum of its token losses in order of
  /// position, and the sum over layers, last to first, of its balancing losses. Counts expert loads.
  /// Gradients depend on the samples and their order over calls, never on how the calls cut them.
  void forward_backward(Batch batch, std::span<float> gradients, LossScale scale, std::span<double> sample_loss,
                        std::span<double> sample_balance_loss);

  /// To be called after the last forward_backward on `gradients`: with tied embeddings adds the input side's gradient,
  /// which is summed apart because it comes after the output side's whole sum. Else does nothing.
  void finish_gradients(std::span<float> gradients);

  /// Losses of the samples only; counts nothing.
  void evaluate(Batch batch, std::span<double> sample_loss);

  /// Runs the forward pass again and names the first weight or activation with a NaN or infinity, e.g.
  /// "layer 3: attention output, element 17", or nothing.
  std::optional<std::string> find_non_finite(Batch batch);

  /// Of MoE layers, ascending (layers, E); empty for dense models. Biases are part of a checkpoint under
  /// router_bias_names(config); loads are (token, choice) pairs since they were last set to zero.
  std::span<float> router_biases() const { return router_biases_; }
  std::span<std::int64_t> expert_loads() const { return expert_loads_; }

  ModelConfig const& config() const { return config_; }
  ModelOptions const& options() const { return options_; }

 private:
  Model(Place place, ModelConfig config, ModelOptions options, ParameterTable const& table,
        ModelMemory<Place, T> memory, Weights<T> weights);

  Pass make_pass(Batch const& batch) const;
  /// The input of layer `layer`; of the head for the number of layers.
  Matrix<T> input(Pass const& pass, int layer) const {
    return {inputs_[layer].data(), pass.rows(), config_.hidden_size};
  }
  /// What is between attention and feed-forward of a layer.
  Matrix<T> middle(Pass const& pass, int layer) const {
    return {middles_[layer].data(), pass.rows(), config_.hidden_size};
  }
  void forward(Pass const& pass, Batch const& batch);
  void backward_layer(Pass const& pass, int layer, std::span<float> gradients);
  void backward_embedding(Pass const& pass, Batch const& batch, std::span<float> gradients);
  std::optional<std::string> find_non_finite_weight(std::string const& prefix) const;

  Place place_;
  ModelConfig config_;
  ModelOptions options_;
  ParameterTable const& table_;
  Weights<T> weights_;
  Linear<T> embedding_;
  std::vector<std::span<T>> inputs_;
  std::vector<std::span<T>> middles_;
  std::span<T> d_stream_;                // (N,d) gradient of the stream between the blocks
  std::span<std::int32_t> positions_;    // (N)
  std::span<float> embedding_gradient_;  // (V,d), tied embeddings only
  std::span<float> router_biases_;
  std::span<std::int64_t> expert_loads_;
  std::vector<Layer<Place, T>> layers_;
  std::unique_ptr<Head<Place, T>> head_;
};

/// b += gamma * sign(mean load - load) for each expert of each layer: balancing without an auxiliary loss (Wang et al.,
/// arXiv:2408.15664). biases, loads (layers, E).
void update_router_bias(std::span<float> biases, std::span<std::int64_t const> loads, int experts, float gamma);

/// Names of the rows of Model::router_biases in checkpoints, "model.layers.3.mlp.gate.e_score_correction_bias"; empty
/// for models whose routers have none.
std::vector<std::string> router_bias_names(ModelConfig const& config);

}  // namespace isotrain
