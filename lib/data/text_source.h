#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/data/utf8.h"

namespace isotrain::data {

/// What one document of a text file is: all of it, what stands between blank lines, or a line. In JSONL it is a record.
enum class Documents { file, paragraphs, lines };

struct TextOptions {
  Documents documents = Documents::file;
  InvalidUtf8 invalid = InvalidUtf8::refuse;
  std::string field = "text";  // of a JSONL record
};

/// A document, or a part of a long one. The parts of a document follow each other.
struct Fragment {
  std::string text;
  std::int64_t document = 0;  // counted from 0 over all inputs
  bool ends_document = true;
};

/// Streams the documents of files and folders, at most a few MiB of them in memory (but a whole JSONL record). Folders
/// are read recursively in the order of their paths, without hidden files; files named *.jsonl hold one JSON object a
/// line. Where a document is longer than max_fragment_bytes it comes in parts, cut after a newline, before a space or
/// between characters: a function of the document alone. Empty documents and blank lines are left out.
class TextSource {
 public:
  static constexpr std::size_t max_fragment_bytes = std::size_t{1} << 20;

  /// Finds all files at once. Throws Error for an input that is missing, unreadable, or a folder without files.
  TextSource(std::vector<std::filesystem::path> const& inputs, TextOptions options);
  ~TextSource();

  /// The next fragment, or false at the end. Throws Error naming file and place for what cannot be read: no UTF-8, no
  /// JSON, a record without the field.
  bool next(Fragment& fragment);

  std::int64_t total_bytes() const { return total_bytes_; }
  std::int64_t bytes_read() const { return bytes_read_; }
  std::int64_t num_files() const { return static_cast<std::int64_t>(files_.size()); }

 private:
  class OpenFile;

  void append(std::string_view text);
  void end_document();
  void take_lines(std::string_view text);
  void end_line();
  void end_record();
  void end_file();

  TextOptions options_;
  std::vector<std::filesystem::path> files_;
  std::int64_t total_bytes_ = 0;
  std::int64_t bytes_read_ = 0;
  std::size_t next_file_ = 0;
  std::unique_ptr<OpenFile> file_;
  std::deque<Fragment> ready_;
  std::string document_;            // the open document's text that is in no fragment yet
  std::int64_t num_documents_ = 0;  // finished ones
  std::string line_;                // the open line, or what is left of it
  std::int64_t line_number_ = 0;
  bool line_has_parts_ = false;
};

}  // namespace isotrain::data
