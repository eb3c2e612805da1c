// Settings as text for people and files: --help, --dump-defaults, run.cfg.

#include <algorithm>
#include <sstream>

#include "lib/base/settings.h"

namespace isotrain {
namespace {

constexpr std::size_t columns = 100;
constexpr std::size_t help_column = 36;

std::string section_of(std::string const& name) {
  std::size_t const dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

std::string key_of(std::string const& name) {
  return name.substr(name.rfind('.') + 1);
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string join(std::vector<std::string> const& texts, std::string const& separator) {
  std::string all;
  for (std::string const& text : texts) all += (&text == &texts.front() ? "" : separator) + text;
  return all;
}

/// `left` and, from help_column on, `text` broken at spaces; on lines of their own if `left` is too long.
std::string row(std::string const& left, std::string const& text) {
  std::string result = "  " + left;
  std::size_t at = result.size();
  auto const start_line = [&] {
    result += '\n';
    result.append(help_column, ' ');
    at = help_column;
  };
  if (at + 2 > help_column) {
    start_line();
  } else {
    result.append(help_column - at, ' ');
    at = help_column;
  }
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (at > help_column && at + 1 + word.size() > columns) start_line();
    if (at > help_column) result += ' ', ++at;
    result += word;
    at += word.size();
  }
  return result + "\n";
}

std::string placeholder(ValueKind kind, std::vector<std::string> const& choices, std::string const& initial) {
  std::string const all = join(choices, "|");
  if (!all.empty() && all.size() <= 24) return " " + all;
  switch (kind) {
    case ValueKind::flag:
      return initial == "false" ? "" : " true|false";
    case ValueKind::integer:
      return " N";
    case ValueKind::number:
      return " X";
    case ValueKind::path:
      return " PATH";
    case ValueKind::list:
      return " TEXT...";
    case ValueKind::text:
      return all.empty() ? " TEXT" : " NAME";
  }
  return "";
}

}  // namespace

std::string Settings::help() const {
  std::string usage = "Usage: " + usage_;
  for (auto const& [name, presence] : positionals_) {
    std::string const word = upper(name) + (find(name)->kind == ValueKind::list ? "..." : "");
    usage += presence == Presence::required ? " " + word : " [" + word + "]";
  }
  std::string result = usage + " [--config FILE] [--section.key value ...]\n\n" + description_ + "\n\n";
  result += row("--config FILE", "Reads settings from an INI file; the command line wins over it.");
  result += row("--dump-defaults", "Prints every setting with its default as such a file.");
  result += row("--help", "Prints this text.");

  std::vector<std::string> sections;
  for (Entry const& entry : entries_) {
    std::string const section = section_of(entry.name);
    if (std::find(sections.begin(), sections.end(), section) == sections.end()) sections.push_back(section);
  }
  std::stable_partition(sections.begin(), sections.end(), [](std::string const& section) { return section.empty(); });
  for (std::string const& section : sections) {
    if (!section.empty()) result += "\n" + section + "\n";
    for (Entry const& entry : entries_) {
      if (section_of(entry.name) != section) continue;
      std::string const initial = join(entry.defaults, ", ");
      std::string left = "--" + entry.name + (entry.alias.empty() ? "" : ", --" + entry.alias);
      std::string const value = placeholder(entry.kind, entry.choices, initial);
      std::string text = entry.help;
      if (join(entry.choices, "|").size() > 24) text += " One of " + join(entry.choices, ", ") + ".";
      std::vector<std::string> facts;
      if (!entry.unit.empty()) facts.push_back(entry.unit);
      if (!initial.empty() && !(entry.kind == ValueKind::flag && initial == "false")) {
        facts.push_back("default " + initial);
      }
      if (!facts.empty()) text += " [" + join(facts, ", ") + "]";
      result += row(left + value, text);
    }
  }
  return result;
}

std::string Settings::to_ini(std::function<Texts(Entry const&)> const& texts, Comments comments) const {
  // Keys without a section can only stand before the first one.
  std::vector<Entry const*> order;
  for (Entry const& entry : entries_) order.push_back(&entry);
  std::vector<std::string> sections{""};
  for (Entry const& entry : entries_) {
    std::string const section = section_of(entry.name);
    if (std::find(sections.begin(), sections.end(), section) == sections.end()) sections.push_back(section);
  }
  auto const place = [&](Entry const* entry) {
    return std::find(sections.begin(), sections.end(), section_of(entry->name));
  };
  std::stable_sort(order.begin(), order.end(), [&](auto const* a, auto const* b) { return place(a) < place(b); });

  std::string result, section;
  for (Entry const* const entry : order) {
    if (section_of(entry->name) != section) {
      section = section_of(entry->name);
      result += (result.empty() ? "[" : "\n[") + section + "]\n";
    }
    if (comments == Comments::yes) {
      result += "# " + entry->help + (entry->unit.empty() ? "" : " [" + entry->unit + "]") + "\n";
    }
    Texts const values = texts(*entry);
    std::string const start = key_of(entry->name) + " =";
    if (values.empty()) result += start + "\n";
    for (std::string const& value : values) result += start + " " + to_ini_value(value) + "\n";
  }
  return result;
}

std::string Settings::dump() const {
  return to_ini([](Entry const& entry) { return entry.read(); }, Comments::no);
}

std::string Settings::dump_defaults() const {
  return to_ini([](Entry const& entry) { return entry.defaults; }, Comments::yes);
}

std::vector<std::pair<std::string, std::string>> Settings::values() const {
  std::vector<std::pair<std::string, std::string>> result;
  for (Entry const& entry : entries_) result.emplace_back(entry.name, join(entry.read(), ", "));
  return result;
}

}  // namespace isotrain
