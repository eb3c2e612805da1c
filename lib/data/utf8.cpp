#include "lib/data/utf8.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "lib/base/error.h"

namespace isotrain::data {
namespace {

enum class Verdict { whole, broken, cut };

struct Character {
  Verdict verdict;
  std::size_t bytes;  // of the character, or of the longest part that could begin one (at least 1)
};

/// The character that starts at text[0], which is no ASCII. Source: The Unicode Standard, table 3-7.
Character inspect(std::string_view text) {
  auto const byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned const first = byte(0);
  std::size_t length = 0;
  if (first >= 0xc2 && first <= 0xdf) length = 2;
  if (first >= 0xe0 && first <= 0xef) length = 3;
  if (first >= 0xf0 && first <= 0xf4) length = 4;
  if (length == 0) return {Verdict::broken, 1};
  unsigned low = 0x80, high = 0xbf;  // of the second byte
  if (first == 0xe0) low = 0xa0;     // else overlong
  if (first == 0xed) high = 0x9f;    // else a surrogate
  if (first == 0xf0) low = 0x90;     // else overlong
  if (first == 0xf4) high = 0x8f;    // else above U+10FFFF
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Verdict::cut, i};
    if (byte(i) < low || byte(i) > high) return {Verdict::broken, i};
    low = 0x80;
    high = 0xbf;
  }
  return {Verdict::whole, length};
}

std::size_t ascii_length(std::string_view text) {
  std::size_t n = 0;
  for (; n + 8 <= text.size(); n += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + n, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (n < text.size() && static_cast<unsigned char>(text[n]) < 0x80) ++n;
  return n;
}

}  // namespace

void Utf8Filter::feed(std::string_view block, std::string& out) {
  if (kept_.empty()) return check(block, false, out);
  std::string const joined = std::move(kept_) + std::string(block);
  kept_.clear();
  check(joined, false, out);
}

void Utf8Filter::finish(std::string& out) {
  std::string const rest = std::move(kept_);
  kept_.clear();
  check(rest, true, out);
}

void Utf8Filter::check(std::string_view text, bool last, std::string& out) {
  while (!text.empty()) {
    auto const ascii = ascii_length(text);
    out.append(text.substr(0, ascii));
    text.remove_prefix(ascii);
    offset_ += static_cast<std::int64_t>(ascii);
    if (text.empty()) return;
    auto const character = inspect(text);
    if (character.verdict == Verdict::cut && !last) {
      kept_ = text;
      return;
    }
    if (character.verdict == Verdict::whole) {
      out.append(text.substr(0, character.bytes));
    } else {
      broken(text.substr(0, character.bytes), out);
    }
    text.remove_prefix(character.bytes);
    offset_ += static_cast<std::int64_t>(character.bytes);
  }
}

void Utf8Filter::broken(std::string_view bytes, std::string& out) const {
  if (policy_ == InvalidUtf8::replace) {
    out += "\uFFFD";
    return;
  }
  char hex[8];
  std::snprintf(hex, sizeof hex, "0x%02x", static_cast<unsigned char>(bytes[0]));
  throw Error("'" + origin_ + "' is not UTF-8", "byte " + std::string(hex) + " at offset " + std::to_string(offset_),
              "convert it, or replace such bytes by U+FFFD with --invalid replace");
}

std::size_t character_start(std::string_view text, std::size_t at) {
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

}  // namespace isotrain::data
