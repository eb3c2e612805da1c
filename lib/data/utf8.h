#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace isotrain::data {

/// What happens to bytes that are not UTF-8: an Error that names file and byte, or U+FFFD in their place.
enum class InvalidUtf8 { refuse, replace };

/// Checks a stream of bytes that arrives in blocks; how it is cut does not matter. Refused are stray, missing and
/// overlong bytes, surrogates and what lies above U+10FFFF; each maximal part of a broken character is replaced by one
/// U+FFFD (The Unicode Standard, section 3.9, "U+FFFD substitution of maximal subparts").
class Utf8Filter {
 public:
  /// `origin` names the stream in errors.
  Utf8Filter(InvalidUtf8 policy, std::string origin) : policy_(policy), origin_(std::move(origin)) {}

  /// Appends the characters that are complete to `out`; keeps at most 3 bytes back.
  void feed(std::string_view block, std::string& out);
  /// The stream has ended: what was kept back is broken.
  void finish(std::string& out);

 private:
  void check(std::string_view text, bool last, std::string& out);
  void broken(std::string_view bytes, std::string& out) const;

  InvalidUtf8 policy_;
  std::string origin_;
  std::string kept_;
  std::int64_t offset_ = 0;  // bytes before the one under inspection
};

/// Moves `at` back to the first byte of the character that holds text[at]; text is UTF-8, at < text.size().
std::size_t character_start(std::string_view text, std::size_t at);

}  // namespace isotrain::data
