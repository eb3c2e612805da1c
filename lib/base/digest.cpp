#include "lib/base/digest.h"

#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>
#include <vector>

#include "lib/base/error.h"

namespace isotrain {

void Digest::Free::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

Digest::Digest() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_64bits_reset(state_.get());
}

Digest& Digest::update(void const* data, std::size_t bytes) {
  if (bytes > 0) XXH3_64bits_update(state_.get(), data, bytes);
  return *this;
}

std::uint64_t Digest::value() const {
  return XXH3_64bits_digest(state_.get());
}

std::string Digest::hex() const {
  return to_hex(value());
}

std::string to_hex(std::uint64_t value) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

Digest digest_file(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error("cannot open '" + path.string() + "'", std::strerror(errno));
  Digest digest;
  std::vector<char> piece(std::size_t{1} << 20);
  errno = 0;
  while (file) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    digest.update(piece.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad() || !file.eof()) throw Error("cannot read '" + path.string() + "'", std::strerror(errno));
  return digest;
}

}  // namespace isotrain
