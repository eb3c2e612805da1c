#include "lib/data/tokenize.h"

#include <exception>
#include <vector>

namespace isotrain::data {

void tokenize(TextSource& source, Tokenizer const& tokenizer, int num_threads,
              std::function<void(TokenizedFragment const&)> const& take) {
  std::size_t const batch_bytes = static_cast<std::size_t>(num_threads) * 2 * TextSource::max_fragment_bytes;
  std::vector<Fragment> fragments;
  std::vector<std::vector<std::uint32_t>> tokens;
  Fragment next;
  bool more = true;
  while (more) {
    fragments.clear();
    for (std::size_t bytes = 0; bytes < batch_bytes && (more = source.next(next));) {
      bytes += next.text.size();
      fragments.push_back(std::move(next));
    }
    auto const count = static_cast<std::int64_t>(fragments.size());
    // Anew: vectors that are kept would each grow to the longest fragment that they ever held.
    tokens.clear();
    tokens.resize(fragments.size());
    std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic) num_threads(num_threads)
    for (std::int64_t i = 0; i < count; ++i) {
      auto const index = static_cast<std::size_t>(i);
      try {
        tokenizer.encode(fragments[index].text, tokens[index]);
      } catch (...) {
#pragma omp critical
        failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
    for (std::size_t i = 0; i < fragments.size(); ++i) {
      take({fragments[i].document, fragments[i].ends_document, fragments[i].text.size(), tokens[i]});
    }
  }
}

}  // namespace isotrain::data
