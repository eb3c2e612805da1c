#include <gtest/gtest.h>

#include <algorithm>

#include "app/commands.h"
#include "app/describe.h"
#include "lib/base/digest.h"
#include "lib/data/corpus_writer.h"
#include "lib/io/checkpoint_folder.h"
#include "lib/train/run_folder.h"
#include "tests/lib/io/checkpoints.h"

namespace isotrain::io::test {
namespace {

struct Inspect : testing::Test {
  Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
  SharedFolder folder{"inspect"};

  /// What the command prints; at the end the error's message, if there is one.
  static std::string inspect(std::filesystem::path const& path, std::vector<std::string> more = {}) {
    more.insert(more.begin(), path.string());
    testing::internal::CaptureStdout();
    auto const error = message_of([&] { EXPECT_EQ(run_inspect(more), 0); });
    return testing::internal::GetCapturedStdout() + "\nerror: " + error;
  }

  void damage(std::filesystem::path const& path, std::string const& dataset) const {
    std::lock_guard const lock(hdf5_mutex());
    std::uint64_t place = 0;
    {
      auto const file = hdf5::open_read_only(path);
      place = H5Dget_offset(hdf5::open_dataset<float>(file.get(), dataset).get());
    }
    flip_bit(path, place + 5);
  }

  /// 200 documents of one byte.
  std::filesystem::path write_corpus() const {
    auto const path = folder.path() / "corpus";
    auto const tokenizer = data::make_byte_tokenizer();
    data::CorpusWriter writer(path, *tokenizer, 77, {.num_train_shards = 2});
    for (std::uint32_t i = 0; i < 200; ++i) {
      writer.add(i % 10 == 0 ? data::Split::validation : data::Split::train, std::span<std::uint32_t const>(&i, 1),
                 true);
    }
    writer.finish();
    return path;
  }
};

TEST_F(Inspect, ACheckpointIsDescribedAndVerified) {
  auto const path = write_sample(comm, folder.path(), 12, 4);
  for (auto const& flags : {std::vector<std::string>{}, {"--verify"}}) {
    auto const text = inspect(path, flags);
    EXPECT_CONTAINS(text, "checkpoint '" + path.string() + "'");
    EXPECT_CONTAINS(text, "step            12\n");
    EXPECT_CONTAINS(text, "tokens          12000\n");
    EXPECT_CONTAINS(text, "model           [\"DeepseekV3ForCausalLM\"]\n");
    EXPECT_CONTAINS(text, "parameters      4102 in 2 tensors\n");
    EXPECT_CONTAINS(text, "envelope        4 slices, 8 lanes, bf16 tiles\n");
    EXPECT_CONTAINS(text, "fingerprint " + to_hex(0xffffffffffffffffu - 12));
    EXPECT_CONTAINS(text, "lane positions  1, 2, 3, 4, 5, 6, 7, -8\n");
    EXPECT_CONTAINS(text, "adam_m 16384, adam_v 16384, master 16384\n");
    EXPECT_CONTAINS(text, "tensor    dtype     pieces          offset  shape\n");
    EXPECT_CONTAINS(text, "a.weight  float32        4               0  [2, 3]\n");
    EXPECT_CONTAINS(text, "b.weight  float32        1            4096  [4096]\n");
    EXPECT_EQ(text.find("verified:") != std::string::npos, !flags.empty());
    EXPECT_CONTAINS(text, "error: no error");
  }
}

TEST_F(Inspect, ADamagedCheckpointFailsOnlyWhenVerified) {
  auto const path = write_sample(comm, folder.path(), 1, 300);
  damage(path, "/flat/adam_v");
  EXPECT_CONTAINS(inspect(path), "error: no error");
  auto const text = inspect(path, {"--verify"});
  EXPECT_CONTAINS(text, "\ndataset '/flat/adam_v' of '");
  EXPECT_CONTAINS(text, "is damaged in piece 0, elements [0, 1048576)\n");
  EXPECT_CONTAINS(text, "error: checkpoint '" + path.string() + "' is damaged (1 of its pieces differ");
}

TEST_F(Inspect, ARunIsDescribedWithItsNewestCompleteCheckpoint) {
  RunFolder const run(folder.path() / "run");
  create_run_folder(run, "[train]\nsteps = 3\n");
  EXPECT_CONTAINS(inspect(run.root()), "none that is complete");
  write_bytes(run.metrics(), "{\"step\": 1}\n{\"step\": 2}\n{\"st");
  for (std::uint64_t step = 1; step <= 3; ++step) write_sample(comm, run.checkpoints(), step, 4, CheckpointOptions{0});
  write_bytes(run.checkpoints() / checkpoint_file_name(3), "broken");
  auto const text = inspect(run.root());
  EXPECT_CONTAINS(text, "run.cfg\n");
  EXPECT_CONTAINS(text, "last metrics    {\"step\": 2}\n");
  EXPECT_CONTAINS(text, "step-00000003.h5 not usable: cannot open '");
  EXPECT_CONTAINS(text, "step-00000002.h5 complete, step 2, ");
  EXPECT_CONTAINS(text, ", the newest\n  step-00000001.h5 complete, step 1, ");
  EXPECT_CONTAINS(text, "error: no error");
  EXPECT_CONTAINS(inspect(run.root(), {"--verify"}), "has 1 damaged checkpoints (the first: cannot open '");

  std::filesystem::remove(run.checkpoints() / checkpoint_file_name(3));
  EXPECT_CONTAINS(inspect(run.root(), {"--verify"}), "verified, the newest\n");
  damage(run.checkpoints() / checkpoint_file_name(2), "/flat/master");
  auto const damaged = inspect(run.root(), {"--verify"});
  EXPECT_CONTAINS(damaged, "step-00000002.h5 not usable: dataset '/flat/master' of '");
  EXPECT_CONTAINS(damaged, "verified, the newest\n");
  EXPECT_CONTAINS(damaged, "error: run '");
}

TEST_F(Inspect, ACorpusAndItsShardsAreDescribedAndVerified) {
  auto const path = write_corpus();
  auto const text = inspect(path, {"--verify"});
  EXPECT_CONTAINS(text, "corpus '" + path.string() + "'");
  EXPECT_CONTAINS(text, "tokenizer       bytes, 257 tokens, hash ");
  EXPECT_CONTAINS(text, "seed            77\n");
  EXPECT_CONTAINS(text, "shard-00000.h5    train ");
  EXPECT_CONTAINS(text, "verified: all shards agree with corpus.json\n");
  EXPECT_CONTAINS(text, "error: no error");
  auto const shard = path / "shard-00000.h5";
  auto const of_shard = inspect(shard, {"--verify"});
  EXPECT_CONTAINS(of_shard, "shard '" + shard.string() + "'");
  EXPECT_CONTAINS(of_shard, "split           train\n");
  EXPECT_CONTAINS(of_shard, " uint16\n");
  EXPECT_CONTAINS(of_shard, "verified: ");
  std::filesystem::copy_file(shard, folder.path() / "alone.h5");
  EXPECT_CONTAINS(inspect(folder.path() / "alone.h5", {"--verify"}), "verified: ");

  {
    auto const file = hdf5::open_read_write(shard);
    std::uint16_t const other[1] = {3};
    hdf5::write<std::uint16_t>(hdf5::open_dataset<std::uint16_t>(file.get(), "/tokens"), 7, other);
  }
  EXPECT_CONTAINS(inspect(shard), "error: no error");
  EXPECT_CONTAINS(inspect(shard, {"--verify"}), "error: ");
  EXPECT_EQ(inspect(shard, {"--verify"}).find("no error"), std::string::npos);
  auto const damaged = inspect(path, {"--verify"});
  EXPECT_CONTAINS(damaged, "error: corpus '" + path.string() + "' is damaged (1 of 3 shards, the first: ");
  std::filesystem::remove(shard);
  EXPECT_CONTAINS(inspect(path, {"--verify"}), "error: corpus '");
}

TEST_F(Inspect, OtherThingsAreErrors) {
  EXPECT_CONTAINS(inspect(folder.path() / "none"), "error: cannot find '");
  EXPECT_CONTAINS(inspect(folder.path()), "holds nothing to inspect (it has no corpus.json and no run.cfg");
  write_bytes(folder.path() / "text", "some text");
  EXPECT_CONTAINS(inspect(folder.path() / "text"), "error: cannot open '");
  hdf5::close(hdf5::create(folder.path() / "foreign.h5"));
  EXPECT_CONTAINS(inspect(folder.path() / "foreign.h5"), "foreign.h5' is not a checkpoint");
  EXPECT_CONTAINS(inspect(folder.path() / "x", {"--nonsense"}), "nonsense");
  EXPECT_THROW(run_inspect({}), UsageError);
}

TEST(FormatBytes, ChoosesTheUnit) {
  EXPECT_EQ(format_bytes(0), "0 bytes");
  EXPECT_EQ(format_bytes(1023), "1023 bytes");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(std::uintmax_t{3} << 40), "3.0 TiB");
}

}  // namespace
}  // namespace isotrain::io::test
