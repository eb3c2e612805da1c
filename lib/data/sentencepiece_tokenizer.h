#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/data/tokenizer.h"

namespace isotrain::data {

/// A SentencePiece model (the bytes of a .model file). `origin` names it in errors.
/// Throws Error if it is no such model or has no </s>, which ends documents.
///
/// Models trained by train_sentencepiece lose nothing: decode(encode(x)) == x for all UTF-8. Others normalise as they
/// were trained to; one with a dummy prefix decodes its first word with a leading space.
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string model, std::string const& origin);

/// What make_tokenizer takes apart.
std::vector<std::byte> serialize_sentencepiece(std::string_view model);

/// Yields the next piece of training text, nothing at the end.
using TextSample = std::function<std::optional<std::string>()>;

/// Trains a byte-pair vocabulary of exactly `vocabulary_size` pieces: identity normalisation, byte fallback, no dummy
/// prefix, white space kept; pieces never hold a newline. The same text gives the same model. Returns the bytes of a
/// .model file. The sample is held in memory.
/// Throws UsageError if the size does not suit the text (the message says which would do).
/// Source: Kudo, Richardson, "SentencePiece", EMNLP 2018 (arXiv:1808.06226).
std::string train_sentencepiece(std::int64_t vocabulary_size, TextSample const& next);

}  // namespace isotrain::data
