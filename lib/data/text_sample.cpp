#include "lib/data/text_sample.h"

#include <algorithm>
#include <utility>

#include "lib/base/random.h"

namespace isotrain::data {

TextSampler::TextSampler(TextSource& source, std::uint64_t seed, std::int64_t budget_bytes)
    : source_(source),
      seed_(seed),
      chance_(static_cast<double>(budget_bytes) /
              static_cast<double>(std::max<std::int64_t>(source.total_bytes(), 1))) {}

std::optional<std::string> TextSampler::operator()() {
  Random const random(seed_, "data.sample");
  Fragment fragment;
  while (source_.next(fragment)) {
    if (chance_ >= 1) return std::move(fragment.text);
    std::string chosen;
    for (std::string_view rest = fragment.text; !rest.empty();) {
      auto const newline = rest.find('\n');
      auto const length = newline == std::string_view::npos ? rest.size() : newline + 1;
      if (random.uniform_double(num_lines_++) < chance_) chosen += rest.substr(0, length);
      rest.remove_prefix(length);
    }
    if (!chosen.empty()) return chosen;
  }
  return std::nullopt;
}

}  // namespace isotrain::data
