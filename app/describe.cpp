#include "app/describe.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "lib/base/digest.h"
#include "lib/base/error.h"
#include "lib/base/json.h"
#include "lib/data/corpus.h"
#include "lib/data/shard.h"
#include "lib/data/verify.h"
#include "lib/io/checkpoint.h"

namespace isotrain {
namespace {

/// "a, b, c" of anything that `text` makes a string from.
template <class Range, class Text>
std::string join(Range const& range, Text const& text) {
  std::string joined;
  for (auto const& item : range) {
    if (!joined.empty()) joined += ", ";
    joined += text(item);
  }
  return joined.empty() ? "none" : joined;
}

std::string architecture(std::string const& config_json, std::string const& source) {
  auto const config = parse_json(config_json, source);
  if (!config.is_object() || !config.contains("architectures")) return "unnamed";
  return config["architectures"].dump();
}

void print_header(io::CheckpointHeader const& h, std::string const& source) {
  std::int64_t parameters = 0;
  for (auto const& entry : h.index) parameters += entry.size();
  print_row("step", std::to_string(h.step));
  print_row("tokens", std::to_string(h.tokens));
  print_row("model", architecture(h.config_json, "config.json in " + source));
  print_row("parameters", std::to_string(parameters) + " in " + std::to_string(h.index.size()) + " tensors");
  print_row("precision", h.precision);
  print_row("envelope", std::to_string(h.slices) + " slices, " + std::to_string(h.lanes) + " lanes, bf16 " + h.bf16);
  print_row("seed", std::to_string(h.seed));
  print_row("numerics", h.numerics_class + ", fingerprint " + to_hex(h.numerics_fingerprint));
  print_row("weights", "fingerprint " + to_hex(h.weights_fingerprint));
  print_row("lane positions", join(h.lane_positions, [](std::int64_t p) { return std::to_string(p); }));
  print_row("flat datasets", join(h.flat, [](auto const& d) { return d.first + " " + std::to_string(d.second); }));
  print_row("state", join(h.state, [](auto const& s) { return s.first + " " + std::to_string(s.second.size()); }));
  print_row("tokenizer", format_bytes(h.tokenizer.size()));
}

void print_tensors(io::CheckpointIndex const& index) {
  std::size_t width = 6;
  for (auto const& entry : index) width = std::max(width, entry.name.size());
  auto const columns = static_cast<int>(width);
  std::printf("\n  %-*s  %-8s  %6s  %14s  %s\n", columns, "tensor", "dtype", "pieces", "offset", "shape");
  for (auto const& entry : index) {
    auto const shape = join(entry.shape, [](std::int64_t extent) { return std::to_string(extent); });
    std::printf("  %-*s  %-8s  %6zu  %14lld  [%s]\n", columns, entry.name.c_str(), entry.dtype.c_str(),
                entry.pieces.size(), static_cast<long long>(entry.pieces.front().offset), shape.c_str());
  }
}

}  // namespace

void print_row(std::string const& name, std::string const& value) {
  std::printf("  %-15s %s\n", name.c_str(), value.c_str());
}

std::string format_bytes(std::uintmax_t bytes) {
  char const* const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 5; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

void describe_checkpoint(std::filesystem::path const& path, Verify verify) {
  io::CheckpointReader const reader(path);
  std::printf("checkpoint '%s', %s\n", path.c_str(), format_bytes(std::filesystem::file_size(path)).c_str());
  print_header(reader.header(), "'" + path.string() + "'");
  print_tensors(reader.header().index);
  if (verify == Verify::no) return;
  auto const damage = reader.find_damage();
  for (auto const& message : damage) std::printf("%s\n", message.c_str());
  if (!damage.empty()) {
    throw Error("checkpoint '" + path.string() + "' is damaged",
                std::to_string(damage.size()) + " of its pieces differ from their checksums, the first: " + damage[0],
                "use another checkpoint, or copy this one again");
  }
  std::printf("verified: all contents agree with their checksums\n");
}

void describe_corpus(std::filesystem::path const& folder, Verify verify) {
  auto const corpus = data::open_corpus(folder);
  std::printf("corpus '%s'\n", folder.c_str());
  print_row("tokenizer", corpus.tokenizer_name + ", " + std::to_string(corpus.vocabulary_size) + " tokens, hash " +
                             corpus.tokenizer_hash);
  print_row("seed", std::to_string(corpus.seed));
  print_row("train", std::to_string(corpus.num_tokens(data::Split::train)) + " tokens, " +
                         std::to_string(corpus.num_train_documents) + " documents");
  print_row("validation", std::to_string(corpus.num_tokens(data::Split::validation)) + " tokens, " +
                              std::to_string(corpus.num_validation_documents) + " documents");
  std::printf("\n  %-16s  %-10s  %14s  %s\n", "shard", "split", "tokens", "digest");
  for (auto const& shard : corpus.shards) {
    std::printf("  %-16s  %-10s  %14lld  %s\n", shard.file.c_str(), to_string(shard.split).c_str(),
                static_cast<long long>(shard.num_tokens), shard.digest.c_str());
  }
  if (verify == Verify::no) return;
  data::open_tokenizer(corpus);
  std::vector<std::string> damage;
  for (auto const& shard : corpus.shards) {
    try {
      data::verify_shard(corpus, shard, data::Verification::full);
    } catch (Error const& e) {
      damage.emplace_back(e.what());
      std::printf("%s\n", e.what());
    }
  }
  if (!damage.empty()) {
    throw Error("corpus '" + folder.string() + "' is damaged", std::to_string(damage.size()) + " of " +
                                                                   std::to_string(corpus.shards.size()) +
                                                                   " shards, the first: " + damage[0]);
  }
  std::printf("verified: all shards agree with corpus.json\n");
}

void describe_shard(std::filesystem::path const& path, Verify verify) {
  data::ShardReader const reader(path);
  std::printf("shard '%s', %s\n", path.c_str(), format_bytes(std::filesystem::file_size(path)).c_str());
  print_row("split", to_string(reader.info().split));
  print_row("tokens", std::to_string(reader.info().num_tokens) + " " + to_string(reader.type()));
  print_row("documents", std::to_string(reader.info().num_documents));
  print_row("tokenizer hash", reader.tokenizer_hash());
  print_row("digest", reader.info().digest);
  if (verify == Verify::no) return;
  // Without a corpus.json nothing says how large the vocabulary is.
  auto const folder = path.parent_path().empty() ? "." : path.parent_path();
  if (std::filesystem::exists(folder / data::Corpus::file_name)) {
    auto const corpus = data::open_corpus(folder);
    reader.verify(corpus.vocabulary_size);
    for (auto const& shard : corpus.shards) {
      if (shard.file == path.filename()) data::verify_shard(corpus, shard, data::Verification::quick);
    }
  } else {
    reader.verify(std::int64_t{1} << 32);
  }
  std::printf("verified: the contents agree with the digest\n");
}

}  // namespace isotrain
