/// How long do the passes of a step take under each pipeline schedule, and how long should they by the model of
/// lib/parallel/schedule_time.h? Every schedule does the same work: one model, the same micro-batches. In each round
/// each schedule runs once, with every pass of a chunk timed; the model gets the mean times of the same run.
///   mpirun -np 2 schedule_speed --model benchmarks/configs/llama-256.json [--layers 8] [--micro_batches 8]
/// A row tells the layers of the chunks, what computing takes a stage on average, then time and bubble (the share of
/// all stages' time in which none computes) foreseen and measured, of the fastest round; the last column is the
/// fingerprint of the gradients. Exit code 1 if that is not the same in all rows.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <memory>
#include <numeric>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/random.h"
#include "lib/base/settings.h"
#include "lib/comm/session.h"
#include "lib/model/counts.h"
#include "lib/model/parameter_list.h"
#include "lib/parallel/schedule_time.h"
#include "lib/parallel/stages.h"
#include "lib/train/model_pipeline.h"
#include "lib/train/weights.h"

namespace isotrain::benchmarks {
namespace {

constexpr int most_chunks = 2;  // of a stage

struct Arguments {
  std::filesystem::path config;
  std::string precision = "fp32";
  int layers = 8;
  int micro_batches = 8;
  int rounds = 7;
  int threads = 1;
  std::int64_t sequence = 512;
};

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TrainPlan make_plan(Arguments const& arguments, ModelConfig const& config, ScheduleKind kind, int stages) {
  TrainSettings settings;
  settings.train.global_batch = arguments.micro_batches;
  settings.train.micro_batch = 1;
  settings.train.sequence = arguments.sequence;
  settings.repro.lanes = 1;
  ModelOptions options;
  options.sequence = arguments.sequence;
  options.slices = static_cast<int>(settings.repro.slices);
  options.balance = default_balance(config);
  int const per_stage = kind == ScheduleKind::interleaved || kind == ScheduleKind::dualpipe_v ? most_chunks : 1;
  LayerCosts const costs = layer_costs(config, arguments.sequence);
  BatchRamp const batches({.full = arguments.micro_batches, .sequence = arguments.sequence});
  RunPlan const run = plan_run(1, batches, 0);
  return {.settings = settings,
          .config_json = {},
          .config = config,
          .corpus = {},
          .model = options,
          .batches = batches,
          .run = run,
          .learning_rate = LearningRate({}, run),
          .degrees = {.pipeline = stages},
          .schedule = kind,
          .virtual_stages = per_stage,
          .chunks = assign_layers(costs.layers, costs.embedding, costs.head, stages * per_stage)};
}

/// One schedule with its own cut of the model.
template <class T>
class Contestant {
 public:
  Contestant(TrainPlan plan, Mesh const& mesh, Cpu at)
      : plan_(std::move(plan)), rank_(plan_, mesh), memory_(rank_), pipeline_(rank_, memory_, at), at_(at) {
    auto weights = memory_.optimizer_state().weight;
    for (FlatRange const& run : rank_.own()) {
      initialize(rank_.table(), weights.first(static_cast<std::size_t>(run.size())), run, 1, 0.02);
      weights = weights.subspan(static_cast<std::size_t>(run.size()));
    }
    publish_weights(rank_, memory_, at_);
    for (std::size_t c = 0; c < rank_.chunks().size(); ++c) {
      auto const& chunk = rank_.chunks()[c];
      gradients_.emplace_back(
          chunk.shard, chunk.part, chunk.domains, rank_.lanes(),
          ChunkReductions(chunk.shard, plan_.config, chunk.part, chunk.domains, rank_.lanes(), rank_.mesh()),
          memory_.layout().chunks[c].gradients, memory_.buffers());
    }
    Random const random(1, "tokens");
    for (std::int64_t i = 0; i <= plan_.settings.train.global_batch * plan_.model.sequence; ++i) {
      tokens_.push_back(static_cast<std::int32_t>(random.bits(static_cast<std::uint64_t>(i)) %
                                                  static_cast<std::uint64_t>(plan_.config.vocab_size)));
    }
  }
  Contestant(Contestant const&) = delete;
  Contestant& operator=(Contestant const&) = delete;

