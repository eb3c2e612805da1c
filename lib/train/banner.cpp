#include "lib/train/banner.h"

#include <H5public.h>

#include <cstdio>

#include "lib/model/counts.h"
#include "lib/parallel/lanes.h"

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
  text += "bits    " + std::to_string(s.repro.lanes) + " lanes, " + std::to_string(s.repro.slices) +
          " slices: the same on 1 to " + std::to_string(s.repro.lanes) + " ranks\n";
  return text;
}

std::string layout_table(TrainPlan const& plan, ParameterTable const& table,
                         std::vector<std::int64_t> const& memory_bytes) {
  int const ranks = static_cast<int>(memory_bytes.size());
  auto const lanes = lanes_of_ranks(plan.settings.repro.lanes, ranks);
  std::int64_t const lane_samples = plan.lane_samples(plan.run.tokens);
  std::string text = "rank    lanes   sequences a step   optimizer state of   memory\n";
  for (std::size_t r = 0; r < memory_bytes.size(); ++r) {
    if (memory_bytes.size() > shown_ranks && r == shown_ranks / 2) {
      text += "...\n";
      r = memory_bytes.size() - shown_ranks / 2;
    }
    std::string const range = std::to_string(lanes[r].begin) + "-" + std::to_string(lanes[r].end - 1);
    char line[128];
    std::snprintf(line, sizeof line, "%4zu  %7s   %16lld   %14.2f M    %8.1f MiB\n", r, range.c_str(),
                  static_cast<long long>(lanes[r].size() * lane_samples),
                  static_cast<double>(flat_range(table, ranks, static_cast<int>(r)).size()) / 1e6,
                  static_cast<double>(memory_bytes[r]) / (1 << 20));
    text += line;
  }
  return text;
}

}  // namespace isotrain
