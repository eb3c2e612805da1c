#pragma once

#include <mpi.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/comm/communicator.h"
#include "lib/io/checkpoint.h"

/// Small checkpoints with known contents, and what tests do to them.
namespace isotrain::io::test {

/// One folder for all ranks, new, removed at the end.
class SharedFolder {
 public:
  explicit SharedFolder(std::string const& name,
                        std::filesystem::path parent = std::filesystem::temp_directory_path()) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int process = static_cast<int>(getpid());
    MPI_Bcast(&process, 1, MPI_INT, 0, MPI_COMM_WORLD);
    path_ = parent / ("io_test." + name + "." + std::to_string(process));
    owner_ = rank == 0;
    if (owner_) std::filesystem::create_directories(path_);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  ~SharedFolder() {
    MPI_Barrier(MPI_COMM_WORLD);
    std::error_code ignored;
    if (owner_) std::filesystem::remove_all(path_, ignored);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  SharedFolder(SharedFolder const&) = delete;
  SharedFolder& operator=(SharedFolder const&) = delete;

  std::filesystem::path const& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool owner_ = false;
};

/// Element `i` of a flat dataset at a step: any change of position, dataset or step shows.
inline float element(std::string const& dataset, std::uint64_t step, std::uint64_t i) {
  return static_cast<float>((i * 2654435761u + step * 40503u + static_cast<unsigned char>(dataset.back()) * 977u) %
                            16777213u);
}

inline std::vector<float> elements(std::string const& dataset, std::uint64_t step, std::uint64_t begin,
                                   std::uint64_t end) {
  std::vector<float> values(end - begin);
  for (std::uint64_t i = begin; i < end; ++i) values[i - begin] = element(dataset, step, i);
  return values;
}

inline std::vector<std::string> const datasets = {"master", "adam_m", "adam_v"};

inline CheckpointHeader sample_header(std::uint64_t step, std::uint64_t total) {
  CheckpointHeader h;
  h.step = step;
  h.tokens = 1000 * step;
  h.seed = 0xfedcba9876543210u;
  h.slices = 4;
  h.lanes = 8;
  h.bf16 = "tiles";
  h.precision = "fp32";
  h.numerics_class = "cpu";
  h.numerics_fingerprint = 0x0123456789abcdefu;
  h.weights_fingerprint = 0xffffffffffffffffu - step;
  h.config_json = "{\"architectures\": [\"DeepseekV3ForCausalLM\"], \"note\": \"é\"}";
  h.settings_ini = "[train]\nsteps = 10\n";
  h.lane_positions = {1, 2, 3, 4, 5, 6, 7, -8};
  h.tokenizer = {0, 255, 1, 0, 7};
  h.state = {{"layers.1.bias", {0.5f, -0.25f}}, {"layers.2.bias", {}}};
  // Cut into columns; the last slice is empty.
  if (total >= 6) {
    h.index = {{"a.weight", {2, 3}, "float32", {{0, 0, 0, 2, 1}, {2, 0, 1, 2, 1}, {4, 0, 2, 2, 1}, {6, 0, 3, 2, 0}}}};
  }
  if (total >= 8192) h.index.push_back({"b.weight", {4096}, "float32", {{4096, 0, 0, 4096, 1}}});
  return h;
}

/// Runs of all datasets, made up before a write so that it can be timed or interrupted.
struct Sample {
  Sample(std::uint64_t step, std::uint64_t total, std::vector<FlatRange> const& runs)
      : header(sample_header(step, total)) {
    for (auto const& name : datasets) {
      auto& own = values.emplace_back();
      for (FlatRange const& run : runs) {
        auto const part =
            elements(name, step, static_cast<std::uint64_t>(run.begin), static_cast<std::uint64_t>(run.end));
        own.insert(own.end(), part.begin(), part.end());
      }
    }
    for (std::size_t i = 0; i < datasets.size(); ++i) flat.push_back({datasets[i], total, runs, values[i]});
  }
  CheckpointHeader header;
  std::vector<std::vector<float>> values;
  std::vector<FlatRuns> flat;
};

/// Blocks [begin, end).
inline FlatRange block_run(std::uint64_t begin, std::uint64_t end) {
  return {static_cast<std::int64_t>(4096 * begin), static_cast<std::int64_t>(4096 * end)};
}

/// Block `begin_of(r)` is the first of rank r, for r up to the number of ranks.
template <class BeginOf>
std::filesystem::path write_sample(Communicator const& comm, std::filesystem::path const& folder, std::uint64_t step,
                                   std::uint64_t blocks, BeginOf const& begin_of, CheckpointOptions const& options) {
  Sample const sample(step, 4096 * blocks,
                      {block_run(static_cast<std::uint64_t>(begin_of(comm.rank())),
                                 static_cast<std::uint64_t>(begin_of(comm.rank() + 1)))});
  return write_checkpoint(comm, folder, sample.header, sample.flat, options);
}

/// Ranges that are even to a block.
inline std::filesystem::path write_sample(Communicator const& comm, std::filesystem::path const& folder,
                                          std::uint64_t step, std::uint64_t blocks,
                                          CheckpointOptions const& options = {}) {
  auto const even = [&](int rank) {
    return blocks * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(comm.size());
  };
  return write_sample(comm, folder, step, blocks, even, options);
}

/// True if the datasets hold the sample's elements [begin, end), and no fault is found.
inline bool holds_sample(std::filesystem::path const& path, std::uint64_t step, std::uint64_t begin,
                         std::uint64_t end) {
  CheckpointReader const reader(path);
  for (auto const& name : datasets) {
    std::vector<float> found(end - begin);
    reader.read(name, begin, found);
    if (found != elements(name, step, begin, end)) return false;
  }
  return true;
}

inline std::string read_bytes(std::filesystem::path const& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(std::filesystem::path const& path, std::string const& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// A second call undoes the first.
inline void flip_bit(std::filesystem::path const& path, std::uint64_t byte) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(byte));
  auto const value = file.get();
  file.seekp(static_cast<std::streamoff>(byte));
  file.put(static_cast<char>(value ^ (1 << (byte % 8))));
}

template <class F>
std::string message_of(F const& f) {
  try {
    f();
  } catch (Error const& e) {
    return e.what();
  }
  return "no error";
}

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << "'" << (part) << "' is not in: " << (text)

}  // namespace isotrain::io::test