  struct Outcome {
    double time_s = 0;
    double busy_s = 0;  // mean over stages
    ScheduleTime foreseen;
    std::uint64_t gradients = 0;
  };
  /// The passes of a step, timed, then the gradients' fingerprint, untimed. Collective.
  Outcome run() {
    Communicator const& world = rank_.mesh().world();
    auto const spec = rank_.schedule(plan_.settings.train.global_batch);
    auto const items = make_schedule(spec, rank_.mesh().coordinates().pipeline);
    PipelineExecutor<T> executor(rank_.mesh().pipeline(), chunks(spec.micro_batches));
    costs_ = {};
    world.barrier();
    double const start = now_s();
    executor.run(spec, items);
    double const time = now_s() - start;

    Outcome outcome;
    outcome.time_s = std::ranges::max(world.all_gather(time));
    auto const all = world.all_gather(costs_);
    std::vector<ChunkCost> costs;
    for (int chunk = 0; chunk < spec.num_chunks(); ++chunk) {
      int const stage = stage_of_chunk(spec, chunk);
      auto const numbers = chunks_of_stage(spec, stage);
      auto const local = std::ranges::find(numbers, chunk) - numbers.begin();
      costs.push_back(all[static_cast<std::size_t>(stage)][static_cast<std::size_t>(local)]);
    }
    outcome.foreseen = simulate(spec, costs);
    auto const& busy = outcome.foreseen.busy_s;
    outcome.busy_s = std::accumulate(busy.begin(), busy.end(), 0.0) / spec.stages;
    outcome.gradients = fingerprint();
    return outcome;
  }

  TrainPlan const& plan() const { return plan_; }
  std::int64_t memory_bytes() const { return static_cast<std::int64_t>(memory_.plan().total_bytes()); }

 private:
  Batch batch(int micro_batch) const {
    auto const rows = static_cast<std::size_t>(plan_.model.sequence);
    std::size_t const begin = static_cast<std::size_t>(micro_batch) * rows;
    return {std::span(tokens_).subspan(begin, rows), std::span(tokens_).subspan(begin + 1, rows), 1};
  }

  /// With all samples in one lane, the gradients of a chunk begin with its first backward pass and end with its last.
  std::vector<PipelineChunk<T>> chunks(int micro_batches) {
    std::vector<PipelineChunk<T>> list;
    for (std::size_t c = 0; c < pipeline_.num_chunks(); ++c) {
      auto& model = pipeline_.model(c);
      auto& gradients = gradients_[c];
      int const slots = rank_.chunks()[c].part.slots;
      auto const timed = [this, micro_batches](double& mean_s, auto&& body) {
        double const start = now_s();
        body();
        mean_s += (now_s() - start) / micro_batches;
      };
      PipelineChunk<T> chunk;
      chunk.number = rank_.chunks()[c].number;
      chunk.slots = slots;
      chunk.input = [&model, slots](int m) { return model.input(m % slots, 1); };
      chunk.output = [&model, slots](int m) { return model.output(m % slots, 1); };
      chunk.stream_gradient = [&model, slots](int m) { return model.stream_gradient(m % slots, 1); };
      chunk.forward = [=, this, &model](int m) {
        timed(costs_[c].forward_s, [&] { model.forward(m % slots, batch(m), true); });
      };
      chunk.backward_input = [=, this, &model, &gradients](int m) {
        timed(costs_[c].backward_input_s, [&] {
          if (m == 0) gradients.begin_turn(at_);
          auto const scale = 1.0F / static_cast<float>(plan_.settings.train.global_batch);
          model.backward_input(m % slots, batch(m), gradients.where(),
                               {scale / static_cast<float>(plan_.model.sequence), scale}, loss_, {});
        });
      };
      chunk.backward_weight = [=, this, &model, &gradients](int m) {
        timed(costs_[c].backward_weight_s, [&] {
          model.backward_weight(m % slots, batch(m), gradients.where());
          if (m + 1 == micro_batches) gradients.end_turn(at_, memory_[memory_.layout().tensor_pieces]);
        });
      };
      list.push_back(std::move(chunk));
    }
    return list;
  }

  std::uint64_t fingerprint() {
    auto const sum = memory_[memory_.layout().gradient];
    TreeReductionQueue queue(memory_[memory_.layout().lane_pieces]);
    for (std::size_t c = 0; c < pipeline_.num_chunks(); ++c) {
      auto const& domains = rank_.chunks()[c].domains;
      for (std::size_t d = 0; d < domains.size(); ++d) {
        gradients_[c].start(queue, at_, d, rank_.part_of(sum, c, d));
      }
    }
    queue.finish();
    for (auto& gradients : gradients_) gradients.reset();
    return hash_weights(rank_, at_, sum);
  }

