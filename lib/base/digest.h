#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace isotrain {

/// A 64-bit XXH3 digest of bytes that arrive in pieces; how they are cut does not matter. Finds damage, not forgery.
class Digest {
 public:
  Digest();

  Digest& update(void const* data, std::size_t bytes);
  Digest& update(std::string_view text) { return update(text.data(), text.size()); }
  template <class T>
  Digest& update(std::span<T> data) {
    return update(data.data(), data.size_bytes());
  }

  /// Of all bytes so far; more may follow.
  std::uint64_t value() const;
  /// The value as 16 hex digits.
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

/// 16 lower-case hex digits, zero-padded: how digests and fingerprints are written everywhere.
std::string to_hex(std::uint64_t value);

/// Digest of a whole file, read in pieces of 1 MiB. Throws Error naming the file if it cannot be read.
Digest digest_file(std::filesystem::path const& path);

}  // namespace isotrain
