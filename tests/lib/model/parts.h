#pragma once

#include <numeric>

#include "lib/comm/mesh.h"
#include "tests/lib/model/tiny.h"

/// One step of a model whose tensors and experts ranks share, against the whole model on one rank.
namespace isotrain::test {

/// Cases of variants() with heads for 4 slices, so that 4 ranks can share them.
inline std::vector<Variant> variants_of_four_slices() {
  auto result = variants();
  for (auto& variant : result) {
    bool const grouped = variant.json.value("num_key_value_heads", 4) == 2;
    variant.json["num_attention_heads"] = grouped ? 8 : 4;
    variant.json["num_key_value_heads"] = 4;
    // Dividing the hidden size by the heads is no longer even.
    if (variant.json["architectures"][0] == "LlamaForCausalLM") variant.json["head_dim"] = 6;
  }
  return result;
}

struct PartCase {
  ModelConfig config;
  ModelOptions options;
  std::int64_t sequence = 0;
  std::vector<int> samples;  // of each source
};

template <class T>
class PartRun {
 public:
  /// `mesh`: one stage, where every data rank is a source with samples of its own. Both outlive it.
  PartRun(PartCase const& test, Mesh const& mesh) : test_(test), mesh_(mesh) {}

  /// Makes the part's samples others than the whole model's, which must show.
  void break_samples() { part_seed_ = 50; }

  /// Empty if losses, loads and the gradients of all pieces that this rank holds are, bit for bit, those of the whole
  /// model, else what differs first. Collective over the mesh.
  std::string difference() {
    std::vector<StepResult> wholes;
    for (int s = 0; s < sources(); ++s) wholes.push_back(whole(s));
    ModelPart const part{
        .tensor = mesh_.tensor().size() > 1 ? &mesh_.tensor() : nullptr,
        .experts = mesh_.expert().size() > 1 && test_.config.num_experts > 0 ? &mesh_.expert() : nullptr};
    TinyModel<T> mine(test_.config, test_.options, Cpu(), Fill::nan, stddev, part);
    TinyGradients gradients(mine.shard, part, test_.config.tied_embeddings);
    int const own = mesh_.coordinates().data;
    StepResult result;
    run_passes(mine, data(own, part_seed_), test_.samples[static_cast<std::size_t>(own)], test_.options.micro_batch,
               passes(), scale(), gradients, result);
    mesh_.tensor().sum(std::span(result.loads));

    auto const& expected = wholes[static_cast<std::size_t>(own)];
    result.gradients = expected.gradients;
    std::string text = test::difference(result, expected, mine.table);
    // Without a group of experts a rank has those of its own source only.
    for (int s = 0; s < part.sources(); ++s) {
      auto const& of_source = part.experts == nullptr ? expected : wholes[static_cast<std::size_t>(s)];
      auto const sum = gradients.sum(s);
      for (auto const& held : mine.shard.all()) {
        auto const& parameter = mine.table.parameter(*held.piece);
        if (parameter.expert < 0 && s > 0) continue;
        auto const& of = parameter.expert < 0 ? expected : of_source;
        auto const size = static_cast<std::size_t>(held.end() - held.offset);
        bool const same =
            std::memcmp(sum.data() + held.offset, of.gradients.data() + held.piece->offset, size * sizeof(float)) == 0;
        if (!same && text.empty()) {
          text = "gradient of " + parameter.name + ", slice " + std::to_string(held.piece->slice) + ", of source " +
                 std::to_string(parameter.expert < 0 ? own : s);
        }
      }
    }
    return text;
  }

 private:
  static constexpr double stddev = 0.3;
  static constexpr std::uint64_t seed = 5;

  int sources() const { return mesh_.data().size(); }
  int passes() const {
    int const most = *std::ranges::max_element(test_.samples);
    return (most + test_.options.micro_batch - 1) / test_.options.micro_batch;
  }
  TinyData data(int source, std::uint64_t seed) const {
    return {test_.config, test_.samples[static_cast<std::size_t>(source)], test_.sequence,
            seed + static_cast<std::uint64_t>(source)};
  }
  LossScale scale() const {
    return scale_of(std::accumulate(test_.samples.begin(), test_.samples.end(), 0), test_.sequence);
  }
  StepResult whole(int source) const {
    TinyModel<T> model(test_.config, test_.options, Cpu(), Fill::nan, stddev);
    TinyGradients gradients(model.shard, ModelPart{}, test_.config.tied_embeddings);
    StepResult result;
    run_passes(model, data(source, seed), test_.samples[static_cast<std::size_t>(source)], test_.options.micro_batch,
               passes(), scale(), gradients, result);
    result.gradients = gradients.sum();
    return result;
  }

  PartCase const& test_;
  Mesh const& mesh_;
  std::uint64_t part_seed_ = seed;
};

}  // namespace isotrain::test
