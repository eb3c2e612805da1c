#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/device/buffers.h"
#include "lib/model/block.h"
#include "lib/model/config.h"
#include "lib/model/head.h"
#include "lib/model/options.h"
#include "lib/model/part.h"
#include "lib/model/tensor_group.h"
#include "lib/parallel/expert_exchange.h"

namespace isotrain {

template <class Place, class T>
struct ModelMemory;
template <class Place, class T>
struct Layer;

struct DecoderOptions {
  std::int64_t positions = 0;  // most tokens of prompt and answer together
  int slices = 1;
  Yarn yarn = Yarn::automatic;
};

/// Continues one text token by token, with a cache of keys and values. Same bits as Model::evaluate over the same
/// tokens with the same slices.
template <class Place, class T>
class Decoder {
 public:
  /// Allocates its memory. `table` and what `weights` points to outlive the decoder; router_biases (MoE layers, E) as
  /// in Model, copied; empty: zeros. Throws UsageError if the options do not fit the model.
  Decoder(Place place, ModelConfig config, DecoderOptions options, ParameterTable const& table, Weights<T> weights,
          std::span<float const> router_biases);
  ~Decoder();
  Decoder(Decoder const&) = delete;
  Decoder& operator=(Decoder const&) = delete;

  /// Appends a token; logits (V) of the next one, valid until the next call. Throws Error if there is no position left.
  std::span<float const> step(std::int32_t token);
  /// Appends a prompt of at least one token; logits after its last one.
  std::span<float const> prefill(std::span<std::int32_t const> tokens);

  /// Tokens so far.
  std::int64_t length() const { return length_; }
  /// Forgets all tokens.
  void reset() { length_ = 0; }

 private:
  struct Cache {
    std::vector<T> keys, values;
  };

  void append(std::int32_t token);
  KeyValueCache<T> cache(std::size_t layer);

  Place place_;
  ModelConfig config_;
  ModelOptions options_;
  ModelPart part_;
  Shard shard_;
  std::int64_t positions_;
  std::int64_t length_ = 0;
  BufferPlan plan_;
  BufferLayout layout_;
  std::unique_ptr<Buffers> buffers_;
  std::unique_ptr<ModelMemory<Place, T>> memory_;
  std::unique_ptr<TensorGroup<Place>> tensor_;
  std::unique_ptr<ExpertExchange> experts_;
  Stack<T> embedding_;
  std::vector<Layer<Place, T>> layers_;
  std::unique_ptr<Head<Place, T>> head_;
  std::vector<Cache> caches_;
  std::vector<float> logits_;
};

}  // namespace isotrain
