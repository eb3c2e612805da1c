#include "lib/base/settings.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

#include "lib/base/error.h"
#include "lib/base/nearest.h"

namespace isotrain {
namespace {

namespace po = boost::program_options;

std::string must(double bound, char const* relation) {
  return std::string("must be ") + relation + " " + format_value(bound);
}

/// The options in front of "--" that stop everything else.
bool asks_for(std::vector<std::string> const& arguments, std::string const& option) {
  auto const end = std::find(arguments.begin(), arguments.end(), "--");
  return std::find(arguments.begin(), end, option) != end;
}

/// Splits arguments into options and positional ones; options that nobody declared come out as `unregistered`.
std::vector<po::option> split(std::vector<std::string> const& arguments, std::vector<std::string> const& names) {
  po::options_description options;
  for (auto const& name : names) options.add_options()(name.c_str(), po::value<std::string>());
  using namespace po::command_line_style;
  try {
    return po::command_line_parser(arguments)
        .options(options)
        .style(allow_long | long_allow_adjacent | long_allow_next)
        .allow_unregistered()
        .run()
        .options;
  } catch (po::error const& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

std::function<std::string(double)> at_least(double least) {
  return [least](double value) { return value >= least ? "" : must(least, "at least"); };
}

std::function<std::string(double)> above(double bound) {
  return [bound](double value) { return value > bound ? "" : must(bound, "above"); };
}

std::function<std::string(double)> between(double least, double most) {
  return [least, most](double value) {
    return value >= least && value <= most ? "" : must(least, "from") + " to " + format_value(most);
  };
}

void Settings::add_entry(Entry entry) {
  expects(!find(entry.name) && (entry.alias.empty() || !find(entry.alias)), "names and aliases to be unique");
  expects(!entry.help.empty(), "every setting to have a help text");
  entries_.push_back(std::move(entry));
}

Settings::Entry const* Settings::find(std::string const& name_or_alias) const {
  auto const found = std::find_if(entries_.begin(), entries_.end(), [&](Entry const& entry) {
    return entry.name == name_or_alias || (!entry.alias.empty() && entry.alias == name_or_alias);
  });
  return found == entries_.end() ? nullptr : &*found;
}

Settings::Entry& Settings::known(std::string const& name_or_alias, std::string const& shown, std::string const& where) {
  if (Entry const* const entry = find(name_or_alias)) return const_cast<Entry&>(*entry);
  std::vector<std::string> names;
  for (Entry const& entry : entries_) {
    names.push_back(entry.name);
    if (!entry.alias.empty()) names.push_back(entry.alias);
  }
  std::string const dashes = shown.substr(0, shown.size() - name_or_alias.size());
  auto const near = nearest(name_or_alias, names);
  throw UsageError("unknown setting '" + shown + "'" + where, "",
                   near ? "did you mean '" + dashes + *near + "'?" : "--help lists all settings");
}

void Settings::assign(Entry& entry, Texts const& texts, std::string const& shown, std::string const& where) {
  std::string const of = "' for " + shown + where;
  for (std::string const& text : texts) {
    if (entry.choices.empty() || std::find(entry.choices.begin(), entry.choices.end(), text) != entry.choices.end()) {
      continue;
    }
    std::string all;
    for (std::string const& choice : entry.choices) all += (all.empty() ? "" : ", ") + choice;
    auto const near = nearest(text, entry.choices);
    throw UsageError("wrong value '" + text + of, "must be one of " + all, near ? "did you mean '" + *near + "'?" : "");
  }
  if (std::string const why = entry.write(texts); !why.empty()) {
    throw UsageError("wrong value '" + (texts.empty() ? "" : texts.front()) + of, why);
  }
  entry.given = true;
}

/// Flags get their value attached ("--flag" -> "--flag=true", "--flag false" -> "--flag=false"); a missing value is
/// found here, where the message can say whose it is.
Settings::Texts Settings::normalized(Texts const& arguments) const {
  Texts result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string const& argument = arguments[i];
    if (argument == "--") {
      result.insert(result.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
      break;
    }
    result.push_back(argument);
    if (!argument.starts_with("--")) continue;
    bool const has_value = argument.find('=') != std::string::npos;
    std::string const name = argument.substr(2, argument.find('=') - 2);
    Entry const* const entry = find(name);
    if (!entry && name != "config") continue;
    bool const has_next = i + 1 < arguments.size() && !arguments[i + 1].starts_with("--");
    if (entry && entry->kind == ValueKind::flag) {
      if (!has_value) result.back() += has_next && is_flag_value(arguments[i + 1]) ? "=" + arguments[++i] : "=true";
    } else if (has_value ? argument.find('=') + 1 == argument.size() : !has_next) {
      throw UsageError("'--" + name + "' has no value", "", "write '--" + name + " VALUE'");
    } else if (!has_value) {
      result.push_back(arguments[++i]);
    }
  }
  return result;
}

void Settings::positional(std::string const& name, Presence presence) {
  expects(find(name), "a declared setting to be made positional");
  positionals_.emplace_back(name, presence);
}

Settings::Request Settings::parse(std::vector<std::string> const& arguments) {
  if (asks_for(arguments, "--help") || asks_for(arguments, "-h")) return Request::help;
  if (asks_for(arguments, "--dump-defaults")) return Request::dump_defaults;

  Texts names{"config"};
  for (Entry const& entry : entries_) {
    names.push_back(entry.name);
    if (!entry.alias.empty()) names.push_back(entry.alias);
  }
  struct Given {
    Texts texts;
    std::string shown;
  };
  std::map<Entry*, Given> given;
  Texts config, loose;
  for (po::option const& option : split(normalized(arguments), names)) {
    if (option.position_key >= 0) {
      loose.insert(loose.end(), option.value.begin(), option.value.end());
      continue;
    }
    std::string const shown = "--" + option.string_key;
    if (option.string_key == "config") {
      config.insert(config.end(), option.value.begin(), option.value.end());
      continue;
    }
    Entry& entry = known(option.string_key, shown, "");
    Given& mine = given[&entry];
    if (!mine.texts.empty() && entry.kind != ValueKind::list) {
      throw UsageError("'" + shown + "' is given twice",
                       "'" + mine.texts.front() + "', then '" + option.value.front() + "'");
    }
    mine.texts.insert(mine.texts.end(), option.value.begin(), option.value.end());
    mine.shown = shown;
  }
  if (config.size() > 1) throw UsageError("'--config' is given twice", "'" + config[0] + "', then '" + config[1] + "'");

  auto next = loose.begin();
  for (auto const& [name, presence] : positionals_) {
    Entry& entry = known(name, name, "");
    Given& mine = given[&entry];
    auto const end = entry.kind == ValueKind::list || next == loose.end() ? loose.end() : next + 1;
    mine.texts.insert(mine.texts.end(), next, end);
    mine.shown = "--" + name;
    next = end;
    if (mine.texts.size() > 1 && entry.kind != ValueKind::list) {
      throw UsageError("'--" + name + "' is given twice", "'" + mine.texts[0] + "', then '" + mine.texts[1] + "'");
    }
    if (mine.texts.empty()) given.erase(&entry);
  }
  if (next != loose.end()) {
    throw UsageError("unexpected argument '" + *next + "'", "",
                     next->starts_with("-") ? "settings start with two dashes" : "settings are written '--name value'");
  }

  if (!config.empty()) read_file(config.front());
  for (auto& [entry, mine] : given) assign(*entry, mine.texts, mine.shown, "");
  for (auto const& [name, presence] : positionals_) {
    if (presence == Presence::required && !was_given(name)) {
      throw UsageError("'" + name + "' is missing", "", "--help shows how it is given");
    }
  }
  return Request::run;
}

void Settings::read_file(std::string const& path) {
  std::ifstream file(path);
  if (!file) throw UsageError("cannot open '" + path + "'", std::strerror(errno), "--config takes an INI file");
  read_ini(file, path);
}

void Settings::read_ini(std::istream& text, std::string const& source) {
  struct Given {
    Entry* entry;
    Texts texts;
    std::string where;
  };
  std::vector<Given> given;
  for (IniEntry const& line : parse_ini(text, source)) {
    std::string const where = " at " + line.where;
    Entry& entry = known(line.name, line.name, where);
    auto const before = std::find_if(given.begin(), given.end(), [&](Given const& g) { return g.entry == &entry; });
    bool const empty_list = entry.kind == ValueKind::list && line.value.empty() && !line.quoted;
    if (before == given.end()) {
      given.push_back({&entry, empty_list ? Texts{} : Texts{line.value}, where});
    } else if (entry.kind == ValueKind::list && !empty_list) {
      before->texts.push_back(line.value);
    } else {
      throw UsageError("'" + line.name + "' is given twice", "again" + where);
    }
  }
  for (Given& g : given) assign(*g.entry, g.texts, g.entry->name, g.where);
}

bool Settings::was_given(std::string const& name) const {
  Entry const* const entry = find(name);
  expects(entry, "a declared setting");
  return entry->given;
}

}  // namespace isotrain
