/// How many tokens a second go through forward and backward of a model on this processor, without optimizer: one line
/// with the best and the median step, and the share of what the processor's multiply-adds allow.
/// The models of benchmarks/configs have the sizes of the peer's.
///   step_speed --model benchmarks/configs/v3-256.json [--precision bf16] [--threads 2] [--batch 4] [--sequence 512]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <vector>

#include "benchmarks/support/fma_peak.h"
#include "kernels/reduce.h"
#include "lib/base/random.h"
#include "lib/base/settings.h"
#include "lib/base/tree.h"
#include "lib/model/counts.h"
#include "lib/model/model.h"
#include "lib/model/parameter_list.h"

namespace isotrain::benchmarks {
namespace {

struct Arguments {
  std::filesystem::path config;
  int batch = 4;
  int micro_batch = 4;
  std::int64_t sequence = 512;
  std::string precision = "fp32";
  std::string bf16 = "tiles";
  std::string recompute = "none";
  int threads = 2;
  int slices = 1;
  std::int64_t head_rows = ModelOptions{}.head_rows;
  double seconds = 10;
};

/// The gradients of one lane on one rank: those of the replicated parameters apart for each token slice, then added up.
class LaneGradients {
 public:
  LaneGradients(Shard const& shard, bool tied)
      : begin_(static_cast<std::size_t>(shard.region(Region::replicated).begin)),
        flat_(begin_),
        slices_(static_cast<std::size_t>(shard.table().slices()),
                std::vector<float>(static_cast<std::size_t>(shard.flat_size()) - begin_)),
        spans_(slices_.begin(), slices_.end()),
        experts_(std::span(flat_).subspan(static_cast<std::size_t>(shard.region(Region::experts).begin))),
        tied_(tied ? static_cast<std::size_t>(shard.region(Region::sliced).end) : 0) {}
  LaneGradients(LaneGradients const&) = delete;
  LaneGradients& operator=(LaneGradients const&) = delete;

  Gradients where() { return {flat_, std::span(&experts_, 1), tied_, spans_}; }
  void clear(Cpu const& at) {
    kernels::fill_zero(at, flat_);
    kernels::fill_zero(at, tied_);
    for (auto const& slice : spans_) kernels::fill_zero(at, slice);
  }
  /// The sum over token slices is in the first of them.
  void finish(Cpu const& at) {
    TreeCounter counter(static_cast<std::int64_t>(spans_.size()));
    for (std::size_t s = 0; s < spans_.size(); ++s) {
      for (auto const& due : counter.push({0, static_cast<std::int64_t>(s)})) {
        kernels::add(at, spans_[static_cast<std::size_t>(due.left)], spans_[static_cast<std::size_t>(due.right)]);
      }
    }
  }

