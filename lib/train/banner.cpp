#include "lib/train/banner.h"

#include <H5public.h>

#include <algorithm>
#include <cstdio>

#include "lib/model/counts.h"
#include "lib/parallel/schedule_time.h"

namespace isotrain {
namespace {

constexpr std::size_t shown_ranks = 16;

std::string format(char const* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

std::string count(double number, char const* unit) {
  for (char const* prefix : {"", " k", " M", " G"}) {
    if (number < 1000) return format(*prefix ? "%.2f" : "%.0f", number) + prefix + " " + unit;
    number /= 1000;
  }
  return format("%.2f", number) + " T " + unit;
}

char const* name_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::mpirun:
      return "mpirun";
    case Launcher::srun:
      return "srun";
    default:
      return "started alone";
  }
}

std::string name_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::deepseek_v3:
      return "DeepSeek-V3 type";
    case Architecture::deepseek_v2:
      return "DeepSeek-V2 type";
    default:
      return "Llama type";
  }
}

std::string join(std::vector<IndexRange> const& ranges) {
  std::string text;
  for (auto const& range : ranges) text += (text.empty() ? "" : ", ") + std::to_string(range.size());
  return text;
}

/// Share of the time in which ranks of the pipeline wait, with the times of the model's FLOPs and none for messages.
double bubble(RankPlan const& rank, ScheduleSpec const& spec) {
  auto const& plan = rank.train();
  LayerCosts const costs = layer_costs(plan.config, plan.settings.train.sequence);
  std::vector<ChunkCost> chunks;
  for (auto const& layers : plan.chunks) {
    double cost = layers.begin == 0 ? costs.embedding : 0;
    for (auto l = layers.begin; l < layers.end; ++l) cost += costs.layers[static_cast<std::size_t>(l)];
    if (layers.end == plan.config.num_layers) cost += costs.head;
    chunks.push_back({.forward_s = cost, .backward_input_s = cost, .backward_weight_s = cost, .transfer_s = 0});
  }
  return simulate(spec, chunks).bubble_fraction;
}

std::string pipeline_text(RankPlan const& rank) {
  auto const& plan = rank.train();
  if (plan.degrees.pipeline == 1) return "";
  auto const spec = rank.schedule(plan.lane_samples(plan.run.tokens));
  return "pipeline " + name_of(plan.schedule) + ", " + std::to_string(spec.micro_batches) + " micro-batches, layers " +
         join(plan.chunks) + ", bubble " + format("%.1f", 100 * bubble(rank, spec)) + " % by FLOPs\n";
}

}  // namespace

std::string banner(TrainPlan const& plan, Cpu const& at, MpiSession const& session, ParameterTable const& table) {
  auto const& s = plan.settings;
  bool const bf16 = s.model.precision == "bf16";
  std::string text;
  text += "ranks   " + std::to_string(session.size()) + " (" + std::to_string(session.local_size()) + " on " +
          session.host() + "), " + std::to_string(at.threads()) + (at.threads() == 1 ? " thread" : " threads") +
          " each, " + name_of(session.launcher()) + ", " + session.library() + ", HDF5 " +
          std::to_string(H5_VERS_MAJOR) + "." + std::to_string(H5_VERS_MINOR) + "." + std::to_string(H5_VERS_RELEASE) +
          "\n";
  text += "place   cpu, " + isa_name() + ", " + processor_name() + "\n";
  text += "model   " + name_of(plan.config.architecture) + ", " + std::to_string(plan.config.num_layers) + " layers, " +
          count(static_cast<double>(table.num_parameters()), "parameters") + " (" +
          count(static_cast<double>(num_active_parameters(plan.config)), "active") + "), " + s.model.precision +
          (bf16 ? " (" + s.repro.bf16 + ")" : "") + "\n";
  text += "corpus  " + count(static_cast<double>(plan.corpus.num_tokens(data::Split::train)), "training tokens") +
          ", " + count(static_cast<double>(plan.corpus.num_tokens(data::Split::validation)), "validation tokens") +
          ", " + plan.corpus.tokenizer_name + " vocabulary of " + std::to_string(plan.corpus.vocabulary_size) + "\n";
  text += "batch   " + std::to_string(s.train.global_batch) + " sequences of " + std::to_string(s.train.sequence) +
          " tokens, micro-batch " + std::to_string(plan.model.micro_batch) + "; " + std::to_string(s.train.steps) +
          " steps, " + count(static_cast<double>(plan.run.tokens), "tokens") + "\n";
  auto const& degrees = plan.degrees;
  text += "layout  tensor " + std::to_string(degrees.tensor) + " x pipeline " + std::to_string(degrees.pipeline) +
          " x data " + std::to_string(degrees.data) +
          (plan.config.num_moe_layers() > 0 ? ", expert " + std::to_string(degrees.expert) : "") +
          (degrees.pipeline > 1 ? ", " + name_of(plan.schedule) + ", layers " + join(plan.chunks) : "") + "\n";
  text += "bits    " + std::to_string(s.repro.lanes) + " lanes, " + std::to_string(s.repro.slices) +
          " slices: the same on any layout, also on one rank\n";
  return text;
}

std::vector<RankRow> gather_rows(RankPlan const& rank, std::int64_t memory_bytes) {
  IndexRange const lanes = rank.lanes().own();
  RankRow row{.first_lane = lanes.begin, .end_lane = lanes.end, .memory_bytes = memory_bytes};
  for (auto const& chunk : rank.chunks()) {
    for (auto const& held : chunk.shard.all()) {
      row.held_parameters += held.piece->size();
      for (auto const& domain : chunk.domains) {
        std::int64_t const begin = std::max(held.offset, domain.own.begin);
        std::int64_t const end = std::min(held.offset + held.piece->size(), domain.own.end);
        row.owned_parameters += std::max<std::int64_t>(0, end - begin);
      }
    }
  }
  return rank.mesh().world().all_gather(row);
}

std::string layout_table(RankPlan const& rank, std::vector<RankRow> const& rows,
                         std::vector<std::string> const& hosts) {
  auto const& plan = rank.train();
  std::int64_t const lane_samples = plan.lane_samples(plan.run.tokens);
  std::string text = mesh_table(plan.degrees, hosts);
  text += "rank    lanes   sequences a step   parameters held    updated      memory\n";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows.size() > shown_ranks && r == shown_ranks / 2) {
      text += "...\n";
      r = rows.size() - shown_ranks / 2;
    }
    auto const& row = rows[r];
    std::string const range = std::to_string(row.first_lane) + "-" + std::to_string(row.end_lane - 1);
    char line[128];
    std::snprintf(line, sizeof line, "%4zu  %7s   %16lld   %13.2f M   %7.2f M  %8.1f MiB\n", r, range.c_str(),
                  static_cast<long long>((row.end_lane - row.first_lane) * lane_samples),
                  static_cast<double>(row.held_parameters) / 1e6, static_cast<double>(row.owned_parameters) / 1e6,
                  static_cast<double>(row.memory_bytes) / (1 << 20));
    text += line;
  }
  return text + pipeline_text(rank);
}

}  // namespace isotrain
