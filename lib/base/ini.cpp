#include "lib/base/ini.h"

#include <string_view>

#include "lib/base/error.h"

namespace isotrain {
namespace {

constexpr char const* blanks = " \t\r";

std::string_view trim(std::string_view text) {
  std::size_t const begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

/// What stands between the quotes of `text`, which starts with one.
std::string unquote(std::string_view text, std::string const& where) {
  std::string value;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      if (i + 1 != text.size()) throw UsageError("malformed line at " + where, "text follows the closing quote");
      return value;
    }
    if (text[i] != '\\') {
      value += text[i];
      continue;
    }
    char const escape = ++i < text.size() ? text[i] : '\0';
    switch (escape) {
      case 'n':
        value += '\n';
        break;
      case 'r':
        value += '\r';
        break;
      case 't':
        value += '\t';
        break;
      case '"':
      case '\\':
        value += escape;
        break;
      default:
        throw UsageError("malformed line at " + where, "unknown escape in quotes", R"(known ones are \n \r \t \" \\)");
    }
  }
  throw UsageError("malformed line at " + where, "the closing quote is missing");
}

}  // namespace

std::vector<IniEntry> parse_ini(std::istream& text, std::string const& source) {
  std::vector<IniEntry> entries;
  std::string section;
  int number = 0;
  for (std::string whole; std::getline(text, whole);) {
    std::string const where = source + ":" + std::to_string(++number);
    std::string_view const line = trim(whole);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      if (line.back() != ']') throw UsageError("malformed line at " + where, "the closing ']' is missing");
      section = trim(line.substr(1, line.size() - 2));
      if (section.empty()) throw UsageError("malformed line at " + where, "the section has no name");
      continue;
    }
    std::size_t const equals = line.find('=');
    if (equals == std::string_view::npos) {
      throw UsageError("malformed line at " + where, "it has no '='",
                       "write 'key = value', '[section]' or '# comment'");
    }
    std::string const key(trim(line.substr(0, equals)));
    if (key.empty()) throw UsageError("malformed line at " + where, "no key stands before '='");
    std::string_view const value = trim(line.substr(equals + 1));
    bool const quoted = value.starts_with('"');
    entries.push_back({section.empty() ? key : section + "." + key, quoted ? unquote(value, where) : std::string(value),
                       quoted, where});
  }
  if (text.bad()) throw UsageError("cannot read '" + source + "'", "the read failed", "is it a folder?");
  return entries;
}

std::string to_ini_value(std::string const& value) {
  bool const plain = !value.empty() && trim(value) == value && value.front() != '"' &&
                     value.find_first_of("\n\r\t") == std::string::npos;
  if (plain) return value;
  std::string quoted = "\"";
  for (char const c : value) {
    switch (c) {
      case '\n':
        quoted += "\\n";
        break;
      case '\r':
        quoted += "\\r";
        break;
      case '\t':
        quoted += "\\t";
        break;
      case '"':
        quoted += "\\\"";
        break;
      case '\\':
        quoted += "\\\\";
        break;
      default:
        quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace isotrain
