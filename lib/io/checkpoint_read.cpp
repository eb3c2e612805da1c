#include <algorithm>
#include <optional>

#include "lib/base/error.h"
#include "lib/io/checkpoint.h"
#include "lib/io/piece_sums.h"
#include "lib/io/runs.h"

namespace isotrain::io {
namespace {

/// Reads piece `index` whole into `out`, of its size. Gives a message if it is damaged, else nothing.
std::string read_piece(hdf5::Dataset const& dataset, std::uint64_t index, std::uint64_t expected,
                       std::span<float> out) {
  auto const begin = index * sum_piece_elements;
  hdf5::read(dataset, begin, out);
  if (sum_of_blocks(begin, out) == expected) return {};
  return hdf5::describe(dataset.get()) + " is damaged in piece " + std::to_string(index) + ", elements [" +
         std::to_string(begin) + ", " + std::to_string(begin + out.size()) + ")";
}

}  // namespace

CheckpointReader::CheckpointReader(std::filesystem::path const& path)
    : file_(hdf5::open_read_only(path)), header_(read_checkpoint_header(file_, &sums_)) {}

std::vector<std::uint64_t> const& CheckpointReader::sums_of(std::string const& dataset) const {
  auto const found = sums_.find(dataset);
  if (found == sums_.end()) throw Error(hdf5::describe(file_.get()) + " has no flat dataset '" + dataset + "'");
  return found->second;
}

void CheckpointReader::read(std::string const& name, std::uint64_t begin, std::span<float> out) const {
  FlatRange const range{static_cast<std::int64_t>(begin), static_cast<std::int64_t>(begin + out.size())};
  read(name, std::vector{range}, out);
}

void CheckpointReader::read(std::string const& name, std::vector<FlatRange> const& runs, std::span<float> out) const {
  auto const& sums = sums_of(name);
  auto const total = header_.flat.at(name);
  expects(ascending(runs) && elements(runs) == out.size(), "ascending runs and room for their elements");
  if (!runs.empty() && static_cast<std::uint64_t>(runs.back().end) > total) {
    throw Error(hdf5::describe(file_.get()) + " has no elements [" + std::to_string(runs.back().begin) + ", " +
                    std::to_string(runs.back().end) + ") of '" + name + "'",
                "it has " + std::to_string(total), "is it a checkpoint of this model?");
  }
  auto const dataset = hdf5::open_dataset<float>(file_.get(), "/flat/" + name);
  std::vector<float> edge;  // the last piece that was wanted in part
  std::optional<std::uint64_t> edge_piece;
  std::size_t done = 0;
  for (FlatRange const& run : merged(runs)) {
    auto const end = static_cast<std::uint64_t>(run.end);
    for (auto begin = static_cast<std::uint64_t>(run.begin); begin < end;) {
      auto const piece = begin / sum_piece_elements;
      auto const piece_begin = piece * sum_piece_elements;
      auto const piece_size = std::min(sum_piece_elements, total - piece_begin);
      auto const skip = begin - piece_begin;
      auto const part = out.subspan(done, std::min(piece_size - skip, end - begin));
      bool const whole = part.size() == piece_size;
      if (!whole) edge.resize(piece_size);
      if (whole || edge_piece != piece) {
        auto const damage = read_piece(dataset, piece, sums[piece], whole ? part : std::span(edge));
        if (!damage.empty())
          throw Error(damage, "its checksum differs", "use another checkpoint, or copy this one again");
        if (!whole) edge_piece = piece;
      }
      if (!whole) std::copy_n(edge.begin() + static_cast<std::ptrdiff_t>(skip), part.size(), part.begin());
      begin += part.size();
      done += part.size();
    }
  }
}

std::vector<std::string> CheckpointReader::find_damage() const {
  std::vector<std::string> messages;
  std::vector<float> buffer;
  for (auto const& [name, total] : header_.flat) {
    auto const& sums = sums_of(name);
    auto const dataset = hdf5::open_dataset<float>(file_.get(), "/flat/" + name);
    for (std::uint64_t piece = 0; piece < sums.size(); ++piece) {
      buffer.resize(std::min(sum_piece_elements, total - piece * sum_piece_elements));
      if (auto damage = read_piece(dataset, piece, sums[piece], buffer); !damage.empty())
        messages.push_back(std::move(damage));
    }
  }
  return messages;
}

}  // namespace isotrain::io