  TrainPlan plan_;
  RankPlan rank_;
  TrainMemory<T> memory_;
  ModelPipeline<T> pipeline_;
  std::vector<GradientSum> gradients_;
  Cpu at_;
  std::vector<std::int32_t> tokens_;
  std::array<double, 1> loss_ = {};
  std::array<ChunkCost, most_chunks> costs_ = {};  // of this rank's chunks
};

std::string layers_of(TrainPlan const& plan) {
  std::string text;
  for (auto const& chunk : plan.chunks) text += (text.empty() ? "" : ",") + std::to_string(chunk.size());
  return text;
}

template <class T>
int measure(Arguments const& arguments, ModelConfig const& config, MpiSession const& session) {
  Mesh const mesh(session.world(), {.pipeline = session.size()});
  Cpu const at(arguments.threads);
  std::deque<Contestant<T>> contestants;
  for (auto const kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                          ScheduleKind::zero_bubble, ScheduleKind::dualpipe_v}) {
    contestants.emplace_back(make_plan(arguments, config, kind, session.size()), mesh, at);
  }
  std::vector<typename Contestant<T>::Outcome> best(contestants.size());
  for (int round = -1; round < arguments.rounds; ++round) {
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      auto const outcome = contestants[i].run();
      if (round <= 0 || outcome.time_s < best[i].time_s) best[i] = outcome;
    }
  }
  bool const same =
      std::ranges::all_of(best, [&](auto const& outcome) { return outcome.gradients == best.front().gradients; });
  if (session.rank() != 0) return 0;
  std::printf("%s, %d layers, %s, %d stages x %d threads, %d micro-batches of %lld tokens, messages of %.2f MiB\n",
              arguments.config.stem().c_str(), config.num_layers, arguments.precision.c_str(), session.size(),
              arguments.threads, arguments.micro_batches, static_cast<long long>(arguments.sequence),
              static_cast<double>(arguments.sequence * config.hidden_size) * sizeof(T) / (1 << 20));
  std::printf("%-12s %-16s %9s %11s %8s %11s %8s %7s  %s\n", "schedule", "layers", "busy ms", "foreseen ms", "bubble",
              "measured ms", "bubble", "ratio", "gradients");
  for (std::size_t i = 0; i < best.size(); ++i) {
    auto const& b = best[i];
    std::printf("%-12s %-16s %9.1f %11.1f %6.1f %% %11.1f %6.1f %% %7.3f  %016llx\n",
                name_of(contestants[i].plan().schedule).c_str(), layers_of(contestants[i].plan()).c_str(),
                b.busy_s * 1e3, b.foreseen.makespan_s * 1e3, 100 * b.foreseen.bubble_fraction, b.time_s * 1e3,
                100 * (1 - b.busy_s / b.time_s), b.time_s / b.foreseen.makespan_s,
                static_cast<unsigned long long>(b.gradients));
  }
  std::printf("%s\n", same ? "bits ok" : "GRADIENTS DIFFER");
  return same ? 0 : 1;
}

int run(std::vector<std::string> const& texts, MpiSession const& session) {
  Arguments arguments;
  Settings settings("schedule_speed", "Measures the passes of a step under each pipeline schedule.");
  settings.add("model", arguments.config, {.help = "config.json of the model"});
  settings.add("precision", arguments.precision, {.help = "of weights and activations", .choices = {"fp32", "bf16"}});
  settings.add("layers", arguments.layers, {.help = "of the model, whatever its config says", .check = at_least(1)});
  settings.add("micro_batches", arguments.micro_batches, {.help = "of one sample each", .check = at_least(1)});
  settings.add("sequence", arguments.sequence, {.help = "tokens of a sample", .check = at_least(1)});
  settings.add("threads", arguments.threads, {.help = "threads", .check = at_least(1)});
  settings.add("rounds", arguments.rounds, {.help = "measurements of each schedule", .check = at_least(1)});
  if (settings.parse(texts) != Settings::Request::run) {
    std::fputs(settings.help().c_str(), stdout);
    return 0;
  }
  auto config = read_model_config(arguments.config);
  config.num_layers = arguments.layers;
  return arguments.precision == "bf16" ? measure<bfloat16>(arguments, config, session)
                                       : measure<float>(arguments, config, session);
}

}  // namespace
}  // namespace isotrain::benchmarks

int main(int argc, char** argv) {
  std::vector<std::string> const texts(argv + 1, argv + argc);
  isotrain::MpiSession const session(argc, argv);
  return session.run([&] { return isotrain::benchmarks::run(texts, session); });
}
