// isotrain prepare: text -> tokens -> a corpus folder.

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/base/atomic_file.h"
#include "lib/base/error.h"
#include "lib/base/settings.h"
#include "lib/data/corpus_writer.h"
#include "lib/data/sentencepiece_tokenizer.h"
#include "lib/data/text_sample.h"
#include "lib/data/text_source.h"
#include "lib/data/tokenize.h"
#include "lib/train/progress.h"

namespace isotrain {
namespace {

using std::filesystem::path;

struct PrepareSettings {
  std::vector<std::string> input;
  path out;
  std::string tokenizer = "bytes";
  std::int64_t shards = 24;
  double validation = 0.05;
  std::vector<std::string> validation_input;
  std::uint64_t seed = 1;
  std::string documents = "file";
  std::string field = "text";
  std::string invalid = "refuse";
  std::int64_t piece = 0;
  std::int64_t sample_mib = 32;
  std::int64_t threads = 0;
};

void declare(Settings& table, PrepareSettings& s) {
  table.add("input", s.input,
            {.help = "Text files, .jsonl files, or folders of them (read recursively, hidden files left out)."});
  table.positional("input", Settings::Presence::required);
  table.add("out", s.out, {.help = "Folder to write; it must not exist, or be empty."});
  table.add("tokenizer", s.tokenizer,
            {.help = "bytes; sentencepiece:SIZE, a vocabulary of SIZE pieces trained on the input; or a file: a "
                     "SentencePiece .model or the tokenizer.bin of another corpus."});
  table.add(
      "shards", s.shards,
      {.help = "Train shards. The number of lanes of a training run must divide it.", .check = between(1, 65536)});
  table.add("validation", s.validation,
            {.help = "Part of the documents, chosen by the seed, that goes to the validation split.",
             .check = between(0, 0.99)});
  table.add("validation-input", s.validation_input,
            {.help = "Files or folders that are the validation split; then no document of the input is."});
  table.add("seed", s.seed, {.help = "Seed of the split into train and validation."});
  table.add("documents", s.documents,
            {.help = "What a document of a text file is. In .jsonl it is a record.",
             .choices = {"file", "paragraphs", "lines"}});
  table.add("field", s.field, {.help = "Field of a .jsonl record that holds the text."});
  table.add("invalid", s.invalid,
            {.help = "What to do about bytes that are not UTF-8: stop, or put U+FFFD in their place.",
             .choices = {"refuse", "replace"}});
  table.add("piece", s.piece,
            {.help = "Longer documents are cut into pieces of so many tokens, to keep the shards even. 0: at most "
                     "16384, less where the input is small.",
             .unit = "tokens",
             .check = at_least(0)});
  table.add("sample", s.sample_mib,
            {.help = "Text that a SentencePiece vocabulary is trained on, drawn from the whole input.",
             .unit = "MiB",
             .check = between(1, 65536)});
  table.add("threads", s.threads, {.help = "Threads; 0: all that OpenMP gives.", .check = between(0, 1024)});
}

data::TextOptions text_options(PrepareSettings const& s) {
  data::TextOptions options;
  if (s.documents == "paragraphs") options.documents = data::Documents::paragraphs;
  if (s.documents == "lines") options.documents = data::Documents::lines;
  if (s.invalid == "replace") options.invalid = data::InvalidUtf8::replace;
  options.field = s.field;
  return options;
}

std::vector<path> to_paths(std::vector<std::string> const& names) {
  return {names.begin(), names.end()};
}

std::unique_ptr<data::Tokenizer> make_tokenizer(PrepareSettings const& s) {
  if (s.tokenizer == "bytes") return data::make_byte_tokenizer();
  constexpr std::string_view train = "sentencepiece:";
  if (s.tokenizer.starts_with(train)) {
    std::int64_t size = 0;
    if (auto const why = parse_value(s.tokenizer.substr(train.size()), size); !why.empty()) {
      throw UsageError("--tokenizer " + s.tokenizer + " has no size", why, "write sentencepiece:8192, for example");
    }
    std::printf("training a vocabulary of %lld pieces\n", static_cast<long long>(size));
    std::fflush(stdout);
    data::TextSource source(to_paths(s.input), text_options(s));
    data::TextSampler sampler(source, s.seed, s.sample_mib << 20);
    return data::make_sentencepiece_tokenizer(data::train_sentencepiece(size, [&] { return sampler(); }),
                                              "the trained vocabulary");
  }
  if (!std::filesystem::is_regular_file(s.tokenizer)) {
    throw UsageError("there is no tokenizer '" + s.tokenizer + "'", "it is neither a kind of tokenizer nor a file",
                     "write bytes, sentencepiece:SIZE, or the path of a .model file");
  }
  auto const content = read_file(s.tokenizer);
  if (content.starts_with("isotrain tokenizer")) return data::make_tokenizer(std::as_bytes(std::span(content)));
  return data::make_sentencepiece_tokenizer(content, "'" + s.tokenizer + "'");
}

/// The bytes done, once a second as a line that stays in its place on a terminal, else every ten seconds.
class ByteProgress {
 public:
  explicit ByteProgress(std::int64_t total_bytes) : total_(static_cast<double>(total_bytes)) {}

