#include "lib/data/tokenizer.h"

#include <algorithm>
#include <cstring>

#include "lib/base/digest.h"
#include "lib/base/error.h"
#include "lib/data/sentencepiece_tokenizer.h"

namespace isotrain::data {
namespace {

constexpr std::string_view byte_magic = "isotrain tokenizer 1 bytes\n";
constexpr std::string_view sentencepiece_magic = "isotrain tokenizer 1 sentencepiece\n";

std::vector<std::byte> to_bytes(std::string_view head, std::string_view body) {
  std::vector<std::byte> bytes(head.size() + body.size());
  std::memcpy(bytes.data(), head.data(), head.size());
  if (!body.empty()) std::memcpy(bytes.data() + head.size(), body.data(), body.size());
  return bytes;
}

class ByteTokenizer final : public Tokenizer {
 public:
  using Tokenizer::encode;

  std::string name() const override { return "bytes"; }
  std::int64_t vocabulary_size() const override { return 257; }
  std::uint32_t eos() const override { return 256; }

  void encode(std::string_view text, std::vector<std::uint32_t>& out) const override {
    auto const start = out.size();
    out.resize(start + text.size());
    std::transform(text.begin(), text.end(), out.begin() + static_cast<std::ptrdiff_t>(start),
                   [](char c) { return static_cast<unsigned char>(c); });
  }

  std::string decode(std::span<std::uint32_t const> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (auto const token : tokens) {
      if (token < 256) {
        text.push_back(static_cast<char>(token));
      } else if (token != eos()) {
        throw Error("token " + std::to_string(token) + " cannot be decoded", "the vocabulary has 257 tokens");
      }
    }
    return text;
  }

  std::vector<std::byte> serialize() const override { return to_bytes(byte_magic, {}); }
};

}  // namespace

std::string Tokenizer::hash() const {
  auto const bytes = serialize();
  return Digest().update(std::span(bytes)).hex();
}

std::vector<std::uint32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::uint32_t> tokens;
  encode(text, tokens);
  return tokens;
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

std::vector<std::byte> serialize_sentencepiece(std::string_view model) {
  return to_bytes(sentencepiece_magic, model);
}

std::unique_ptr<Tokenizer> make_tokenizer(std::span<std::byte const> serialized) {
  std::string_view const all(reinterpret_cast<char const*>(serialized.data()), serialized.size());
  if (all == byte_magic) return make_byte_tokenizer();
  if (all.starts_with(sentencepiece_magic)) {
    return make_sentencepiece_tokenizer(std::string(all.substr(sentencepiece_magic.size())), "the stored tokenizer");
  }
  throw Error("not a stored tokenizer", "its first line is not one of ours", "was the file edited or cut?");
}

}  // namespace isotrain::data
