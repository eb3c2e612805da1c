#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lib/base/ini.h"
#include "lib/base/setting_value.h"

/// The settings of one command. A setting is written once, as a call of Settings::add; the command line, --config
/// files,
/// --help, --dump-defaults, the log, run.cfg and the checkpoint's copy all come from it.
namespace isotrain {

/// What is said about a setting of type T beside its name and member. All parts may be left out but `help`.
template <class T>
struct About {
  std::string help{};                            // one sentence; --help wraps it
  std::string unit{};                            // "tokens", "steps", "s", ...
  std::vector<std::string> choices{};            // the only texts allowed; empty: all
  std::function<std::string(T const&)> check{};  // returns why the value is wrong ("must be at least 1"), or ""
  std::string alias{};                           // "tp" for --tp
};

/// Checks for About::check.
std::function<std::string(double)> at_least(double least);
std::function<std::string(double)> above(double bound);
std::function<std::string(double)> between(double least, double most);

class Settings {
 public:
  /// `usage` and `description` head the --help text: "mpirun -np N isotrain train", "Trains a model."
  Settings(std::string usage, std::string description)
      : usage_(std::move(usage)), description_(std::move(description)) {}
  Settings(Settings const&) = delete;
  Settings& operator=(Settings const&) = delete;

  /// Declares "--name VALUE" ("section.key", or "key" alone). T is bool, int, int64_t, uint64_t, double, std::string,
  /// std::filesystem::path or std::vector<std::string> (repeat the option). `member` outlives this object; what it
  /// holds now is the default.
  template <class T>
  void add(std::string name, T& member, std::type_identity_t<About<T>> about);

  /// Arguments without "--" fill these already declared settings, in the order of the calls; a list takes all that are
  /// left.
  enum class Presence { optional, required };
  void positional(std::string const& name, Presence presence);

  enum class Request { run, help, dump_defaults };
  /// Sets the members: command line over `--config FILE` over defaults. Throws UsageError with one clear message for
  /// an unknown setting (naming the nearest known one), a wrong, missing or repeated value and a bad file. Stops early,
  /// with nothing set, at --help and --dump-defaults.
  Request parse(std::vector<std::string> const& arguments);

  /// Sets members from INI text, e.g. the copy in a checkpoint. `source` names it in errors.
  void read_ini(std::istream& text, std::string const& source);

  /// True if the command line or an INI text set it.
  bool was_given(std::string const& name) const;

  std::string help() const;           // at most 100 columns, a group per section
  std::string dump() const;           // all settings as resolved, as INI that read_ini turns back into the same values
  std::string dump_defaults() const;  // the same with the defaults and with each help text as a comment
  std::vector<std::pair<std::string, std::string>> values() const;  // (name, value as text) as resolved

 private:
  using Texts = std::vector<std::string>;  // one, or any number for a list
  struct Entry {
    std::string name;
    std::string alias;
    std::string help;
    std::string unit;
    std::vector<std::string> choices;
    ValueKind kind;
    Texts defaults;
    std::function<Texts()> read;
    std::function<std::string(Texts const&)> write;  // sets and returns "", or returns why not
    bool given = false;
  };
  enum class Comments { no, yes };

  void add_entry(Entry entry);
  Entry const* find(std::string const& name_or_alias) const;
  Entry& known(std::string const& name_or_alias, std::string const& shown, std::string const& where);
  void assign(Entry& entry, Texts const& texts, std::string const& shown, std::string const& where);
  Texts normalized(Texts const& arguments) const;
  void read_file(std::string const& path);
  std::string to_ini(std::function<Texts(Entry const&)> const& texts, Comments comments) const;

  std::string usage_;
  std::string description_;
  std::vector<Entry> entries_;
  std::vector<std::pair<std::string, Presence>> positionals_;
};

template <class T>
void Settings::add(std::string name, T& member, std::type_identity_t<About<T>> about) {
  auto read = [&member]() -> Texts {
    if constexpr (value_kind<T>() == ValueKind::list) {
      return member;
    } else {
      return {format_value(member)};
    }
  };
  auto write = [&member, check = std::move(about.check)](Texts const& texts) -> std::string {
    T value{};
    if constexpr (value_kind<T>() == ValueKind::list) {
      value = texts;
    } else if (std::string const why = parse_value(texts.front(), value); !why.empty()) {
      return why;
    }
    if (check) {
      if (std::string const why = check(value); !why.empty()) return why;
    }
    member = std::move(value);
    return {};
  };
  Texts defaults = read();
  add_entry({std::move(name), std::move(about.alias), std::move(about.help), std::move(about.unit),
             std::move(about.choices), value_kind<T>(), std::move(defaults), std::move(read), std::move(write)});
}

}  // namespace isotrain
