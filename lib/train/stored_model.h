#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "lib/data/tokenizer.h"
#include "lib/io/checkpoint.h"
#include "lib/model/config.h"
#include "lib/tensor/parameters.h"
#include "lib/train/settings.h"

namespace isotrain {

/// A checkpoint opened for use: everything but its weights.
struct StoredModel {
  std::filesystem::path path;
  io::CheckpointReader reader;
  TrainSettings settings;  // of the run that wrote it
  ModelConfig config;
  std::unique_ptr<ParameterTable> table;
  std::unique_ptr<data::Tokenizer> tokenizer;
};

/// `path` is a checkpoint or a run folder, of which the newest complete checkpoint is taken. Throws Error.
StoredModel open_stored_model(std::filesystem::path const& path);

/// All weights of a checkpoint as a model of precision T computes with them.
template <class T>
class StoredWeights {
 public:
  /// Throws Error if the file is damaged.
  explicit StoredWeights(StoredModel const& model);
  Weights<T> view() const { return {matrices_.data(), fp32_.data(), static_cast<std::int64_t>(matrices_.size())}; }

 private:
  std::vector<T> matrices_;
  std::vector<float> fp32_;
};

/// The router biases of a model, rows by router_bias_names, from a checkpoint's state. Throws Error if one is missing.
std::vector<float> stored_router_biases(io::CheckpointHeader const& header, ModelConfig const& config);

}  // namespace isotrain
