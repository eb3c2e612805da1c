#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace isotrain::io {

/// "step-00000100.h5".
std::string checkpoint_file_name(std::uint64_t step);

/// Checkpoints of a folder by name, complete or not, newest step first; none if there is no such folder. Unfinished
/// ones and other files are left out.
std::vector<std::filesystem::path> list_checkpoints(std::filesystem::path const& folder);

struct NewestCheckpoint {
  std::optional<std::filesystem::path> path;
  std::vector<std::string> skipped;  // why each newer one will not do
};

/// The newest checkpoint whose header is whole and whose datasets have the right sizes, among those of an earlier step
/// than `older_than` if that is given; contents are checked when read.
NewestCheckpoint newest_complete_checkpoint(std::filesystem::path const& folder,
                                            std::optional<std::filesystem::path> const& older_than = {});

/// Removes the partial files (lib/base/atomic_file.h) of checkpoints that an interrupted writer left.
void remove_partial_checkpoints(std::filesystem::path const& folder);

/// Removes complete checkpoints but the `keep` newest, of which `newest` is always one. Broken ones stay for the user
/// to see.
void prune_checkpoints(std::filesystem::path const& folder, int keep, std::filesystem::path const& newest);

}  // namespace isotrain::io
