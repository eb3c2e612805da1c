#include "lib/base/setting_value.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "lib/base/error.h"

namespace isotrain {
namespace {

std::optional<bool> to_flag(std::string const& text) {
  if (text == "true" || text == "yes" || text == "on" || text == "1") return true;
  if (text == "false" || text == "no" || text == "off" || text == "0") return false;
  return std::nullopt;
}

template <class Number>
std::string parse_number(std::string const& text, Number& value, char const* what) {
  Number parsed{};
  char const* const end = text.data() + text.size();
  auto const [stop, error] = std::from_chars(text.data(), end, parsed);
  if (error == std::errc::result_out_of_range && stop == end) return "is out of range";
  if (error != std::errc() || stop != end) return std::string("must be ") + what;
  value = parsed;
  return {};
}

}  // namespace

bool is_flag_value(std::string const& text) {
  return to_flag(text).has_value();
}

std::string parse_value(std::string const& text, bool& value) {
  std::optional<bool> const flag = to_flag(text);
  if (!flag) return "must be true or false";
  value = *flag;
  return {};
}

std::string parse_value(std::string const& text, int& value) {
  return parse_number(text, value, "an integer");
}

std::string parse_value(std::string const& text, std::int64_t& value) {
  return parse_number(text, value, "an integer");
}

std::string parse_value(std::string const& text, std::uint64_t& value) {
  return parse_number(text, value, "a whole number from 0 on");
}

std::string parse_value(std::string const& text, double& value) {
  double parsed = 0;
  std::string why = parse_number(text, parsed, "a number");
  if (why.empty() && !std::isfinite(parsed)) why = "must be finite";
  if (why.empty()) value = parsed;
  return why;
}

std::string parse_value(std::string const& text, std::string& value) {
  value = text;
  return {};
}

std::string parse_value(std::string const& text, std::filesystem::path& value) {
  value = text;
  return {};
}

std::string format_value(bool value) {
  return value ? "true" : "false";
}
std::string format_value(std::int64_t value) {
  return std::to_string(value);
}
std::string format_value(std::uint64_t value) {
  return std::to_string(value);
}

std::string format_value(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

std::string format_value(std::string const& value) {
  return value;
}
std::string format_value(std::filesystem::path const& value) {
  return value.string();
}

}  // namespace isotrain
