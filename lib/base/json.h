#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace isotrain {

/// Parses JSON; `source` names it in the error, which says line and column. Throws Error.
nlohmann::json parse_json(std::string_view text, std::string_view source);

/// Parses a JSON file. Throws Error naming it.
nlohmann::json read_json(std::filesystem::path const& path);

}  // namespace isotrain