 private:
  std::size_t begin_;
  std::vector<float> flat_;
  std::vector<std::vector<float>> slices_;
  std::vector<std::span<float>> spans_;
  std::span<float> experts_;
  std::vector<float> tied_;
};

template <class T>
void measure(Arguments const& arguments, ModelConfig const& config) {
  ModelOptions options;
  options.sequence = arguments.sequence;
  options.micro_batch = arguments.micro_batch;
  options.slices = arguments.slices;
  options.head_rows = arguments.head_rows;
  options.recompute = arguments.recompute == "none"        ? Recompute::none
                      : arguments.recompute == "selective" ? Recompute::selective
                                                           : Recompute::full;
  options.balance = default_balance(config);
  ParameterTable const table(model_parameters(config), options.slices);
  Shard const shard(table);
  BufferPlan plan;
  auto const layout = Model<Cpu, T>::plan(config, options, {}, plan);
  Buffers const buffers(plan);
  std::vector<float> flat(static_cast<std::size_t>(table.flat_size()));
  initialize(table, flat, {0, table.flat_size()}, 1, 0.02);
  Cpu const place(arguments.threads, arguments.bf16 == "pairs" ? Bf16Class::pairs : Bf16Class::tiles);
  std::vector<T> matrices(static_cast<std::size_t>(table.matrix_size()));
  std::transform(flat.begin(), flat.begin() + table.matrix_size(), matrices.begin(), from_float<T>);
  Weights<T> const weights{matrices.data(), flat.data() + table.matrix_size(), table.matrix_size()};
  Model<Cpu, T> model(place, config, options, {}, shard, layout, buffers, weights);

  auto const tokens_a_step = arguments.batch * arguments.sequence;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(tokens_a_step) + 1);
  Random const random(1, "tokens");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(random.bits(i) % static_cast<std::uint64_t>(config.vocab_size));
  }
  LaneGradients gradients(shard, config.tied_embeddings);
  std::vector<double> losses(static_cast<std::size_t>(arguments.batch));
  std::vector<double> balance_losses(static_cast<std::size_t>(config.num_moe_layers() * arguments.micro_batch));
  auto const step = [&] {
    gradients.clear(place);
    for (int first = 0; first < arguments.batch; first += arguments.micro_batch) {
      int const count = std::min(arguments.micro_batch, arguments.batch - first);
      auto const begin = static_cast<std::size_t>(first * arguments.sequence);
      auto const rows = static_cast<std::size_t>(count * arguments.sequence);
      auto const samples = static_cast<std::size_t>(count);
      Batch const batch{std::span(tokens).subspan(begin, rows), std::span(tokens).subspan(begin + 1, rows), count};
      model.forward(0, batch, true);
      model.backward_input(0, batch, gradients.where(),
                           {1.0F / static_cast<float>(tokens_a_step), 1.0F / static_cast<float>(arguments.batch)},
                           std::span(losses).subspan(static_cast<std::size_t>(first), samples),
                           {balance_losses.data(), config.num_moe_layers(), count});
    }
    gradients.finish(place);
  };
  step();
  std::vector<double> times_s, processor_times_s;
  auto const start = std::chrono::steady_clock::now();
  auto const since = [](auto begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  while (since(start) < arguments.seconds || times_s.size() < 3) {
    auto const begin = std::chrono::steady_clock::now();
    auto const processor_begin = std::clock();
    step();
    times_s.push_back(since(begin));
    processor_times_s.push_back(static_cast<double>(std::clock() - processor_begin) / CLOCKS_PER_SEC);
  }
  std::sort(times_s.begin(), times_s.end());
  std::sort(processor_times_s.begin(), processor_times_s.end());
  double const tokens_number = static_cast<double>(tokens_a_step);
  double const best = tokens_number / times_s.front();
  double const flops = best * train_flops_per_token(config, arguments.sequence);
  std::printf(
      "%s %s: %.0f tokens/s best, %.0f median, %.0f a second of processor time, %zu steps, loss %.4f, %lld parameters, "
      "%.1f GFLOP/s, %.0f%% of %d fp32 "
      "peaks, %.0f MiB activations, %.0f MiB workspace\n",
      arguments.config.stem().c_str(), arguments.precision.c_str(), best, tokens_number / times_s[times_s.size() / 2],
      tokens_number / processor_times_s.front(), times_s.size(), losses[0] / static_cast<double>(arguments.sequence),
      static_cast<long long>(table.num_parameters()), flops * 1e-9,
      100 * flops * 1e-9 / (fma_peak() * arguments.threads), arguments.threads,
      static_cast<double>(plan.total_bytes("activations")) / 1048576,
      static_cast<double>(plan.total_bytes("workspace")) / 1048576);
}

int run(std::vector<std::string> const& texts) {
  Arguments arguments;
  Settings settings("step_speed", "Measures forward and backward of a model.");
  settings.add("model", arguments.config, {.help = "config.json of the model"});
  settings.add("batch", arguments.batch, {.help = "samples of a step", .check = at_least(1)});
  settings.add("micro_batch", arguments.micro_batch, {.help = "samples of one call", .check = at_least(1)});
  settings.add("sequence", arguments.sequence, {.help = "tokens of a sample", .check = at_least(1)});
  settings.add("precision", arguments.precision, {.help = "of weights and activations", .choices = {"fp32", "bf16"}});
  settings.add("bf16", arguments.bf16, {.help = "class of bf16 sums", .choices = {"tiles", "pairs"}});
  settings.add("recompute", arguments.recompute,
               {.help = "what is computed twice", .choices = {"none", "selective", "full"}});
  settings.add("threads", arguments.threads, {.help = "threads", .check = at_least(1)});
  settings.add("slices", arguments.slices, {.help = "slices of the envelope", .check = at_least(1)});
  settings.add("head_rows", arguments.head_rows, {.help = "rows of logits at a time", .check = at_least(32)});
  settings.add("seconds", arguments.seconds, {.help = "how long to measure"});
  if (settings.parse(texts) != Settings::Request::run) {
    std::fputs(settings.help().c_str(), stdout);
    return 0;
  }
  auto const config = read_model_config(arguments.config);
  if (arguments.precision == "fp32") measure<float>(arguments, config);
  if (arguments.precision == "bf16") measure<bfloat16>(arguments, config);
  return 0;
}

}  // namespace
}  // namespace isotrain::benchmarks

int main(int count, char** arguments) {
  try {
    return isotrain::benchmarks::run({arguments + 1, arguments + count});
  } catch (std::exception const& error) {
    std::fprintf(stderr, "step_speed: %s\n", error.what());
    return 2;
  }
}
