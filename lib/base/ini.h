#pragma once

#include <istream>
#include <string>
#include <vector>

/// The INI dialect of --config files and run.cfg:
///   # a comment, also ; and only at the start of a line
///   key = value
///   [section]
///   key = value              spaces around the value are dropped
///   key = "  kept \n\t\"\\"  a value in quotes, with these escapes
namespace isotrain {

struct IniEntry {
  std::string name;  // "section.key", or "key" before the first section
  std::string value;
  bool quoted = false;
  std::string where;  // "run.cfg:12"
};

/// All entries in order. Throws UsageError naming source and line of the first malformed one.
std::vector<IniEntry> parse_ini(std::istream& text, std::string const& source);

/// `value` as it stands after "key = ", in quotes where it needs them, so that parse_ini gives it back exactly.
std::string to_ini_value(std::string const& value);

}  // namespace isotrain
