#include "lib/data/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <functional>
#include <unordered_map>

#include "lib/base/error.h"

namespace isotrain::data {
namespace {

constexpr std::string_view space_mark = "\u2581";  // how SentencePiece writes a space inside a piece

constexpr std::size_t max_known_bytes = 64;
constexpr std::size_t max_known_words = 65536;

struct HashText {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// Tokens of the words that a thread has met.
struct KnownWords {
  std::uint64_t tokenizer = 0;  // whose tokens they are
  std::unordered_map<std::string, std::vector<std::uint32_t>, HashText, std::equal_to<>> tokens{};
};

/// Tells tokenizers apart, also from those that are gone.
std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  using Tokenizer::encode;

  SentencePieceTokenizer(std::string model, std::string const& origin) : model_(std::move(model)) {
    auto const status = processor_.LoadFromSerializedProto(model_);
    if (!status.ok() || processor_.GetPieceSize() <= 0) {
      throw Error(origin + " is not a SentencePiece model", status.error_message());
    }
    if (processor_.eos_id() < 0) {
      throw Error(origin + " cannot mark the end of a document", "it has no </s> piece", "train it with eos_id >= 0");
    }
    find_pieces();
    find_cuts();
  }

  std::string name() const override { return "sentencepiece"; }
  std::int64_t vocabulary_size() const override { return processor_.GetPieceSize(); }
  std::uint32_t eos() const override { return static_cast<std::uint32_t>(processor_.eos_id()); }

  void encode(std::string_view text, std::vector<std::uint32_t>& out) const override {
    if (!lossless_) return encode_run(text, out);
    // A literal U+2581 would come back as a space, so it is spelt as its three bytes.
    while (true) {
      auto const mark = text.find(space_mark);
      encode_parts(text.substr(0, mark), out);
      if (mark == std::string_view::npos) return;
      out.insert(out.end(), mark_tokens_.begin(), mark_tokens_.end());
      text.remove_prefix(mark + space_mark.size());
    }
  }

  std::string decode(std::span<std::uint32_t const> tokens) const override {
    std::string text;
    for (auto const token : tokens) {
      if (token >= pieces_.size()) {
        throw Error("token " + std::to_string(token) + " cannot be decoded",
                    "the vocabulary has " + std::to_string(pieces_.size()) + " tokens");
      }
      text += pieces_[token];
    }
    return text;
  }

  std::vector<std::byte> serialize() const override { return serialize_sentencepiece(model_); }

 private:
  /// The bytes that each token stands for.
  void find_pieces() {
    pieces_.resize(static_cast<std::size_t>(processor_.GetPieceSize()));
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      auto& bytes = pieces_[static_cast<std::size_t>(id)];
      if (processor_.IsControl(id)) continue;
      if (processor_.IsByte(id)) {
        unsigned value = 0;
        std::sscanf(processor_.IdToPiece(id).c_str(), "<0x%02X>", &value);
        bytes.assign(1, static_cast<char>(value));
      } else if (processor_.IsUnknown(id)) {
        bytes = "\uFFFD";
      } else {
        std::string_view piece = processor_.IdToPiece(id);
        for (auto at = piece.find(space_mark); at != std::string_view::npos; at = piece.find(space_mark)) {
          bytes += piece.substr(0, at);
          bytes += ' ';
          piece.remove_prefix(at + space_mark.size());
        }
        bytes += piece;
      }
    }
  }

  /// Whether the model keeps all text, and whether lines, and words, may be encoded one by one with the same result.
  void find_cuts() {
    static constexpr std::array<std::string_view, 3> names = {"<0xE2>", "<0x96>", "<0x81>"};
    for (std::size_t i = 0; i < names.size(); ++i) {
      int const id = processor_.PieceToId(names[i]);
      if (!processor_.IsByte(id)) return;
      mark_tokens_[i] = static_cast<std::uint32_t>(id);
    }
    static constexpr std::string_view probe = "  \uFF21 e\u0301\n\n\tx \u00A0\u00BD \r\n ";
    std::vector<std::uint32_t> tokens;
    encode_run(probe, tokens);
    lossless_ = decode(tokens) == probe;
    lines_are_apart_ = lossless_;
    words_are_apart_ = lossless_;
    for (std::size_t id = 0; id < pieces_.size(); ++id) {
      if (processor_.IsByte(static_cast<int>(id))) continue;
      auto const& piece = pieces_[id];
      if (piece.find('\n') != std::string::npos) lines_are_apart_ = false;
      auto const word = piece.find_first_not_of(' ');
      if (word != std::string::npos && piece.find(' ', word) != std::string::npos) words_are_apart_ = false;
    }
  }

  /// The same tokens as encode_run: where no piece crosses a place, what stands on its two sides is encoded apart. So
  /// the cost is linear in the text, and words that come again are looked up.
  void encode_parts(std::string_view text, std::vector<std::uint32_t>& out) const {
    while (!text.empty()) {
      auto const length = part_length(text);
      encode_part(text.substr(0, length), out);
      text.remove_prefix(length);
    }
  }

  /// To the first place that no piece crosses: behind a newline, or before the first space after something else.
  std::size_t part_length(std::string_view text) const {
    if (!lines_are_apart_) return text.size();
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') return i + 1;
      if (words_are_apart_ && text[i] == ' ' && i > 0 && text[i - 1] != ' ') return i;
    }
    return text.size();
  }

  void encode_part(std::string_view part, std::vector<std::uint32_t>& out) const {
    if (part.size() > max_known_bytes) return encode_run(part, out);
    // Of the thread, since threads share a tokenizer.
    thread_local KnownWords known;
    if (known.tokenizer != id_ || known.tokens.size() >= max_known_words) known = {id_, {}};
    auto found = known.tokens.find(part);
    if (found == known.tokens.end()) {
      std::vector<std::uint32_t> tokens;
      encode_run(part, tokens);
      found = known.tokens.emplace(part, std::move(tokens)).first;
    }
    out.insert(out.end(), found->second.begin(), found->second.end());
  }

  void encode_run(std::string_view text, std::vector<std::uint32_t>& out) const {
    if (text.empty()) return;
    std::vector<int> ids;
    auto const status = processor_.Encode(text, &ids);
    if (!status.ok()) throw Error("text cannot be encoded", status.error_message());
    out.insert(out.end(), ids.begin(), ids.end());
  }

  std::string model_;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> pieces_;
  std::array<std::uint32_t, 3> mark_tokens_{};
  bool lossless_ = false;
  bool lines_are_apart_ = false;
  bool words_are_apart_ = false;
  std::uint64_t id_ = next_id();
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string model, std::string const& origin) {
  return std::make_unique<SentencePieceTokenizer>(std::move(model), origin);
}

}  // namespace isotrain::data
