#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/process.h"
#include "lib/data/corpus_writer.h"

namespace isotrain::data::test {

/// A fresh folder that goes away with the object.
class ScratchFolder {
 public:
  ScratchFolder() {
    auto name = (std::filesystem::temp_directory_path() / "isotrain-data-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(ScratchFolder const&) = delete;
  ScratchFolder& operator=(ScratchFolder const&) = delete;

  std::filesystem::path operator/(std::string const& name) const { return path_ / name; }
  std::filesystem::path const& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::filesystem::path write_text(std::filesystem::path const& path, std::string const& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

/// Bytes of this process in RAM; nothing where that cannot be known or says nothing: AddressSanitizer keeps freed
/// memory.
inline std::optional<std::size_t> resident_bytes() {
#ifdef __SANITIZE_ADDRESS__
  return std::nullopt;
#else
  auto const memory = resident_memory();
  return memory ? std::optional(memory->now_bytes) : std::nullopt;
#endif
}

/// The message of the E that `body` throws; an empty one, and a failure, if it throws none.
template <class E, class Body>
std::string message_of(Body&& body) {
  try {
    body();
  } catch (E const& error) {
    return error.what();
  } catch (std::exception const& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << "in: " << (text)

/// A corpus of made-up documents of bytes: document d has lengths[d] tokens, which are letters, and its eos.
inline Corpus write_corpus(std::filesystem::path const& folder, std::vector<std::int64_t> const& lengths,
                           CorpusLayout const& layout, double validation = 0) {
  auto const tokenizer = make_byte_tokenizer();
  CorpusWriter writer(folder, *tokenizer, 1, layout);
  std::uint32_t next = 0;
  for (std::size_t d = 0; d < lengths.size(); ++d) {
    std::vector<std::uint32_t> tokens;
    for (std::int64_t i = 0; i < lengths[d]; ++i) tokens.push_back('a' + next++ % 26);
    bool const held_out = is_validation(1, static_cast<std::int64_t>(d), validation);
    writer.add(held_out ? Split::validation : Split::train, tokens, true);
  }
  return writer.finish();
}

/// All tokens of a shard, by the plainest way.
inline std::vector<std::uint32_t> tokens_of(Corpus const& corpus, ShardInfo const& shard) {
  auto const file = hdf5::open_read_only(corpus.folder / shard.file);
  auto const narrow = hdf5::read_all<std::uint16_t>(file.get(), "tokens");
  return {narrow.begin(), narrow.end()};
}

}  // namespace isotrain::data::test
