#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/program.h"

/// Small corpora, models and runs of the program for the tests in this folder.
namespace isotrain::test {

/// Pseudo-English of about `bytes` bytes: paragraphs of made-up words, the same every time.
std::string made_up_text(std::size_t bytes, unsigned seed = 1);

/// A folder with a corpus of made-up text ("corpus") and configs, all tiny: llama.json and moe.json (DeepSeek-V3) of 2
/// and 3 layers; deep-llama.json, deep-moe.json, tied.json (Llama with tied embeddings) and v2-lite.json of 8.
class TinyWorld {
 public:
  TinyWorld();
  std::filesystem::path operator/(std::string const& name) const { return folder_ / name; }

  /// Arguments of a run of 4 steps of 32 sequences of 32 tokens, in the run folder `name`.
  std::vector<std::string> train(std::string const& model, std::string const& name,
                                 std::vector<std::string> const& more = {}) const;

  struct Step {
    std::int64_t step;
    double loss;
    std::string fingerprint;
    double gradient_norm;
    double balance_loss;                // 0 for dense models
    std::vector<double> max_violation;  // of the expert loads of each layer
    std::optional<double> validation_loss = {};
    bool operator==(Step const&) const = default;
  };
  /// What metrics.jsonl of the run folder `name` says.
  std::vector<Step> steps(std::string const& name) const;
  /// How many lines it has now, while a run may be writing.
  std::size_t steps_so_far(std::string const& name) const;

 private:
  TemporaryFolder folder_;
};

/// "step-00000004.h5"
std::string checkpoint_name(std::size_t step);

std::ostream& operator<<(std::ostream& out, TinyWorld::Step const& step);

}  // namespace isotrain::test
