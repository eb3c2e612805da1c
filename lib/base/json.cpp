#include "lib/base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "lib/base/atomic_file.h"
#include "lib/base/error.h"

namespace isotrain {

nlohmann::json parse_json(std::string_view text, std::string_view source) {
  try {
    return nlohmann::json::parse(text);
  } catch (nlohmann::json::parse_error const& error) {
    std::string_view const before = text.substr(0, error.byte == 0 ? 0 : error.byte - 1);
    auto const line = 1 + std::count(before.begin(), before.end(), '\n');
    std::size_t const column = before.size() - (before.rfind('\n') + 1) + 1;
    throw Error("'" + std::string(source) + "' is not JSON",
                "wrong at line " + std::to_string(line) + ", column " + std::to_string(column));
  }
}

nlohmann::json read_json(std::filesystem::path const& path) {
  return parse_json(read_file(path), path.string());
}

}  // namespace isotrain
