#include "lib/train/diff_settings.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>

#include "lib/base/atomic_file.h"
#include "lib/base/error.h"
#include "lib/base/ini.h"
#include "lib/data/corpus.h"
#include "lib/train/settings.h"

namespace isotrain {
namespace {

constexpr char const* envelope[] = {"repro.slices", "repro.lanes", "repro.bf16", "model.precision"};
constexpr char const* layout[] = {"train.micro_batch", "model.recompute", "data.verify", "resume", "comm", "device",
                                  "dry-run",           "repro.ledger"};
constexpr char const* layout_sections[] = {"parallel.", "checkpoint.", "eval.", "log.", "run.", "device.", "debug."};

using Values = std::map<std::string, std::string>;

Values read_values(std::string const& text, std::string const& source) {
  std::istringstream stream(text);
  Values values;
  for (auto const& entry : parse_ini(stream, source)) values[entry.name] = entry.value;
  return values;
}

std::string value_of(Values const& values, std::string const& name, std::string const& otherwise) {
  auto const found = values.find(name);
  return found == values.end() ? otherwise : found->second;
}

std::optional<std::string> content(std::filesystem::path const& path) {
  try {
    return read_file(path);
  } catch (Error const&) {
    return std::nullopt;
  }
}

bool names_the_same(std::string const& setting, std::string const& first, std::string const& second) {
  std::filesystem::path a = first, b = second;
  if (setting == "data.corpus") {
    a /= data::Corpus::file_name;
    b /= data::Corpus::file_name;
  } else if (setting != "model.config") {
    return false;
  }
  auto const text = content(a);
  return text && text == content(b);
}

}  // namespace

SettingKind kind_of_setting(std::string const& name) {
  if (std::ranges::find(envelope, name) != std::end(envelope)) return SettingKind::envelope;
  if (std::ranges::find(layout, name) != std::end(layout)) return SettingKind::layout;
  bool const in_section = std::ranges::any_of(layout_sections, [&](char const* s) { return name.starts_with(s); });
  return in_section ? SettingKind::layout : SettingKind::computation;
}

std::vector<SettingDifference> compare_settings(std::string const& first, std::string const& first_source,
                                                std::string const& second, std::string const& second_source) {
  Values const a = read_values(first, first_source);
  Values const b = read_values(second, second_source);
  TrainSettings defaults;
  Settings table("", "");
  declare(table, defaults);
  auto names = table.values();
  auto const add_unknown = [&](Values const& values) {
    for (auto const& [name, value] : values) {
      auto const known = std::ranges::find(names, name, [](auto const& entry) { return entry.first; });
      if (known == names.end()) names.emplace_back(name, "not set");
    }
  };
  add_unknown(a);
  add_unknown(b);
  std::vector<SettingDifference> differences;
  for (auto const& [name, otherwise] : names) {
    std::string const in_a = value_of(a, name, otherwise), in_b = value_of(b, name, otherwise);
    if (in_a == in_b || names_the_same(name, in_a, in_b)) continue;
    differences.push_back({name, in_a, in_b, kind_of_setting(name)});
  }
  return differences;
}

}  // namespace isotrain
