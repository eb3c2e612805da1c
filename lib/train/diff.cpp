#include "lib/train/diff.h"

#include <algorithm>
#include <optional>
#include <system_error>

#include "lib/base/atomic_file.h"
#include "lib/base/digest.h"
#include "lib/base/error.h"
#include "lib/io/checkpoint.h"
#include "lib/io/checkpoint_folder.h"
#include "lib/train/diff_settings.h"
#include "lib/train/diff_steps.h"

namespace isotrain {
namespace {

bool is_there(std::filesystem::path const& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

void require_run(RunFolder const& folder) {
  if (has_run(folder)) return;
  throw UsageError("there is no run in '" + folder.root().string() + "'",
                   "it has no run.cfg, metrics.jsonl or checkpoints", "name the --run.dir of two runs");
}

/// "settings    text", the first part a column.
std::string row(std::string head, std::string const& text) {
  head.resize(std::max<std::size_t>(head.size(), 12), ' ');
  return head + text + "\n";
}

std::string in_both(std::string const& first, std::string const& second) {
  return first + " in A, " + second + " in B";
}

struct SettingsText {
  std::string text;
  bool same_computation = true;
};

SettingsText describe_settings(RunFolder const& first, RunFolder const& second) {
  for (RunFolder const* folder : {&first, &second}) {
    if (!is_there(folder->settings())) {
      return {row("settings", "not compared: '" + folder->settings().string() + "' is missing"), true};
    }
  }
  auto const differences = compare_settings(read_file(first.settings()), first.settings().string(),
                                            read_file(second.settings()), second.settings().string());
  SettingsText result;
  auto const list = [&](SettingKind kind, char const* head) {
    for (auto const& difference : differences) {
      if (difference.kind != kind) continue;
      result.text += row(head, difference.name + ": " + in_both(difference.first, difference.second));
      if (kind != SettingKind::layout) result.same_computation = false;
    }
  };
  list(SettingKind::envelope, "envelope");
  list(SettingKind::computation, "computation");
  if (result.same_computation) result.text += row("settings", "the same computation");
  list(SettingKind::layout, "layout only");
  return result;
}

struct Numerics {
  std::string name;
  std::uint64_t fingerprint = 0;
};

/// As the newest checkpoint has it.
std::optional<Numerics> numerics_of(RunFolder const& folder) {
  auto const newest = io::newest_complete_checkpoint(folder.checkpoints());
  if (!newest.path) return std::nullopt;
  io::CheckpointReader const reader(*newest.path);
  return Numerics{reader.header().numerics_class, reader.header().numerics_fingerprint};
}

std::string describe_numerics(RunFolder const& first, RunFolder const& second) {
  auto const a = numerics_of(first), b = numerics_of(second);
  if (!a || !b) return row("numerics", std::string("unknown: ") + (a ? "B" : "A") + " has no complete checkpoint");
  if (a->name != b->name) return row("numerics", "class " + in_both("'" + a->name + "'", "'" + b->name + "'"));
  if (a->fingerprint != b->fingerprint) {
    return row("numerics", "the start-up check gave " + in_both(to_hex(a->fingerprint), to_hex(b->fingerprint)) +
                               "; another model, another build, or a damaged processor");
  }
  return row("numerics", "class '" + a->name + "' and start-up check the same");
}

std::string steps_text(StepRange const& steps) {
  if (steps.count == 1) return "step " + std::to_string(steps.begin);
  return "steps " + std::to_string(steps.begin) + " to " + std::to_string(steps.end);
}

std::string describe(TensorDifference const& difference) {
  std::string text = "first in step " + std::to_string(difference.step) + ", " + name_of(difference.side) + ", " +
                     difference.what + ": " + in_both(to_hex(difference.first), to_hex(difference.second));
  if (difference.others > 0) {
    text += "; with it " + std::to_string(difference.others) + " more of that side in that step";
  }
  return text;
}

std::string describe(MetricsDifference const& difference) {
  std::string text = "first in step " + std::to_string(difference.step) + ": ";
  bool const losses = difference.first_loss != difference.second_loss;
  if (losses) text += "loss " + in_both(difference.first_loss, difference.second_loss);
  if (difference.first_fingerprint != difference.second_fingerprint) {
    text += std::string(losses ? ", " : "") + "fingerprint " +
            in_both(difference.first_fingerprint, difference.second_fingerprint);
  }
  return text;
}

/// None if not both runs have a ledger, with the reason.
std::optional<LedgerComparison> ledgers_of(RunFolder const& first, RunFolder const& second, std::string& why_not) {
  bool const a = is_there(first.ledger()), b = is_there(second.ledger());
  if (a && b) return compare_ledgers(first.ledger(), second.ledger());
  why_not = a ? "B has no ledger" : b ? "A has no ledger" : "the runs have no ledger";
  return std::nullopt;
}

std::string describe_ledgers(LedgerComparison const& ledgers) {
  if (!ledgers.same_model) return row("ledger", "of different models: the names of layers or parameters differ");
  if (ledgers.compared.count == 0) return row("ledger", "no step that both have");
  if (ledgers.difference) return row("ledger", describe(*ledgers.difference));
  return row("ledger", steps_text(ledgers.compared) + " the same");
}

std::string describe_metrics(MetricsComparison const& metrics) {
  if (metrics.compared.count == 0) return row("metrics", "no step that both have");
  std::string text =
      row("metrics", metrics.difference ? describe(*metrics.difference) : steps_text(metrics.compared) + " the same");
  if (metrics.first_last != metrics.second_last) {
    bool const a_is_longer = metrics.first_last > metrics.second_last;
    text += row("", std::string(a_is_longer ? "A" : "B") + " goes on to step " +
                        std::to_string(std::max(metrics.first_last, metrics.second_last)));
  }
  return text;
}

}  // namespace

RunComparison compare_runs(RunFolder const& first, RunFolder const& second) {
  require_run(first);
  require_run(second);
  std::string no_ledger;
  auto const ledgers = ledgers_of(first, second, no_ledger);
  auto const metrics = compare_metrics(first.metrics(), second.metrics());
  bool const other_model = ledgers && !ledgers->same_model;
  bool const differ = other_model || metrics.difference || (ledgers && ledgers->difference);
  if (metrics.compared.count == 0 && !differ && !(ledgers && ledgers->compared.count > 0)) {
    throw UsageError("the runs cannot be compared", "there is no step that both have");
  }

  auto const settings = describe_settings(first, second);
  std::string text = row("A", first.root().string()) + row("B", second.root().string()) + settings.text +
                     describe_numerics(first, second);
  text += ledgers ? describe_ledgers(*ledgers) : row("ledger", no_ledger);
  text += describe_metrics(metrics);
  text += differ ? "the runs differ" : "the runs are the same in all steps that both have";
  if (differ && !settings.same_computation) text += ", and so do settings that change the computation";
  if (differ && metrics.difference && !(ledgers && ledgers->difference)) {
    text += "; run both with --repro.ledger true to learn the layer and the side";
  }
  return {!differ, text + "\n"};
}

}  // namespace isotrain
