#include "lib/train/metrics.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lib/base/digest.h"
#include "lib/base/error.h"
#include "lib/base/setting_value.h"

namespace isotrain {
namespace {

std::string json_number(double value) {
  return std::isfinite(value) ? format_value(value) : "null";
}

}  // namespace

std::string to_json(StepMetrics const& metrics) {
  std::string line = "{";
  auto const add = [&](std::string_view name, std::string_view value) {
    if (line.size() > 1) line += ',';
    line.append("\"").append(name).append("\":").append(value);
  };
  add("step", format_value(metrics.step));
  add("tokens", format_value(metrics.tokens));
  add("loss", json_number(metrics.loss));
  add("grad_norm", json_number(metrics.grad_norm));
  add("lr", json_number(metrics.lr));
  add("tokens_per_s", json_number(metrics.tokens_per_s));
  add("step_s", json_number(metrics.step_s));
  add("mfu", json_number(metrics.mfu));
  add("fingerprint", std::string("\"").append(to_hex(metrics.fingerprint)).append("\""));
  auto const check_name = [](std::string const& name) {
    expects(name.find_first_of("\"\\\n") == std::string::npos, "a plain name of a metric");
  };
  for (auto const& [name, value] : metrics.more) {
    check_name(name);
    add(name, json_number(value));
  }
  for (auto const& [name, values] : metrics.lists) {
    check_name(name);
    std::string list = "[";
    for (double const value : values) list += (list.size() > 1 ? "," : "") + json_number(value);
    add(name, list + "]");
  }
  return line + "}";
}

double last_loss(std::filesystem::path const& path) {
  double loss = std::numeric_limits<double>::quiet_NaN();
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    auto const object = nlohmann::json::parse(line, nullptr, false);
    if (object.is_object() && object.contains("loss") && object["loss"].is_number()) loss = object["loss"];
  }
  return loss;
}

void MetricsFile::append(StepMetrics const& metrics) {
  file_.append(to_json(metrics));
}

}  // namespace isotrain
