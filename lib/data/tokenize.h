#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "lib/data/text_source.h"
#include "lib/data/tokenizer.h"

namespace isotrain::data {

/// Tokenizes all that a source yields with `num_threads` threads and hands the fragments to `take` in their order, from
/// the calling thread. Holds a few MiB a thread. `text.text` is empty in `take`'s fragment; `bytes` is what it was.
struct TokenizedFragment {
  std::int64_t document = 0;
  bool ends_document = true;
  std::size_t bytes = 0;
  std::span<std::uint32_t const> tokens;
};
void tokenize(TextSource& source, Tokenizer const& tokenizer, int num_threads,
              std::function<void(TokenizedFragment const&)> const& take);

}  // namespace isotrain::data
