#include "lib/train/train_plan.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <thread>

#include "lib/base/atomic_file.h"
#include "lib/base/error.h"
#include "lib/data/window_reader.h"
#include "lib/model/counts.h"
#include "lib/parallel/stages.h"

namespace isotrain {
namespace {

// With few tokens in a forward pass products are skinny, with many the activations leave the caches.
constexpr std::int64_t preferred_tokens = 2048;

constexpr std::int64_t most_threads = 1024;

// Each run costs a few messages and a copy of the activations where it ends; the last one's sums are not hidden.
constexpr std::int64_t least_run_parameters = 1 << 20;
constexpr std::int64_t most_runs = 4;

void require(bool given, char const* setting, char const* what) {
  if (!given) throw UsageError(std::string("--") + setting + " is missing", what, "see isotrain train --help");
}

std::string divisors(std::int64_t number) {
  std::string text;
  for (std::int64_t d = 1; d <= number; ++d) {
    if (number % d == 0) text += (text.empty() ? "" : ", ") + std::to_string(d);
  }
  return text;
}

void check_divides(std::int64_t batch, std::int64_t lanes, char const* setting) {
  if (batch % lanes == 0) return;
  std::int64_t const below = batch / lanes * lanes;
  throw UsageError(std::string("--") + setting + " " + std::to_string(batch) + " cannot be cut into " +
                       std::to_string(lanes) + " lanes",
                   "every lane takes the same number of sequences",
                   "use " + (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + lanes) +
                       ", or --repro.lanes from " + divisors(batch));
}

std::int64_t choose_micro_batch(TrainSettings const& s) {
  std::int64_t samples = s.train.global_batch / s.repro.lanes;
  // With a ramp every batch of a lane is a multiple of the micro-batch, so the first one must be, too.
  if (s.train.ramp_batch > 0) samples = std::min(samples, s.train.ramp_batch / s.repro.lanes);
  if (s.train.micro_batch == 0) {
    std::int64_t best = 1;
    for (std::int64_t b = 1; b <= samples; ++b) {
      bool const divides = samples % b == 0 && s.train.global_batch / s.repro.lanes % b == 0;
      if (divides && b * s.train.sequence <= preferred_tokens) best = b;
    }
    return best;
  }
  if (samples % s.train.micro_batch != 0) {
    throw UsageError(
        "--train.micro_batch " + std::to_string(s.train.micro_batch) + " does not divide the " +
            std::to_string(samples) + " sequences of a lane",
        std::to_string(s.train.global_batch) + " sequences a step over " + std::to_string(s.repro.lanes) + " lanes",
        "use one of " + divisors(samples));
  }
  return s.train.micro_batch;
}

ModelOptions make_model_options(TrainSettings const& s, ModelConfig const& config, std::int64_t micro_batch) {
  ModelOptions options;
  options.sequence = s.train.sequence;
  options.micro_batch = static_cast<int>(micro_batch);
  options.slices = static_cast<int>(s.repro.slices);
  options.recompute = s.model.recompute == "full"        ? Recompute::full
                      : s.model.recompute == "selective" ? Recompute::selective
                                                         : Recompute::none;
  options.yarn = parse_yarn(s.model.yarn);
  options.balance.expert_alpha =
      static_cast<float>(s.balance.expert_alpha < 0 ? config.aux_loss_alpha : s.balance.expert_alpha);
  options.balance.device_alpha = static_cast<float>(s.balance.device_alpha);
  options.balance.comm_alpha = static_cast<float>(s.balance.comm_alpha);
  options.balance.device_groups = static_cast<int>(s.balance.device_groups);
  options.balance.max_devices = static_cast<int>(s.balance.max_devices);
  if (config.num_experts > 0 && config.num_experts % options.balance.device_groups != 0) {
    throw UsageError("--balance.device_groups " + std::to_string(options.balance.device_groups) +
                         " does not divide the " + std::to_string(config.num_experts) + " experts",
                     "", "use one of " + divisors(config.num_experts));
  }
  check_options(config, options);
  return options;
}

Degrees choose_degrees(TrainSettings const& s, ModelConfig const& config, int virtual_stages, int ranks) {
  auto const degree = [](std::int64_t value) { return static_cast<int>(std::min<std::int64_t>(value, 1 << 30)); };
  return resolve_degrees({.tensor = degree(s.parallel.tensor),
                          .pipeline = degree(s.parallel.pipeline),
                          .data = degree(s.parallel.data),
                          .expert = degree(s.parallel.expert)},
                         ranks,
                         {.slices = s.repro.slices,
                          .lanes = s.repro.lanes,
                          .experts = config.num_moe_layers() > 0 ? config.num_experts : 0,
                          .layers = config.num_layers,
                          .virtual_stages = virtual_stages});
}

int choose_virtual_stages(TrainSettings const& s, ScheduleKind kind) {
  if (s.parallel.virtual_stages > 0)
    return static_cast<int>(std::min<std::int64_t>(s.parallel.virtual_stages, 1 << 20));
  return kind == ScheduleKind::dualpipe_v || kind == ScheduleKind::interleaved ? 2 : 1;
}

/// Runs of layers without a pipeline: of more than one, the gradients of one are summed over data-parallel ranks while
/// the earlier ones compute.
int choose_runs(TrainSettings const& s, ModelConfig const& config, Degrees const& degrees) {
  bool const asked = s.parallel.virtual_stages > 0 || !s.parallel.layers.empty() || s.parallel.schedule != "1f1b";
  if (asked || !s.parallel.overlap || degrees.pipeline > 1 || degrees.data == 1) return 1;
  if (config.tied_embeddings) return 1;  // the first and the last run would each have the embedding
  auto const most = std::min<std::int64_t>(most_runs, config.num_layers);
  return static_cast<int>(
      std::clamp<std::int64_t>(num_parameters(config) / degrees.tensor / least_run_parameters, 1, most));
}

std::vector<IndexRange> cut_layers(TrainSettings const& s, ModelConfig const& config, int num_chunks) {
  if (!s.parallel.layers.empty()) return parse_layer_cut(s.parallel.layers, config.num_layers, num_chunks);
  LayerCosts const costs = layer_costs(config, s.train.sequence);
  return assign_layers(costs.layers, costs.embedding, costs.head, num_chunks);
}

std::string read_config(std::filesystem::path const& path) try { return read_file(path); } catch (Error const& error) {
  throw Error(error.what(), "", "--model.config names a Hugging Face config.json");
}

/// A step that reads a sample twice would be a smaller batch in disguise.
void check_batch_fits(data::Corpus const& corpus, TrainSettings const& s) {
  std::int64_t windows = 0;
  for (auto const& shard : corpus.shards_of(data::Split::train)) {
    windows += data::num_windows(shard.num_tokens, s.train.sequence);
  }
  // Without a single window the lanes' own check says more.
  if (windows == 0 || windows >= s.train.global_batch) return;
  throw Error("the training text of '" + corpus.folder.string() + "' is smaller than a batch",
              "it has " + std::to_string(windows) + " sequences of " + std::to_string(s.train.sequence) +
                  " tokens, --train.global_batch is " + std::to_string(s.train.global_batch) + " sequences",
              "use a smaller batch, or prepare more text");
}

}  // namespace

Yarn parse_yarn(std::string const& name) {
  return name == "on" ? Yarn::on : name == "off" ? Yarn::off : Yarn::automatic;
}

Bf16Class parse_bf16_class(std::string const& name) {
  return name == "pairs" ? Bf16Class::pairs : Bf16Class::tiles;
}

TrainPlan make_train_plan(TrainSettings const& s, int ranks) {
  require(!s.model.config.empty(), "model.config", "the model's Hugging Face config.json");
  require(!s.data.corpus.empty(), "data.corpus", "the folder that isotrain prepare wrote");
  require(!s.run.dir.empty() || s.dry_run, "run.dir", "the folder for metrics, logs and checkpoints");
  check_divides(s.train.global_batch, s.repro.lanes, "train.global_batch");
  if (s.train.ramp_batch > 0) check_divides(s.train.ramp_batch, s.repro.lanes, "train.ramp_batch");
  std::int64_t const micro_batch = choose_micro_batch(s);

  std::string config_json = read_config(s.model.config);
  ModelConfig config = parse_model_config(config_json, s.model.config.string());
  check_slices(config, static_cast<int>(s.repro.slices));
  ScheduleKind schedule = parse_schedule(s.parallel.schedule);
  int virtual_stages = choose_virtual_stages(s, schedule);
  Degrees const degrees = choose_degrees(s, config, virtual_stages, ranks);
  if (int const runs = choose_runs(s, config, degrees); runs > 1) {
    schedule = ScheduleKind::interleaved;
    virtual_stages = runs;
  }
  check_schedule({schedule, degrees.pipeline, virtual_stages, 1});
  auto chunks = cut_layers(s, config, degrees.pipeline * virtual_stages);
  if (s.train.sequence > config.max_positions) {
    throw UsageError("--train.sequence " + std::to_string(s.train.sequence) + " is too long for the model",
                     "max_position_embeddings is " + std::to_string(config.max_positions));
  }
  data::Corpus corpus = data::open_corpus(s.data.corpus);

  check_batch_fits(corpus, s);
  if (s.train.steps > std::numeric_limits<std::int64_t>::max() / s.train.global_batch / s.train.sequence) {
    throw UsageError("the run has more tokens than can be counted",
                     "--train.steps times --train.global_batch times --train.sequence must be below 2^63");
  }

  BatchRamp const batches({.start = s.train.ramp_batch,
                           .full = s.train.global_batch,
                           .ramp_tokens = s.train.ramp_tokens,
                           .multiple = s.repro.lanes * micro_batch,
                           .sequence = s.train.sequence});
  RunPlan const run = plan_run(s.train.steps, batches, s.optim.warmup);
  LearningRate const rate({.schedule = s.optim.schedule,
                           .peak = s.optim.lr,
                           .floor = s.optim.floor,
                           .step_first = s.optim.step_first,
                           .step_second = s.optim.step_second,
                           .step_factor = s.optim.step_factor,
                           .decay_fraction = s.optim.decay_fraction,
                           .decay_shape = s.optim.decay_shape},
                          run);
  ModelOptions const model = make_model_options(s, config, micro_batch);
  return {.settings = s,
          .config_json = std::move(config_json),
          .config = std::move(config),
          .corpus = std::move(corpus),
          .model = model,
          .batches = batches,
          .run = run,
          .learning_rate = rate,
          .degrees = degrees,
          .schedule = schedule,
          .virtual_stages = virtual_stages,
          .chunks = std::move(chunks)};
}

Cpu make_place(TrainSettings const& s, int ranks_here) {
  if (s.device.kind == "cuda") {
    throw UsageError("--device cuda cannot be used", "this build has no CUDA place", "use --device cpu or auto");
  }
  if (s.comm == "nccl") {
    throw UsageError("--comm nccl cannot be used", "this build has no CUDA place", "use --comm mpi or auto");
  }
  std::int64_t threads = s.device.threads;
  char const* source = "--device.threads";
  if (char const* const given = std::getenv("OMP_NUM_THREADS"); given && threads == 0) {
    threads = std::atoi(given);
    source = "OMP_NUM_THREADS";
  }
  if (threads > most_threads) {
    throw UsageError(std::string(source) + " is out of range",
                     std::to_string(threads) + ", it may be at most " + std::to_string(most_threads));
  }
  if (threads < 1) {
    threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / std::max(1, ranks_here));
  }
  return Cpu(static_cast<int>(threads), parse_bf16_class(s.repro.bf16), isa_from_name(s.device.isa));
}

}  // namespace isotrain
