#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace isotrain::data {

/// Text to token ids and back. Immutable, so that threads may share one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// "bytes" or "sentencepiece".
  virtual std::string name() const = 0;
  /// Ids are in [0, vocabulary_size()).
  virtual std::int64_t vocabulary_size() const = 0;
  /// The token that ends a document; encode never yields it.
  virtual std::uint32_t eos() const = 0;
  /// Appends the tokens of `text` to `out`, without eos. Any bytes for "bytes"; UTF-8 for the others.
  virtual void encode(std::string_view text, std::vector<std::uint32_t>& out) const = 0;
  /// The bytes of the tokens; eos and other control tokens are empty. Always the concatenation of what the single
  /// tokens give, so a cut between two tokens may cut a UTF-8 character. Throws Error for an id outside the vocabulary.
  virtual std::string decode(std::span<std::uint32_t const> tokens) const = 0;
  /// The complete definition of the tokenizer; make_tokenizer undoes it.
  virtual std::vector<std::byte> serialize() const = 0;

  /// 16 hex digits over serialize(): equal for tokenizers that are the same.
  std::string hash() const;

  std::vector<std::uint32_t> encode(std::string_view text) const;
};

/// The 256 bytes, and eos = 256. Loses nothing, knows no language.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

/// From what serialize() gave. Throws Error on anything else.
std::unique_ptr<Tokenizer> make_tokenizer(std::span<std::byte const> serialized);

}  // namespace isotrain::data
