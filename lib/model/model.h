#pragma once

#include <cstdint>
#include <functional>
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
#include "lib/model/part.h"
#include "lib/model/tensor_group.h"
#include "lib/parallel/expert_exchange.h"

/// A decoder-only transformer, or consecutive layers of it, on one place. T is float or bfloat16, the precision of
/// weights and activations; sums, gradients of weights, norm gains and the router are fp32.
/// Letters: n own rows, N all rows of a micro-batch (see Pass), d hidden size, V vocabulary, E experts.
namespace isotrain {

template <class Place, class T>
struct ModelMemory;
template <class Place, class T>
struct Layer;

/// The micro-batches that are under way each have a slot of memory. For each, in this order: forward; backward_input
/// and backward_weight. A part without the embedding finds the activations of the part before in input(); one without
/// the head the gradient in stream_gradient(), where it leaves that of its own input. Weight gradients depend on the
/// samples and the order of the calls of backward_weight, never on how the calls cut the samples. All ranks of the
/// part's groups make the same calls; a micro-batch may have no samples on some data-parallel ranks.
template <class Place, class T>
class Model {
 public:
  /// Adds all activations and workspace of a part of a model to `plan`; some of the workspace is that of the part
  /// `beside`, if there is one, whose calls and this one's come one after the other. Throws UsageError if the options
  /// do not fit the config.
  static BufferLayout plan(ModelConfig const& config, ModelOptions const& options, ModelPart const& part,
                           BufferPlan& plan, BufferLayout const* beside = nullptr);

  /// `shard` is what shard_of gives for the part; it, `buffers`, the groups of the part and what `weights` points to
  /// (in the order of the shard) outlive the model. Weights may change between calls. Router biases and loads start at
  /// zero.
  Model(Place place, ModelConfig config, ModelOptions options, ModelPart part, Shard const& shard, BufferLayout layout,
        Buffers const& buffers, Weights<T> weights);
  ~Model();
  Model(Model const&) = delete;
  Model& operator=(Model const&) = delete;

  /// (n,d) what the first layer of the part reads, what its last one wrote, and the gradient of the stream.
  Matrix<T> input(int slot, int samples) const { return layer_input(slot, part_.first_layer(), samples); }
  Matrix<T> output(int slot, int samples) const { return layer_input(slot, part_.end_layer(config_), samples); }
  Matrix<T> stream_gradient(int slot, int samples) const;
  /// (n,d) what a layer of the part reads; of the one after the last, what the last wrote.
  Matrix<T> layer_input(int slot, int layer, int samples) const;

  /// `count_loads`: adds to the experts' loads.
  void forward(int slot, Batch const& batch, bool count_loads);
  /// The gradient of the activations of
  ///   scale.token * (sum of token losses) + scale.sequence * (sum over samples and layers of the balancing losses);
  /// with the head also that of the head's parameters.
  ///   sample_loss (batch.samples) fp64 out, with the head: sum of the token losses of each sample, in order
  ///   balance_loss (MoE layers of the model, batch.samples) fp64 out, rows of this part's layers; may be empty
  void backward_input(int slot, Batch const& batch, Gradients const& gradients, LossScale scale,
                      std::span<double> sample_loss, Matrix<double> balance_loss);
  /// Adds the gradients of the other parameters. Unless ModelOptions::deferred_weights, backward_input has done it, and
  /// this does nothing.
  void backward_weight(int slot, Batch const& batch, Gradients const& gradients);

  /// After forward, with the head: losses only.
  void losses(int slot, Batch const& batch, std::span<double> sample_loss);

  /// Runs the forward pass of the part and names the first weight or activation with a NaN or infinity, e.g.
  /// "layer 3: attention output, element 17", or nothing.
  std::optional<std::string> find_non_finite(int slot, Batch const& batch);

  /// Is called with the gradient of what each layer of the part wrote, from the last to the first; layer -1: of what
  /// the embedding wrote.
  using Observer = std::function<void(int layer, Matrix<T const> d_output)>;
  void observe_gradients(Observer observer) { observer_ = std::move(observer); }
  /// Is called often in backward passes, for what goes on beside them.
  void between_blocks(std::function<void()> call) { between_blocks_ = std::move(call); }

  /// Of the MoE layers of the whole model, ascending (layers, E); empty for dense models. Biases are part of a
  /// checkpoint under router_bias_names(config); loads are (token, choice) pairs of own rows and layers since they were
  /// last set to zero.
  std::span<float> router_biases() const;
  std::span<std::int64_t> expert_loads() const;

  ModelConfig const& config() const { return config_; }
  ModelOptions const& options() const { return options_; }
  ModelPart const& part() const { return part_; }
  TokenSplit const& split() const { return tensor_.split(); }

 private:
  using Slot = std::vector<Layer<Place, T>>;

  Model(Place place, ModelConfig config, ModelOptions options, ModelPart part, Shard const& shard,
        std::unique_ptr<ModelMemory<Place, T>> memory, Weights<T> weights);

  Pass make_pass(Batch const& batch) const;
  Layer<Place, T> const& layer(int slot, int layer) const;
  Matrix<T> middle(int slot, int layer, Pass const& pass) const;
  void embed(int slot, Pass const& pass, Batch const& batch);
  void backward_layer(int slot, int layer, Pass& pass, Gradients const& gradients, Matrix<double> balance_loss);
  void backward_embedding(int slot, Pass const& pass, Batch const& batch, Gradients const& gradients);
  std::span<std::int32_t const> tokens_of(Batch const& batch, std::int64_t first_row, std::int64_t rows) const;
  std::optional<std::string> find_non_finite_weight(int layer) const;

  Place place_;
  ModelConfig config_;
  ModelOptions options_;
  ModelPart part_;
  Shard const& shard_;
  Weights<T> weights_;
  std::unique_ptr<ModelMemory<Place, T>> memory_;
  TensorGroup<Place> tensor_;
  ExpertExchange experts_;
  Stack<T> embedding_;
  std::vector<Slot> slots_;
  std::unique_ptr<Head<Place, T>> head_;
  Observer observer_;
  std::function<void()> between_blocks_ = [] {};
};

/// b += gamma * sign(mean load - load) for each expert of each layer: balancing without an auxiliary loss (Wang et al.,
/// arXiv:2408.15664). biases, loads (layers, E).
void update_router_bias(std::span<float> biases, std::span<std::int64_t const> loads, int experts, float gamma);

/// Names of the rows of Model::router_biases in checkpoints, "model.layers.3.mlp.gate.e_score_correction_bias"; empty
/// for models whose routers have none.
std::vector<std::string> router_bias_names(ModelConfig const& config);

}  // namespace isotrain
