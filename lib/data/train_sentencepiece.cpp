#include <sentencepiece_trainer.h>

#include <unordered_map>

#include "lib/base/error.h"
#include "lib/data/sentencepiece_tokenizer.h"

namespace isotrain::data {
namespace {

/// Cuts the sample into what the trainer takes: lines without their newline, and no longer than it accepts.
class Sentences final : public sentencepiece::SentenceIterator {
 public:
  static constexpr std::size_t max_bytes = 4192;

  explicit Sentences(TextSample const& next) : next_(next) { Next(); }

  bool done() const override { return done_; }
  std::string const& value() const override { return sentence_; }
  sentencepiece::util::Status status() const override { return {}; }

  void Next() override {
    do {
      while (at_ >= text_.size()) {
        auto text = next_();
        if (!text) {
          done_ = true;
          return;
        }
        text_ = std::move(*text);
        at_ = 0;
      }
      auto const newline = text_.find('\n', at_);
      auto const line_end = newline == std::string::npos ? text_.size() : newline;
      auto const end = line_end - at_ > max_bytes ? cut(at_ + max_bytes) : line_end;
      sentence_.assign(text_, at_, end - at_);
      at_ = end == line_end ? end + 1 : end;
    } while (sentence_.empty());
  }

 private:
  /// The last place at or before `limit` where a word begins, or at least a character.
  std::size_t cut(std::size_t limit) const {
    auto const space = text_.rfind(' ', limit);
    if (space != std::string::npos && space > at_) return space;
    while ((static_cast<unsigned char>(text_[limit]) & 0xc0) == 0x80) --limit;
    return limit;
  }

  TextSample const& next_;
  std::string text_;
  std::string sentence_;
  std::size_t at_ = 0;
  bool done_ = false;
};

}  // namespace

std::string train_sentencepiece(std::int64_t vocabulary_size, TextSample const& next) {
  if (vocabulary_size < 260 || vocabulary_size > 1'000'000) {
    throw UsageError("a SentencePiece vocabulary of " + std::to_string(vocabulary_size) + " pieces cannot be trained",
                     "256 of them are the bytes and 3 mark unknown, begin and end",
                     "ask for a size from about 300 to 1000000");
  }
  Sentences sentences(next);
  if (sentences.done()) throw Error("no vocabulary can be trained", "the input has no text");
  std::unordered_map<std::string, std::string> const settings = {
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(vocabulary_size)},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", "false"},
      {"allow_whitespace_only_pieces", "true"},
      {"byte_fallback", "true"},
      {"split_digits", "true"},
      {"shuffle_input_sentence", "false"},
      {"max_sentence_length", std::to_string(Sentences::max_bytes)},
      {"num_threads", "1"},
      {"minloglevel", "3"},
  };
  std::string model;
  auto const status = sentencepiece::SentencePieceTrainer::Train(settings, &sentences, &model);
  if (!status.ok()) {
    // The trainer's text is "file(line) [condition] what is wrong"; only the last part is for the user.
    std::string why = status.error_message();
    if (auto const bracket = why.rfind("] "); bracket != std::string::npos) why = why.substr(bracket + 2);
    throw UsageError("no SentencePiece vocabulary of " + std::to_string(vocabulary_size) + " pieces", why,
                     "choose another --tokenizer sentencepiece:SIZE");
  }
  return model;
}

}  // namespace isotrain::data
