#include "lib/data/text_source.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "lib/base/error.h"
#include "lib/base/unique.h"

namespace isotrain::data {
namespace {

constexpr std::size_t block_bytes = std::size_t{1} << 20;
constexpr std::size_t max_record_bytes = std::size_t{1} << 30;

void add_folder(std::filesystem::path const& folder, std::vector<std::filesystem::path>& files) {
  std::vector<std::filesystem::path> entries;
  for (auto const& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with('.')) entries.push_back(entry.path());
  }
  std::sort(entries.begin(), entries.end());
  for (auto const& entry : entries) {
    if (std::filesystem::is_directory(entry)) {
      add_folder(entry, files);
    } else if (std::filesystem::is_regular_file(entry)) {
      files.push_back(entry);
    }
  }
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\f\v") == std::string_view::npos;
}

/// Where to cut text that is longer than `limit`: after a newline, before a space, else between characters.
std::size_t cut_at(std::string_view text, std::size_t limit) {
  auto const newline = text.rfind('\n', limit - 1);
  if (newline != std::string_view::npos && newline >= limit / 2) return newline + 1;
  auto const space = text.rfind(' ', limit);
  if (space != std::string_view::npos && space >= limit / 2) return space;
  return character_start(text, limit);
}

}  // namespace

class TextSource::OpenFile {
 public:
  OpenFile(std::filesystem::path path, InvalidUtf8 invalid)
      : path_(std::move(path)), file_(std::fopen(path_.c_str(), "rb")), filter_(invalid, path_.string()) {
    if (!file_) throw Error("'" + path_.string() + "' cannot be opened", std::strerror(errno));
    buffer_.resize(block_bytes);
  }

  std::filesystem::path const& path() const { return path_; }
  bool is_jsonl() const { return path_.extension() == ".jsonl"; }

  /// Reads a block into `text`; returns the bytes read, 0 at the end of the file.
  std::size_t read(std::string& text) {
    text.clear();
    auto const bytes = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
    if (bytes < buffer_.size() && std::ferror(file_.get())) {
      throw Error("'" + path_.string() + "' cannot be read", std::strerror(errno));
    }
    if (bytes > 0) {
      filter_.feed(std::string_view(buffer_.data(), bytes), text);
    } else {
      filter_.finish(text);
    }
    return bytes;
  }

 private:
  static void close(std::FILE* file) { std::fclose(file); }

  std::filesystem::path path_;
  Unique<std::FILE*, &OpenFile::close> file_;
  Utf8Filter filter_;
  std::string buffer_;
};

TextSource::TextSource(std::vector<std::filesystem::path> const& inputs, TextOptions options)
    : options_(std::move(options)) {
  for (auto const& input : inputs) {
    std::error_code code;
    auto const status = std::filesystem::status(input, code);
    if (!std::filesystem::exists(status)) {
      throw Error("input '" + input.string() + "' cannot be read", code ? code.message() : "there is no such file");
    }
    auto const before = files_.size();
    try {
      if (std::filesystem::is_directory(status)) {
        add_folder(input, files_);
      } else if (std::filesystem::is_regular_file(status)) {
        files_.push_back(input);
      }
    } catch (std::filesystem::filesystem_error const& failure) {
      throw Error("input '" + input.string() + "' cannot be read", failure.code().message());
    }
    if (files_.size() == before) {
      throw Error("input '" + input.string() + "' has no text", "it is no file, and no folder with files in it");
    }
  }
  for (auto const& file : files_) total_bytes_ += static_cast<std::int64_t>(std::filesystem::file_size(file));
}

TextSource::~TextSource() = default;

bool TextSource::next(Fragment& fragment) {
  std::string text;
  while (ready_.empty()) {
    if (!file_) {
      if (next_file_ == files_.size()) return false;
      file_ = std::make_unique<OpenFile>(files_[next_file_++], options_.invalid);
      line_number_ = 0;
    }
    auto const bytes = file_->read(text);
    bytes_read_ += static_cast<std::int64_t>(bytes);
    if (file_->is_jsonl() || options_.documents != Documents::file) {
      take_lines(text);
    } else {
      append(text);
    }
    if (bytes == 0) end_file();
  }
  fragment = std::move(ready_.front());
  ready_.pop_front();
  return true;
}

void TextSource::append(std::string_view text) {
  document_ += text;
  std::size_t start = 0;
  while (document_.size() - start > max_fragment_bytes) {
    auto const length = cut_at(std::string_view(document_).substr(start), max_fragment_bytes);
    ready_.push_back({document_.substr(start, length), num_documents_, false});
    start += length;
  }
  document_.erase(0, start);
}

void TextSource::end_document() {
  if (document_.empty()) return;  // and so has no parts: append leaves something after a cut
  ready_.push_back({std::move(document_), num_documents_, true});
  document_.clear();
  ++num_documents_;
}

void TextSource::take_lines(std::string_view text) {
  while (!text.empty()) {
    auto const newline = text.find('\n');
    line_ += text.substr(0, newline);
    if (newline != std::string_view::npos) {
      end_line();
      text.remove_prefix(newline + 1);
      continue;
    }
    if (file_->is_jsonl()) {
      if (line_.size() > max_record_bytes) {
        throw Error("'" + file_->path().string() + "' line " + std::to_string(line_number_ + 1) + " is too long",
                    "a record may have 1 GiB");
      }
    } else if (line_.size() > max_fragment_bytes) {
      // A line without end goes on into the document in parts, or memory would grow with it.
      if (!line_has_parts_ && !document_.empty()) append("\n");
      append(line_);
      line_.clear();
      line_has_parts_ = true;
    }
    return;
  }
}

void TextSource::end_line() {
  ++line_number_;
  if (file_->is_jsonl()) {
    end_record();
  } else if (options_.documents == Documents::lines) {
    if (line_.ends_with('\r')) line_.pop_back();
    if (line_has_parts_ || !is_blank(line_)) append(line_);
    end_document();
  } else if (line_has_parts_) {
    append(line_);
  } else if (is_blank(line_)) {
    end_document();
  } else {
    if (!document_.empty()) append("\n");
    append(line_);
  }
  line_.clear();
  line_has_parts_ = false;
}

void TextSource::end_record() {
  if (is_blank(line_)) return;
  auto const place = "'" + file_->path().string() + "' line " + std::to_string(line_number_);
  auto const record = nlohmann::json::parse(line_, nullptr, false);
  if (record.is_discarded()) throw Error(place + " is no JSON", "a .jsonl file holds one JSON object a line");
  if (!record.is_object())
    throw Error(place + " is no JSON object", "it is of type " + std::string(record.type_name()));
  auto const field = record.find(options_.field);
  if (field == record.end()) {
    std::string names;
    for (auto const& [name, value] : record.items()) names += (names.empty() ? "" : ", ") + name;
    throw Error(place + " has no field '" + options_.field + "'", "it has: " + names, "choose another with --field");
  }
  if (!field->is_string()) {
    throw Error(place + " has no text in field '" + options_.field + "'",
                "it is of type " + std::string(field->type_name()), "choose another with --field");
  }
  append(field->get_ref<std::string const&>());
  end_document();
}

void TextSource::end_file() {
  if (!line_.empty() || line_has_parts_) end_line();
  end_document();
  file_.reset();
}

}  // namespace isotrain::data
