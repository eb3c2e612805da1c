#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace isotrain {

/// Whether only what a file says about itself is read, or all its contents are checked against their checksums.
enum class Verify { no, yes };

/// Each prints a description to stdout. Throws Error if the thing cannot be read or, with `yes`, is damaged; every
/// damaged part is then printed first.
void describe_checkpoint(std::filesystem::path const& path, Verify verify);
void describe_corpus(std::filesystem::path const& folder, Verify verify);
void describe_shard(std::filesystem::path const& path, Verify verify);

/// Prints "  <name>   <value>", the values aligned.
void print_row(std::string const& name, std::string const& value);

/// "1.5 GiB", "12 bytes".
std::string format_bytes(std::uintmax_t bytes);

}  // namespace isotrain
