#include "tests/policy/include_order.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <regex>

namespace isotrain::test {
namespace {

/// The layers, lowest first; folders of one line do not know each other.
std::vector<std::vector<std::string>> const layers = {
    {"lib/base"},
    {"lib/device"},
    {"kernels"},
    {"lib/tensor"},
    {"lib/comm"},
    {"lib/parallel"},
    {"lib/model", "lib/optim", "lib/data", "lib/io"},
    {"lib/train"},
    {"app"},
    {"benchmarks", "tests"},
};

struct Layer {
  std::size_t height;
  std::string folder;
};

std::optional<Layer> layer_of(std::string const& path) {
  for (std::size_t height = 0; height < layers.size(); ++height) {
    for (std::string const& folder : layers[height]) {
      if (path.starts_with(folder + "/")) return Layer{height, folder};
    }
  }
  return std::nullopt;
}

std::vector<std::string> sources(std::filesystem::path const& root) {
  std::vector<std::string> paths;
  for (char const* top : {"app", "benchmarks", "kernels", "lib", "tests"}) {
    if (!std::filesystem::exists(root / top)) continue;
    for (auto const& entry : std::filesystem::recursive_directory_iterator(root / top)) {
      std::string const extension = entry.path().extension();
      if (extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh") {
        paths.push_back(entry.path().lexically_relative(root));
      }
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string complaint(Layer const& mine, std::string const& included, bool exists) {
  std::optional<Layer> const theirs = layer_of(included);
  if (!exists) return "which does not exist";
  if (!theirs) return "which is in no layer";
  if (theirs->height > mine.height) return "which is a higher layer";
  if (theirs->height == mine.height && theirs->folder != mine.folder) return "which it must not know";
  return "";
}

}  // namespace

std::size_t num_sources(std::filesystem::path const& root) {
  return sources(root).size();
}

std::vector<std::string> include_violations(std::filesystem::path const& root) {
  static std::regex const include(R"re(^\s*#\s*include\s*(["<])([^">]+)[">])re");
  std::vector<std::string> violations;
  for (std::string const& path : sources(root)) {
    std::optional<Layer> const mine = layer_of(path);
    if (!mine) {
      violations.push_back(path + ": is in no layer");
      continue;
    }
    std::ifstream file(root / path);
    int number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      std::smatch match;
      if (!std::regex_search(line, match, include)) continue;
      std::string const included = match[2];
      std::string why;
      if (match[1] == "<") {
        if (layer_of(included)) why = "in angle brackets, which are for others' headers";
      } else {
        why = complaint(*mine, included, std::filesystem::exists(root / included));
      }
      if (!why.empty())
        violations.push_back(path + ":" + std::to_string(number) + ": includes " + included + ", " + why);
    }
  }
  return violations;
}

}  // namespace isotrain::test
