#include "lib/train/ledger.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lib/base/digest.h"
#include "lib/base/error.h"

namespace isotrain {
namespace {

constexpr int ledger_format = 1;
constexpr std::string_view step_prefix = "{\"step\":";

std::string to_line(LedgerHeader const& header) {
  nlohmann::ordered_json object;
  object["format"] = ledger_format;
  object["layers"] = header.layers;
  object["parameters"] = header.parameters;
  return object.dump();
}

void add_hashes(std::string& line, char const* name, std::span<std::uint64_t const> hashes) {
  line.append(",\"").append(name).append("\":[");
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    line.append(i > 0 ? ",\"" : "\"").append(to_hex(hashes[i])).append("\"");
  }
  line += ']';
}

/// The step of a line, without reading the rest: ledgers are large.
std::optional<std::int64_t> step_of(std::string_view line) {
  if (!line.starts_with(step_prefix)) return std::nullopt;
  std::int64_t step = 0;
  auto const [end, error] = std::from_chars(line.data() + step_prefix.size(), line.data() + line.size(), step);
  if (error != std::errc() || end == line.data() + line.size() || *end != ',') return std::nullopt;
  return step;
}

/// A line that ends in a newline.
bool get_whole_line(std::ifstream& stream, std::string& line) {
  return std::getline(stream, line) && !stream.eof();
}

std::optional<std::uint64_t> parse_hash(nlohmann::json const& value) {
  if (!value.is_string()) return std::nullopt;
  auto const& text = value.get_ref<std::string const&>();
  std::uint64_t hash = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  bool const whole = text.size() == 16 && error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(hash) : std::nullopt;
}

std::optional<std::vector<std::uint64_t>> parse_hashes(nlohmann::json const& object, char const* name,
                                                       std::size_t count) {
  auto const found = object.find(name);
  if (found == object.end() || !found->is_array() || found->size() != count) return std::nullopt;
  std::vector<std::uint64_t> hashes;
  for (auto const& value : *found) {
    auto const hash = parse_hash(value);
    if (!hash) return std::nullopt;
    hashes.push_back(*hash);
  }
  return hashes;
}

}  // namespace

LedgerWriter::LedgerWriter(std::filesystem::path path, LedgerHeader const& header,
                           std::function<void(std::string const&)> warn)
    : num_layers_(header.layers.size()),
      num_parameters_(header.parameters.size()),
      file_("ledger", path, std::move(warn)) {
  std::error_code ignored;
  if (std::filesystem::file_size(path, ignored) == 0) {
    file_.append(to_line(header));
  } else if (std::filesystem::is_regular_file(path) && LedgerReader(path).header() != header) {
    throw Error("the ledger '" + path.string() + "' belongs to another model", "its layers or parameters differ",
                "choose another --run.dir, or remove the file");
  }
}

void LedgerWriter::append(std::int64_t step, std::span<std::uint64_t const> activation,
                          std::span<std::uint64_t const> activation_gradient,
                          std::span<std::uint64_t const> weight_gradient, std::span<std::uint64_t const> weight,
                          std::uint64_t fingerprint) {
  expects(activation.size() == num_layers_ && activation_gradient.size() == num_layers_, "a hash of each layer");
  expects(weight_gradient.size() == num_parameters_ && weight.size() == num_parameters_, "a hash of each parameter");
  std::string line = std::string(step_prefix) + std::to_string(step);
  add_hashes(line, "activation", activation);
  add_hashes(line, "activation_gradient", activation_gradient);
  add_hashes(line, "weight_gradient", weight_gradient);
  add_hashes(line, "weight", weight);
  file_.append(line + ",\"fingerprint\":\"" + to_hex(fingerprint) + "\"}");
}

void cut_ledger(std::filesystem::path const& path, std::int64_t step) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return;
  std::uintmax_t kept = 0;
  bool first = true;
  for (std::string line; step > 0 && get_whole_line(stream, line); first = false) {
    auto const number = step_of(line);
    // Steps ascend, so all behind the first that goes is to go as well.
    if (!first && (!number || *number > step)) break;
    kept += line.size() + 1;
  }
  stream.close();
  std::error_code error;
  if (std::filesystem::file_size(path, error) == kept) return;
  std::filesystem::resize_file(path, kept, error);
  if (error) throw Error("cannot cut the ledger '" + path.string() + "'", error.message());
}

LedgerReader::LedgerReader(std::filesystem::path path) : path_(std::move(path)), stream_(path_, std::ios::binary) {
  std::string line;
  if (!stream_) throw Error("cannot open the ledger '" + path_.string() + "'", "there is no such file");
  if (!get_whole_line(stream_, line)) refuse("it has no header");
  auto const object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("format")) refuse("its first line is no header");
  if (object["format"] != ledger_format) refuse("it is of format " + object["format"].dump());
  try {
    header_ = {object.at("layers"), object.at("parameters")};
  } catch (nlohmann::json::exception const&) {
    refuse("its header lacks names of layers or parameters");
  }
}

void LedgerReader::refuse(std::string const& why) const {
  throw Error("'" + path_.string() + "' is no ledger that can be read", why);
}

std::optional<LedgerReader::Line> LedgerReader::next() {
  Line line;
  if (!get_whole_line(stream_, line.text)) return std::nullopt;
  auto const step = step_of(line.text);
  if (!step) refuse("the line '" + line.text.substr(0, 40) + "' is no step");
  line.step = *step;
  return line;
}

LedgerStep LedgerReader::parse(Line const& line) const {
  auto const object = nlohmann::json::parse(line.text, nullptr, /*allow_exceptions=*/false);
  LedgerStep step;
  step.step = line.step;
  auto const take = [&](char const* name, std::size_t count, std::vector<std::uint64_t>& into) {
    auto hashes = object.is_object() ? parse_hashes(object, name, count) : std::nullopt;
    if (!hashes) {
      refuse("step " + std::to_string(line.step) + " lacks " + std::to_string(count) + " hashes '" + name + "'");
    }
    into = std::move(*hashes);
  };
  take("activation", header_.layers.size(), step.activation);
  take("activation_gradient", header_.layers.size(), step.activation_gradient);
  take("weight_gradient", header_.parameters.size(), step.weight_gradient);
  take("weight", header_.parameters.size(), step.weight);
  auto const fingerprint = object.contains("fingerprint") ? parse_hash(object["fingerprint"]) : std::nullopt;
  if (!fingerprint) refuse("step " + std::to_string(line.step) + " lacks a fingerprint");
  step.fingerprint = *fingerprint;
  return step;
}

}  // namespace isotrain
