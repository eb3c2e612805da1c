#include "lib/train/run.h"

#include <chrono>
#include <iostream>
#include <optional>
#include <type_traits>

#include "lib/base/log.h"
#include "lib/base/process.h"
#include "lib/comm/agree.h"
#include "lib/comm/random_delay.h"
#include "lib/comm/watchdog.h"
#include "lib/data/verify.h"
#include "lib/model/counts.h"
#include "lib/train/banner.h"
#include "lib/train/kernel_rate.h"
#include "lib/train/metrics.h"
#include "lib/train/numerics.h"
#include "lib/train/progress.h"
#include "lib/train/resume.h"
#include "lib/train/run_folder.h"
#include "lib/train/stop.h"
#include "lib/train/trainer.h"

namespace isotrain {
namespace {

using Clock = std::chrono::steady_clock;

template <class T>
constexpr auto precision_of = std::is_same_v<T, float> ? kernels::ProductInput::fp32 : kernels::ProductInput::bf16;

/// What the program holds before it allocates what was planned: code, libraries, MPI's buffers, kernels' workspaces.
std::size_t program_bytes(Cpu const& at) {
  auto const resident = resident_memory();
  auto const workspaces = static_cast<std::size_t>(at.threads() * kernels::workspace_bytes_per_thread);
  return (resident ? resident->now_bytes : 0) + workspaces;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double mean(std::vector<double> const& values) {
  double sum = 0;
  for (double const value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

/// The loop over steps and all that happens between them.
template <class T>
class Run {
 public:
  Run(RankPlan const& rank, std::string const& settings_ini, std::vector<std::uint8_t> tokenizer, Cpu const& at,
      MpiSession const& session, Log& log)
      : rank_(rank),
        plan_(rank.train()),
        settings_ini_(settings_ini),
        tokenizer_(std::move(tokenizer)),
        at_(at),
        comm_(session.world()),
        host_(session.host()),
        log_(log),
        folder_(plan_.settings.run.dir),
        stop_(plan_.settings.run.max_seconds),
        numerics_(
            check_numerics(at, comm_, session.host(), model_products(plan_.config, plan_.model, precision_of<T>))),
        trainer_(rank, at) {
    begin_or_resume();
    run_collectively(comm_, [&] { log_.open(folder_.logs()); });
    if (!root()) return;
    std::string const text = banner(plan_, at_, session, rank_.table());
    std::cout << text << std::flush;
    log_.info("begins at step " + std::to_string(trainer_.steps_done()) + "\n" + text + settings_ini_);
  }

  int loop() {
    auto const& s = plan_.settings;
    double const flops = train_flops_per_token(plan_.config, s.train.sequence);
    double const rate = measured_kernel_rate<T>(at_, comm_);
    Progress progress(std::cout,
                      {.steps = s.train.steps, .every = s.log.every, .columns = root() ? terminal_columns() : 0});
    std::optional<MetricsFile> metrics;
    std::optional<LedgerWriter> ledger;
    run_collectively(comm_, [&] {
      if (!root()) return;
      auto const warn = [&](std::string const& message) { log_.warning(message); };
      metrics.emplace(folder_.metrics(), warn);
      if (s.repro.ledger) ledger.emplace(folder_.ledger(), ledger_header(rank_), warn);
    });
    Watchdog const watchdog(comm_, {.limit_s = s.debug.timeout_s, .folder = folder_.watchdog()});
    auto const start = Clock::now();
    std::int64_t const first = trainer_.steps_done();
    std::int64_t saved = first;
    bool stopping = false;

    while (trainer_.steps_done() < s.train.steps && !stopping) {
      auto const step_start = Clock::now();
      StepOutcome const outcome = trainer_.step();
      double const step_s = seconds_since(step_start);
      loss_ = outcome.loss;
      double const tokens_per_s = static_cast<double>(outcome.step_tokens) / step_s;
      StepMetrics line{.step = outcome.step,
                       .tokens = outcome.tokens,
                       .loss = outcome.loss,
                       .grad_norm = outcome.gradient_norm,
                       .lr = outcome.learning_rate,
                       .tokens_per_s = tokens_per_s,
                       .step_s = step_s,
                       .mfu = tokens_per_s * flops / rate,
                       .fingerprint = outcome.fingerprint,
                       .more = {},
                       .lists = {}};
      if (plan_.config.num_moe_layers() > 0) {
        line.more = {{"balance_loss", outcome.balance_loss}, {"max_vio", mean(outcome.max_violation)}};
        line.lists = {{"max_vio_by_layer", outcome.max_violation}};
      }
      bool const last = outcome.step == s.train.steps;
      if (s.eval.every > 0 && (outcome.step % s.eval.every == 0 || last)) {
        double const loss = trainer_.validate();
        line.more.emplace_back("eval_loss", loss);
        if (root()) progress.line("step " + std::to_string(outcome.step) + "  validation loss " + std::to_string(loss));
      }
      if (s.debug.check_collectives) rank_.mesh().check_signatures();
      if (s.debug.check_replicas > 0 && outcome.step % s.debug.check_replicas == 0) trainer_.check_replicas(host_);
      if (root()) {
        metrics->append(line);
        if (ledger) append(*ledger, *outcome.ledger);
        warn_of_unused(outcome.unused);
        double const left = seconds_since(start) / static_cast<double>(outcome.step - first) *
                            static_cast<double>(s.train.steps - outcome.step);
        progress.show({outcome.step, outcome.loss, tokens_per_s, line.mfu, left});
      }
      if (s.checkpoint.every > 0 && outcome.step % s.checkpoint.every == 0 && !last) {
        if (save_if_possible()) saved = outcome.step;
      }
      stopping = comm_.any(stop_.requested());
    }

    if (saved != trainer_.steps_done()) save();
    log_memory();
    bool const early = trainer_.steps_done() < s.train.steps;
    if (root()) {
      if (early) progress.line("stopped early: " + stop_reason());
      progress.done(trainer_.steps_done(), trainer_.tokens_done(), loss_, trainer_.fingerprint());
    }
    return early ? exit_stopped_early : 0;
  }

 private:
  static void append(LedgerWriter& ledger, LedgerStep const& step) {
    ledger.append(step.step, step.activation, step.activation_gradient, step.weight_gradient, step.weight,
                  step.fingerprint);
  }

  void warn_of_unused(std::vector<std::string> const& names) {
    if (names.empty()) return;
    log_.warning(std::to_string(names.size()) + " parameters got no gradient in the first step, the first of them is " +
                 names.front());
  }

  bool root() const { return comm_.rank() == 0; }

  std::string stop_reason() const { return stop_.reason().empty() ? "another rank was asked to" : stop_.reason(); }

  /// False if the checkpoint is damaged and another one will do.
  bool restored_from(std::filesystem::path const& path) {
    auto const checkpoint = run_collectively(comm_, [&] {
      io::CheckpointReader reader(path);
      check_same_run(reader.header(), plan_, rank_.table(), tokenizer_);
      return reader;
    });
    try {
      trainer_.restore(checkpoint);
    } catch (AgreedError const& error) {
      if (plan_.settings.resume != "auto") throw;
      if (root()) log_.warning(std::string("'") + path.string() + "' is not taken: " + error.what());
      return false;
    }
    if (root()) log_.info("resumed from " + path.string());
    if (checkpoint.header().numerics_fingerprint != numerics_) {
      log_.warning("the start-up check gives other results than where the checkpoint was written (numerics class '" +
                   checkpoint.header().numerics_class + "'): the run will go on, not with the bits it would have had");
    }
    return true;
  }

  void begin_or_resume() {
    auto const& s = plan_.settings;
    auto path = find_checkpoint(comm_, s.resume, folder_, log_);
    while (path && !restored_from(*path)) path = find_checkpoint(comm_, s.resume, folder_, log_, path);
    run_collectively(comm_, [&] {
      if (!root()) return;
      if (s.resume == "none") {
        create_run_folder(folder_, settings_ini_);
      } else {
        resume_run_folder(folder_, settings_ini_, trainer_.steps_done());
        loss_ = last_loss(folder_.metrics());  // for a run that has no step left
      }
    });
  }

  io::CheckpointHeader header() const {
    auto const& s = plan_.settings;
    io::CheckpointHeader header;
    header.seed = static_cast<std::uint64_t>(s.train.seed);
    header.slices = s.repro.slices;
    header.lanes = s.repro.lanes;
    header.bf16 = s.repro.bf16;
    header.precision = s.model.precision;
    header.numerics_class = "cpu";
    header.numerics_fingerprint = numerics_;
    header.config_json = plan_.config_json;
    header.settings_ini = settings_ini_;
    header.tokenizer = tokenizer_;
    return header;
  }

  void log_memory() {
    auto const resident = resident_memory();
    if (!resident) return;
    log_.info("peak resident memory " + std::to_string(resident->peak_bytes >> 20) + " MiB, " +
              std::to_string((program_bytes_ + trainer_.planned_bytes()) >> 20) + " MiB foreseen");
  }

  void save() {
    auto const path = trainer_.save(folder_.checkpoints(), header());
    log_.info("wrote " + path.string());
  }

  /// A run is worth more than one of its checkpoints: what stands in the way is reported, and the run goes on.
  bool save_if_possible() {
    try {
      save();
      return true;
    } catch (AgreedError const& error) {
      if (root()) log_.warning(std::string("no checkpoint at this step: ") + error.what());
      return false;
    }
  }

  RankPlan const& rank_;
  TrainPlan const& plan_;
  std::string const& settings_ini_;
  std::vector<std::uint8_t> tokenizer_;
  Cpu at_;
  Communicator const& comm_;
  std::string host_;
  Log& log_;
  RunFolder folder_;
  StopRequest stop_;
  std::uint64_t numerics_;
  std::size_t program_bytes_ = program_bytes(at_);
  Trainer<T> trainer_;
  double loss_ = 0;  // of the last step
};

template <class T>
int dry_run(RankPlan const& rank, Cpu const& at, MpiSession const& session) {
  auto const& plan = rank.train();
  check_numerics(at, session.world(), session.host(), model_products(plan.config, plan.model, precision_of<T>));
  BufferPlan buffers;
  buffers.add<std::byte>("program", "code, libraries, MPI, kernels", static_cast<std::int64_t>(program_bytes(at)));
  TrainLayout<T>::plan(rank, buffers);
  auto const rows = gather_rows(rank, static_cast<std::int64_t>(buffers.total_bytes()));
  auto const hosts = session.world().all_gather(session.host());
  if (session.rank() == 0) {
    std::cout << banner(plan, at, session, rank.table()) << layout_table(rank, rows, hosts) << "memory of rank 0\n"
              << buffers.table() << std::flush;
  }
  return 0;
}

template <class T>
int run_with(RankPlan const& rank, std::string const& settings_ini, std::vector<std::uint8_t> tokenizer, Cpu const& at,
             MpiSession const& session, Log& log) {
  if (rank.train().settings.dry_run) return dry_run<T>(rank, at, session);
  return Run<T>(rank, settings_ini, std::move(tokenizer), at, session, log).loop();
}

}  // namespace

int run_training(TrainSettings const& settings, std::string const& settings_ini, MpiSession const& session) {
  Communicator const& comm = session.world();
  Log log(comm.rank(), comm.size(), session.host());
  TrainPlan const plan = run_collectively(comm, [&] { return make_train_plan(settings, comm.size()); });
  Cpu const at = run_collectively(comm, [&] { return make_place(settings, session.local_size()); });
  agree_on_same(comm, settings_ini, "settings");
  check_collectives(settings.debug.check_collectives);
  delay_operations(settings.debug.random_delays_ms, static_cast<std::uint64_t>(comm.rank()));
  agree_on_same(comm, plan.config_json, "the files that --model.config names");

  Mesh const mesh(comm, plan.degrees);
  RankPlan const rank(plan, mesh);
  IndexRange const lanes = rank.lanes().own();
  bool const quick = settings.dry_run || settings.data.verify == "quick";
  data::open_corpus(comm, settings.data.corpus, {lanes.begin, lanes.size(), settings.repro.lanes},
                    settings.train.sequence, plan.config.vocab_size,
                    quick ? data::Verification::quick : data::Verification::full);
  auto const tokenizer = run_collectively(comm, [&] {
    auto const bytes = data::open_tokenizer(plan.corpus)->serialize();
    auto const* first = reinterpret_cast<std::uint8_t const*>(bytes.data());
    return std::vector<std::uint8_t>(first, first + bytes.size());
  });
  if (comm.rank() == 0) {
    for (auto const& note : plan.config.notes) log.info(note);
  }
  return settings.model.precision == "bf16" ? run_with<bfloat16>(rank, settings_ini, tokenizer, at, session, log)
                                            : run_with<float>(rank, settings_ini, tokenizer, at, session, log);
}

}  // namespace isotrain
