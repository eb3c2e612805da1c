#include "lib/train/stored_model.h"

#include <algorithm>
#include <sstream>

#include "lib/base/bfloat16.h"
#include "lib/base/error.h"
#include "lib/io/checkpoint_folder.h"
#include "lib/model/model.h"
#include "lib/model/parameter_list.h"
#include "lib/train/resume.h"
#include "lib/train/run_folder.h"

namespace isotrain {
namespace {

// Elements read at a time: weights are rounded piece by piece, so that they are never held twice.
constexpr std::int64_t read_elements = std::int64_t{1} << 22;

std::filesystem::path find(std::filesystem::path const& path) {
  if (!std::filesystem::is_directory(path)) return path;
  auto const newest = io::newest_complete_checkpoint(RunFolder(path).checkpoints());
  if (!newest.path) {
    throw Error("there is no complete checkpoint in '" + path.string() + "'",
                newest.skipped.empty() ? "its checkpoints folder is empty" : newest.skipped.front(),
                "name a run folder or a checkpoint file");
  }
  return *newest.path;
}

}  // namespace

StoredModel open_stored_model(std::filesystem::path const& path) {
  auto const file = find(path);
  io::CheckpointReader reader(file);
  auto const& header = reader.header();
  TrainSettings const settings = settings_of(header);
  ModelConfig config = parse_model_config(header.config_json, "the config in " + file.string());
  auto table = std::make_unique<ParameterTable>(model_parameters(config), static_cast<int>(header.slices));
  if (header.index != checkpoint_index(*table)) {
    throw Error("'" + file.string() + "' does not hold the parameters of its own config", "",
                "is it from another version?");
  }
  auto tokenizer = data::make_tokenizer(std::as_bytes(std::span(header.tokenizer)));
  return {file, std::move(reader), settings, std::move(config), std::move(table), std::move(tokenizer)};
}

template <class T>
StoredWeights<T>::StoredWeights(StoredModel const& model)
    : matrices_(static_cast<std::size_t>(model.table->matrix_size())),
      fp32_(static_cast<std::size_t>(model.table->flat_size() - model.table->matrix_size())) {
  std::vector<float> piece;
  auto const read = [&](std::int64_t begin, auto out) {
    for (std::size_t done = 0; done < out.size(); done += piece.size()) {
      piece.resize(std::min<std::size_t>(read_elements, out.size() - done));
      model.reader.read("master", static_cast<std::uint64_t>(begin) + done, piece);
      std::transform(piece.begin(), piece.end(), out.begin() + static_cast<std::ptrdiff_t>(done),
                     [](float x) { return from_float<typename decltype(out)::value_type>(x); });
    }
  };
  read(0, std::span(matrices_));
  read(model.table->matrix_size(), std::span(fp32_));
}

template class StoredWeights<float>;
template class StoredWeights<bfloat16>;

std::vector<float> stored_router_biases(io::CheckpointHeader const& header, ModelConfig const& config) {
  std::vector<float> biases;
  for (auto const& name : router_bias_names(config)) {
    auto const found = header.state.find(name);
    if (found == header.state.end() || found->second.size() != static_cast<std::size_t>(config.num_experts)) {
      throw Error("the checkpoint lacks the router bias '" + name + "'", "", "is it from another version?");
    }
    biases.insert(biases.end(), found->second.begin(), found->second.end());
  }
  return biases;
}

}  // namespace isotrain
