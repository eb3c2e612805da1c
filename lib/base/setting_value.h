#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <string>
#include <type_traits>
#include <vector>

/// Settings as text: what a user writes and what run.cfg holds.
namespace isotrain {

/// How `--help` names the value of a setting.
enum class ValueKind { flag, integer, number, text, path, list };

/// parse(text, value) sets `value` and returns "", or returns why it cannot ("must be an integer").
std::string parse_value(std::string const& text, bool& value);  // true|false, also yes|no, on|off, 1|0
std::string parse_value(std::string const& text, int& value);
std::string parse_value(std::string const& text, std::int64_t& value);
std::string parse_value(std::string const& text, std::uint64_t& value);
std::string parse_value(std::string const& text, double& value);  // finite
std::string parse_value(std::string const& text, std::string& value);
std::string parse_value(std::string const& text, std::filesystem::path& value);

/// Text that parse_value turns back into exactly `value`; the shortest such for a double.
std::string format_value(bool value);
std::string format_value(std::int64_t value);
std::string format_value(std::uint64_t value);
std::string format_value(double value);
std::string format_value(std::string const& value);
std::string format_value(std::filesystem::path const& value);
inline std::string format_value(int value) {
  return format_value(std::int64_t{value});
}

template <class T>
constexpr ValueKind value_kind() {
  if constexpr (std::same_as<T, bool>) return ValueKind::flag;
  if constexpr (std::integral<T>) return ValueKind::integer;
  if constexpr (std::same_as<T, double>) return ValueKind::number;
  if constexpr (std::same_as<T, std::filesystem::path>) return ValueKind::path;
  if constexpr (std::same_as<T, std::vector<std::string>>) return ValueKind::list;
  return ValueKind::text;
}

/// True for what a user may write as the value of a flag.
bool is_flag_value(std::string const& text);

}  // namespace isotrain
