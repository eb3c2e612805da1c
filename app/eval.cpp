#include <algorithm>
#include <cmath>
#include <cstdio>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/comm/agree.h"
#include "lib/comm/session.h"
#include "lib/data/verify.h"
#include "lib/model/model.h"
#include "lib/train/stored_model.h"
#include "lib/train/train_plan.h"
#include "lib/train/validation.h"

namespace isotrain {
namespace {

struct EvalSettings {
  std::filesystem::path model;
  std::filesystem::path corpus;
  std::string split = "validation";
  std::int64_t windows = 0;
  std::int64_t sequence = 0;
  std::int64_t micro_batch = 0;
  std::int64_t threads = 0;
  std::string isa = "auto";
};

void declare(Settings& table, EvalSettings& s) {
  table.add("model", s.model, {.help = "Checkpoint, or run folder whose newest checkpoint is taken."});
  table.positional("model", Settings::Presence::required);
  table.add("data.corpus", s.corpus, {.help = "Corpus; if not given, the one of the run."});
  table.add("data.split", s.split, {.help = "What of it is read.", .choices = {"train", "validation"}});
  table.add("eval.windows", s.windows, {.help = "Windows read, from the first; 0: all.", .check = at_least(0)});
  table.add("train.sequence", s.sequence,
            {.help = "Length of a window; 0: that of the run.", .unit = "tokens", .check = at_least(0)});
  table.add("train.micro_batch", s.micro_batch,
            {.help = "Windows in one forward pass; 0 chooses. Never changes the bits.", .check = at_least(0)});
  table.add("device.threads", s.threads, {.help = "Threads of each rank; 0 chooses.", .check = at_least(0)});
  table.add("device.isa", s.isa,
            {.help = "Highest instruction set that kernels may use.",
             .choices = {"auto", "scalar", "avx2", "avx512", "amx"}});
}

template <class T>
void evaluate(EvalSettings const& s, StoredModel const& stored, data::Corpus const& corpus, MpiSession const& session) {
  Communicator const& comm = session.world();
  TrainSettings run = stored.settings;
  run.device = {.kind = "auto", .isa = s.isa, .threads = s.threads};
  Cpu const at = run_collectively(comm, [&] { return make_place(run, session.local_size()); });
  ModelOptions options;
  options.sequence = s.sequence > 0 ? s.sequence : run.train.sequence;
  options.micro_batch = static_cast<int>(s.micro_batch > 0 ? s.micro_batch : 1);
  options.slices = static_cast<int>(stored.reader.header().slices);
  options.yarn = parse_yarn(run.model.yarn);
  options.recompute = Recompute::full;  // nothing is kept for a backward pass

  run_collectively(comm, [&] { check_options(stored.config, options); });
  BufferPlan buffer_plan;
  auto const layout = Model<Cpu, T>::plan(stored.config, options, {}, buffer_plan);
  auto const buffers = run_collectively(comm, [&] { return Buffers(buffer_plan); });
  auto const weights = run_collectively(comm, [&] { return StoredWeights<T>(stored); });
  Shard const shard(*stored.table);
  Model<Cpu, T> model(at, stored.config, options, {}, shard, layout, buffers, weights.view());
  auto windows = run_collectively(comm, [&] {
    std::ranges::copy(stored_router_biases(stored.reader.header(), stored.config), model.router_biases().begin());
    auto const split = data::parse_split(s.split);
    auto const shards = corpus.shards_of(split);
    auto const stride = static_cast<std::size_t>(comm.size());
    for (auto i = static_cast<std::size_t>(comm.rank()); i < shards.size(); i += stride) {
      data::verify_shard(corpus, shards[i], data::Verification::full);
    }
    return data::make_split_reader(corpus, split, options.sequence);
  });
  std::int64_t const count = s.windows > 0 ? std::min(s.windows, windows.size()) : windows.size();
  ValidationShare share(comm, windows, count, options);
  while (share.read(comm)) {
    for (int pass = 0; pass < share.passes(); ++pass) {
      model.forward(0, share.batch(pass), false);
      model.losses(0, share.batch(pass), share.loss(pass));
    }
  }
  double const loss = share.mean();
  if (session.rank() == 0) {
    std::printf("%s step=%llu split=%s windows=%lld tokens=%lld loss=%.6f perplexity=%.4f\n",
                stored.path.filename().c_str(), static_cast<unsigned long long>(stored.reader.header().step),
                s.split.c_str(), static_cast<long long>(count), static_cast<long long>(count * options.sequence), loss,
                std::exp(loss));
  }
}

}  // namespace

int run_eval(std::vector<std::string> const& arguments) {
  EvalSettings settings;
  Settings table("isotrain eval MODEL", "Prints the loss of a checkpoint on a split; the same on any number of ranks.");
  declare(table, settings);
  return run_mpi_command(table, arguments, [&](MpiSession const& session) {
    Communicator const& comm = session.world();
    auto const stored = run_collectively(comm, [&] { return open_stored_model(settings.model); });
    auto const folder = settings.corpus.empty() ? stored.settings.data.corpus : settings.corpus;
    auto const corpus = run_collectively(comm, [&] {
      auto opened = data::open_corpus(folder);
      if (opened.tokenizer_hash != stored.tokenizer->hash()) {
        throw Error("'" + folder.string() + "' was prepared with another tokenizer than the model",
                    opened.tokenizer_name + " " + opened.tokenizer_hash + ", the model's is " +
                        stored.tokenizer->name() + " " + stored.tokenizer->hash());
      }
      return opened;
    });
    if (stored.reader.header().precision == "bf16") {
      evaluate<bfloat16>(settings, stored, corpus, session);
    } else {
      evaluate<float>(settings, stored, corpus, session);
    }
    return 0;
  });
}

}  // namespace isotrain
