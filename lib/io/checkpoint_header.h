#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lib/base/hdf5.h"
#include "lib/io/checkpoint_index.h"

namespace isotrain::io {

/// The checkpoint format that this program writes and reads.
inline constexpr std::uint64_t checkpoint_format_version = 2;

/// All of a checkpoint but its large flat datasets.
struct CheckpointHeader {
  std::uint64_t step = 0;    // optimizer steps done
  std::uint64_t tokens = 0;  // tokens trained on
  std::uint64_t seed = 0;

  // The envelope, which the bits depend on.
  std::int64_t slices = 1;
  std::int64_t lanes = 1;
  std::string bf16;       // "tiles" or "pairs"
  std::string precision;  // "fp32" or "bf16"

  std::string numerics_class;              // in words, for messages: "cpu"
  std::uint64_t numerics_fingerprint = 0;  // of the start-up check
  std::uint64_t weights_fingerprint = 0;   // as in metrics.jsonl

  std::string config_json;   // the model's config.json
  std::string settings_ini;  // all settings as resolved

  std::vector<std::int64_t> lane_positions;         // samples that each lane has consumed
  std::vector<std::uint8_t> tokenizer;              // as the corpus holds it
  std::map<std::string, std::vector<float>> state;  // small fp32 vectors by name (router biases); no '/' in names
  CheckpointIndex index;

  std::map<std::string, std::uint64_t> flat;  // elements of each flat dataset by name; set by write_checkpoint

  bool operator==(CheckpointHeader const&) const = default;
};

/// Checksums of each flat dataset, by its name (lib/io/piece_sums.h).
using CheckpointSums = std::map<std::string, std::vector<std::uint64_t>>;

/// Writes the header into an empty file and makes its flat datasets, without contents, and all else that it will have.
/// Requires an index without fault for the size of the weights dataset.
void write_checkpoint_header(hdf5::File const& file, CheckpointHeader const& header);
enum class Writer { yes, no };
/// Fills in the checksums and what marks the file as complete. Collective where the file is open in parallel; one rank
/// is the writer, the others' header and sums do not count. Adds nothing to the file that HDF5 could fail to write
/// later.
void complete_checkpoint(hdf5::File const& file, CheckpointHeader const& header, CheckpointSums const& sums,
                         Writer writer = Writer::yes);

/// Reads and checks the header. Throws Error if the file is no checkpoint, is of another format, was never completed or
/// is damaged, or a flat dataset has another size than the header says. Fills `sums` where given.
CheckpointHeader read_checkpoint_header(hdf5::File const& file, CheckpointSums* sums = nullptr);

}  // namespace isotrain::io