  void show(std::int64_t bytes) {
    auto const now = Clock::now();
    if (now - last_ < std::chrono::seconds(columns_ > 0 ? 1 : 10)) return;
    last_ = now;
    double const seconds = std::chrono::duration<double>(now - start_).count();
    double const rate = static_cast<double>(bytes) / seconds;
    char text[128];
    std::snprintf(text, sizeof text, "%3.0f %%  %.1f MB  %.1f MB/s  left ", 100 * static_cast<double>(bytes) / total_,
                  static_cast<double>(bytes) / 1e6, rate / 1e6);
    auto line = text + format_duration((total_ - static_cast<double>(bytes)) / std::max(rate, 1.0));
    if (columns_ > 0) line.resize(std::min(line.size(), static_cast<std::size_t>(columns_ - 1)));
    std::printf(columns_ > 0 ? "\r\033[K%s" : "%s\n", line.c_str());
    std::fflush(stdout);
  }
  ~ByteProgress() {
    if (columns_ > 0) std::printf("\r\033[K");
  }

 private:
  using Clock = std::chrono::steady_clock;

  double total_;
  int columns_ = terminal_columns();
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

/// A piece length with which a shard gets at least 16 pieces, so that shards differ by a sixteenth at most.
std::int64_t piece_length(std::int64_t total_bytes, std::int64_t shards) {
  return std::clamp<std::int64_t>(total_bytes / shards / 16, 1024, 16384);
}

int prepare(PrepareSettings const& s, Settings const& table) {
  if (s.out.empty()) throw UsageError("no folder to write", "--out is missing", "add --out DIR");
  if (!s.validation_input.empty() && table.was_given("validation")) {
    throw UsageError("--validation and --validation-input contradict each other", "both choose the validation split");
  }
  int const threads = s.threads > 0 ? static_cast<int>(s.threads) : omp_get_max_threads();

  data::TextSource input(to_paths(s.input), text_options(s));
  data::TextSource validation(to_paths(s.validation_input), text_options(s));
  auto const total_bytes = input.total_bytes() + validation.total_bytes();
  auto const tokenizer = make_tokenizer(s);
  bool const splits = s.validation_input.empty() && s.validation > 0;
  data::CorpusLayout const layout{.num_train_shards = s.shards,
                                  .num_validation_shards = splits || !s.validation_input.empty() ? 1 : 0,
                                  .piece_tokens = s.piece > 0 ? s.piece : piece_length(input.total_bytes(), s.shards)};
  // Removing the half-written folder is the destructor's; a signal must not skip it.
  auto const interrupt = [](int) { interrupted = true; };
  std::signal(SIGINT, interrupt);
  std::signal(SIGTERM, interrupt);

  data::CorpusWriter writer(s.out, *tokenizer, s.seed, layout);

  std::int64_t text_bytes = 0;
  {
    ByteProgress progress(total_bytes);
    auto const consume = [&](data::TextSource& source, auto split_of) {
      data::tokenize(source, *tokenizer, threads, [&](data::TokenizedFragment const& fragment) {
        if (interrupted) throw Error("interrupted", "nothing was written to '" + s.out.string() + "'");
        writer.add(split_of(fragment.document), fragment.tokens, fragment.ends_document);
        text_bytes += static_cast<std::int64_t>(fragment.bytes);
        progress.show(input.bytes_read() + validation.bytes_read());
      });
    };
    consume(input, [&](std::int64_t document) {
      bool const held_out = splits && data::is_validation(s.seed, document, s.validation);
      return held_out ? data::Split::validation : data::Split::train;
    });
    consume(validation, [](std::int64_t) { return data::Split::validation; });
  }
  if (text_bytes == 0) {
    throw Error("the input is empty",
                std::to_string(input.num_files() + validation.num_files()) + " files without any text");
  }
  auto const corpus = writer.finish();

  auto const train_tokens = corpus.num_tokens(data::Split::train);
  auto const validation_tokens = corpus.num_tokens(data::Split::validation);
  if (splits && corpus.num_validation_documents == 0) {
    std::printf(
        "note: no document fell into the validation split (there are %lld); --documents paragraphs cuts finer\n",
        static_cast<long long>(corpus.num_train_documents));
  }
  std::printf("tokenizer %s vocabulary=%lld hash=%s\n", corpus.tokenizer_name.c_str(),
              static_cast<long long>(corpus.vocabulary_size), corpus.tokenizer_hash.c_str());
  std::printf("train documents=%lld tokens=%lld shards=%lld\n", static_cast<long long>(corpus.num_train_documents),
              static_cast<long long>(train_tokens), static_cast<long long>(layout.num_train_shards));
  std::printf("validation documents=%lld tokens=%lld shards=%lld\n",
              static_cast<long long>(corpus.num_validation_documents), static_cast<long long>(validation_tokens),
              static_cast<long long>(layout.num_validation_shards));
  std::printf("done bytes=%lld tokens=%lld tokens_per_byte=%.4f corpus=%s\n", static_cast<long long>(text_bytes),
              static_cast<long long>(train_tokens + validation_tokens),
              static_cast<double>(train_tokens + validation_tokens) / static_cast<double>(text_bytes),
              s.out.string().c_str());
  return 0;
}

}  // namespace

int run_prepare(std::vector<std::string> const& arguments) {
  PrepareSettings settings;
  Settings table("isotrain prepare INPUT... --out DIR", "Turns text into a corpus: tokenized HDF5 shards.");
  declare(table, settings);
  return run_command(table, arguments, [&] { return prepare(settings, table); });
}

}  // namespace isotrain
