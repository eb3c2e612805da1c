// reading_speed FOLDER STEP_MS
//
// What does it cost a training step to read its batch? For corpora of three sizes: the time to read a batch at once, as
// it would be without reading ahead; the time that a step waits for it when the last step took STEP_MS, with reading
// ahead; and the memory of the process. The files are in the page cache.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "lib/base/process.h"
#include "lib/base/random.h"
#include "lib/data/batch_reader.h"
#include "lib/data/corpus_writer.h"

namespace {

using namespace isotrain;
using namespace isotrain::data;
using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

Corpus make_corpus(std::filesystem::path const& folder, std::int64_t mib) {
  auto const tokenizer = make_byte_tokenizer();
  CorpusWriter writer(folder, *tokenizer, 1, {.num_train_shards = 24, .num_validation_shards = 0});
  Random const random(1, "benchmark");
  std::vector<std::uint32_t> document(std::size_t{1} << 19);  // 1 MiB in the file
  for (std::int64_t i = 0; i < mib; ++i) {
    for (std::size_t t = 0; t < document.size(); ++t) {
      document[t] = static_cast<std::uint32_t>(random.bits(static_cast<std::uint64_t>(i) * document.size() + t) % 256);
    }
    writer.add(Split::train, document, true);
  }
  return writer.finish();
}

struct Shape {
  std::int64_t lanes;
  std::int64_t samples;  // a lane and step
  std::int64_t sequence;
};

void measure(Corpus const& corpus, std::int64_t mib, Shape shape, double step_ms) {
  auto const size = static_cast<std::size_t>(shape.lanes * shape.samples * shape.sequence);
  std::vector<std::int32_t> tokens(size), targets(size);
  constexpr int num_steps = 60;

  std::vector<double> at_once, waiting;
  {
    std::vector<LaneReader> lanes;
    for (std::int64_t lane = 0; lane < shape.lanes; ++lane)
      lanes.emplace_back(corpus, 1, lane, shape.lanes, shape.sequence);
    auto const length = static_cast<std::size_t>(shape.sequence);
    for (int step = 0; step < num_steps; ++step) {
      auto const start = Clock::now();
      std::size_t at = 0;
      for (auto& lane : lanes) {
        for (std::int64_t b = 0; b < shape.samples; ++b, at += length) {
          lane.read(step * shape.samples + b, std::span(tokens).subspan(at, length),
                    std::span(targets).subspan(at, length));
        }
      }
      at_once.push_back(microseconds_since(start));
    }
  }
  {
    BatchReader reader(corpus, 1, {0, shape.lanes, shape.lanes}, shape.sequence, 0, 2 * shape.samples);
    for (int step = 0; step < num_steps; ++step) {
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(step_ms));
      auto const start = Clock::now();
      reader.read(shape.samples, tokens, targets);
      waiting.push_back(microseconds_since(start));
    }
  }
  auto const memory = resident_memory();
  std::printf("%8lld %5lld x %2lld x %5lld %12.0f %11.1f %10.0f %9.2f %9.3f %8.1f\n", static_cast<long long>(mib),
              static_cast<long long>(shape.lanes), static_cast<long long>(shape.samples),
              static_cast<long long>(shape.sequence), median(at_once),
              median(at_once) / static_cast<double>(shape.lanes * shape.samples), median(waiting),
              100 * median(at_once) / 1000 / step_ms, 100 * median(waiting) / 1000 / step_ms,
              memory ? static_cast<double>(memory->now_bytes) / 1048576 : 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: reading_speed FOLDER STEP_MS\n");
    return 2;
  }
  std::filesystem::path const folder(argv[1]);
  double const step_ms = std::atof(argv[2]);
  std::printf("step of %.0f ms; medians of 60; share: of the step\n", step_ms);
  std::printf("%8s %18s %12s %11s %10s %9s %9s %8s\n", "MiB", "lanes x B x T", "at once us", "a sample us", "ahead us",
              "share %", "share %", "RSS MiB");
  for (std::int64_t const mib : {16, 128, 1024}) {
    auto const corpus = make_corpus(folder / std::to_string(mib), mib);
    for (Shape const shape : {Shape{12, 1, 64}, Shape{8, 4, 512}, Shape{8, 1, 4096}})
      measure(corpus, mib, shape, step_ms);
    std::filesystem::remove_all(corpus.folder);
  }
  return 0;
}
