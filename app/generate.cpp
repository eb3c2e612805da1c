#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/data/tokenizer.h"
#include "lib/model/decoder.h"
#include "lib/model/sampler.h"
#include "lib/train/stored_model.h"
#include "lib/train/train_plan.h"

namespace isotrain {
namespace {

struct GenerateSettings {
  std::filesystem::path model;
  std::string prompt;
  std::int64_t tokens = 100;
  double temperature = 1;
  std::int64_t top_k = 0;
  double top_p = 1;
  std::int64_t seed = 1;
  std::int64_t threads = 0;
  std::string isa = "auto";
};

void declare(Settings& table, GenerateSettings& s) {
  table.add("model", s.model, {.help = "Checkpoint, or run folder whose newest checkpoint is taken."});
  table.positional("model", Settings::Presence::required);
  table.add("prompt", s.prompt, {.help = "Text to continue; '-' reads standard input."});
  table.add("tokens", s.tokens, {.help = "Most tokens to write.", .unit = "tokens", .check = at_least(1)});
  table.add("temperature", s.temperature,
            {.help = "Divides the logits; 0 always takes the likeliest token.", .check = at_least(0)});
  table.add("top-k", s.top_k, {.help = "Draw among the k likeliest tokens only; 0: all.", .check = at_least(0)});
  table.add("top-p", s.top_p,
            {.help = "Draw among the likeliest tokens that together have this probability.", .check = between(0, 1)});
  table.add("seed", s.seed, {.help = "Keys the draws: the same seed writes the same text."});
  table.add("device.threads", s.threads, {.help = "Threads; 0 chooses.", .check = at_least(0)});
  table.add("device.isa", s.isa,
            {.help = "Highest instruction set that kernels may use.",
             .choices = {"auto", "scalar", "avx2", "avx512", "amx"}});
}

template <class T>
void generate(GenerateSettings const& s, StoredModel const& stored) {
  auto const& tokenizer = *stored.tokenizer;
  std::string const prompt = s.prompt == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : s.prompt;
  std::vector<std::uint32_t> const encoded = tokenizer.encode(prompt);
  std::vector<std::int32_t> context(encoded.begin(), encoded.end());
  // A model has seen documents begin after the end of others.
  if (context.empty()) context.push_back(static_cast<std::int32_t>(tokenizer.eos()));
  auto const length = static_cast<std::int64_t>(context.size());
  std::int64_t const room = stored.config.max_positions - length;
  if (room < 1) {
    throw UsageError("the prompt is too long", std::to_string(length) + " tokens, and max_position_embeddings is " +
                                                   std::to_string(stored.config.max_positions));
  }
  std::int64_t const count = std::min(s.tokens, room);

  TrainSettings run = stored.settings;
  run.device = {.kind = "auto", .isa = s.isa, .threads = s.threads};
  StoredWeights<T> const weights(stored);
  auto const biases = stored_router_biases(stored.reader.header(), stored.config);
  Decoder<Cpu, T> decoder(make_place(run, 1), stored.config,
                          {.positions = length + count,
                           .slices = static_cast<int>(stored.reader.header().slices),
                           .yarn = parse_yarn(stored.settings.model.yarn)},
                          *stored.table, weights.view(), biases);
  Sampler const sample({s.temperature, static_cast<int>(s.top_k), s.top_p, static_cast<std::uint64_t>(s.seed)});

  std::fputs(prompt.c_str(), stdout);
  auto logits = decoder.prefill(context);
  for (std::int64_t i = 0; i < count; ++i) {
    // Ids above the tokenizer's are never trained towards, and mean nothing.
    auto const known = logits.first(static_cast<std::size_t>(tokenizer.vocabulary_size()));
    std::int32_t const token = sample(known, decoder.length());
    auto const id = static_cast<std::uint32_t>(token);
    if (id == tokenizer.eos()) break;
    std::fputs(tokenizer.decode({&id, 1}).c_str(), stdout);
    std::fflush(stdout);
    if (i + 1 < count) logits = decoder.step(token);
  }
  std::fputs("\n", stdout);
}

}  // namespace

int run_generate(std::vector<std::string> const& arguments) {
  GenerateSettings settings;
  Settings table("isotrain generate MODEL", "Continues a text with the model of a checkpoint.");
  declare(table, settings);
  return run_command(table, arguments, [&] {
    auto const stored = open_stored_model(settings.model);
    if (stored.reader.header().precision == "bf16") {
      generate<bfloat16>(settings, stored);
    } else {
      generate<float>(settings, stored);
    }
    return 0;
  });
}

}  // namespace isotrain
