#include "lib/data/verify.h"

#include <gtest/gtest.h>
#include <mpi.h>

#include <fstream>
#include <string>

#include "lib/base/atomic_file.h"
#include "lib/comm/agree.h"
#include "lib/parallel/lanes.h"
#include "tests/lib/data/data_test.h"

namespace isotrain::data::test {
namespace {

constexpr std::int64_t num_lanes = 3;
constexpr std::int64_t sequence = 16;

/// Each rank has a copy of the corpus of its own, as on the local disks of nodes.
class Verifying : public testing::Test {
 protected:
  Verifying() : comm_(Communicator::duplicate(MPI_COMM_WORLD)) {
    corpus_ = write_corpus(here(), {3000, 2000, 500, 400, 1000, 700, 900, 100},
                           {.num_train_shards = 6, .piece_tokens = 100}, 0.3);
    auto const lanes = lanes_of_ranks(num_lanes, comm_.size())[static_cast<std::size_t>(comm_.rank())];
    lanes_ = {lanes.begin, lanes.end - lanes.begin, num_lanes};
  }

  std::filesystem::path here() const { return folder_ / "c"; }
  std::filesystem::path file(int shard) const { return here() / corpus_.shards[static_cast<std::size_t>(shard)].file; }
  bool on_last_rank() const { return comm_.rank() == comm_.size() - 1; }

  Corpus open(Verification how = Verification::full, std::int64_t vocabulary = 257) const {
    return open_corpus(comm_, here(), lanes_, sequence, vocabulary, how);
  }

  /// All ranks throw, and say the same.
  std::string agreed_message(Verification how = Verification::full, std::int64_t vocabulary = 257) const {
    auto const message = message_of<AgreedError>([&] { open(how, vocabulary); });
    EXPECT_EQ(comm_.broadcast(message, 0), message);
    return message;
  }

  void flip_bit(std::filesystem::path const& path, std::uint64_t at) const {
    std::fstream stream(path, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekg(static_cast<std::streamoff>(at));
    char const byte = static_cast<char>(stream.get() ^ 4);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(byte);
  }

  /// Where in the file the tokens are.
  std::uint64_t position_of_tokens(std::filesystem::path const& path) const {
    ShardInfo shard;
    shard.file = path.filename().string();
    auto const tokens = tokens_of(corpus_, shard);
    std::string bytes;
    for (std::size_t i = 0; i < 20; ++i)
      bytes += {static_cast<char>(tokens[i] & 255), static_cast<char>(tokens[i] >> 8)};
    auto const found = read_file(path).find(bytes);
    EXPECT_NE(found, std::string::npos);
    return found;
  }

  ScratchFolder folder_;
  Communicator comm_;
  Corpus corpus_;
  LaneRange lanes_;
};

// Shard 5 belongs to lane 2, which is the last rank's on 1, 2 and 3 ranks.

TEST_F(Verifying, AcceptsWhatIsWhole) {
  EXPECT_EQ(open().shards, corpus_.shards);
  EXPECT_EQ(open(Verification::quick).shards, corpus_.shards);
}

TEST_F(Verifying, MissingShard) {
  if (on_last_rank()) std::filesystem::remove(file(5));
  auto const message = agreed_message();
  EXPECT_CONTAINS(message, "shard-00005.h5' (No such file or directory)");
  if (comm_.size() > 1) {
    EXPECT_CONTAINS(message, "rank " + std::to_string(comm_.size() - 1));
  }
}

TEST_F(Verifying, TruncatedShard) {
  auto const size = std::filesystem::file_size(file(5));
  for (auto const keep : {std::uintmax_t{0}, std::uintmax_t{100}, size / 2, size - 1}) {
    auto const whole = read_file(file(5));
    if (on_last_rank()) std::filesystem::resize_file(file(5), keep);
    EXPECT_CONTAINS(agreed_message(Verification::quick), "shard-00005.h5");
    write_text(file(5), whole);
  }
  EXPECT_NO_THROW(open());
}

TEST_F(Verifying, FlippedBit) {
  auto const at = position_of_tokens(file(5)) + 30;
  comm_.barrier();
  if (on_last_rank()) flip_bit(file(5), at);
  EXPECT_CONTAINS(agreed_message(), "shard-00005.h5' is damaged (its digest is ");
  EXPECT_NO_THROW(open(Verification::quick));  // which does not look there
}

/// Wherever a bit flips, the shard is refused or its tokens are the right ones: HDF5's metadata carry checksums, and
/// the rest of the file is space that nobody reads.
TEST_F(Verifying, NoFlippedBitChangesTokens) {
  if (comm_.rank() != 0) return;
  auto const& shard = corpus_.shards[5];
  auto const whole = read_file(file(5));
  auto const tokens = tokens_of(corpus_, shard);
  auto const first_token = position_of_tokens(file(5));
  std::vector<std::uint64_t> places;
  for (std::uint64_t at = 0; at < 4096; at += 31) places.push_back(at);
  for (std::uint64_t i = 0; i < 2 * tokens.size(); i += 97) places.push_back(first_token + i);
  for (std::uint64_t at = 0; at < whole.size(); at += whole.size() / 31) places.push_back(at);
  int refused = 0;
  for (auto const at : places) {
    flip_bit(file(5), at);
    try {
      verify_shard(corpus_, shard, Verification::full);
      EXPECT_EQ(tokens_of(corpus_, shard), tokens) << "after a flip at byte " << at;
    } catch (Error const& error) {
      EXPECT_CONTAINS(std::string(error.what()), "shard-00005.h5");
      ++refused;
    }
    flip_bit(file(5), at);
  }
  EXPECT_GT(refused, 30);
  EXPECT_TRUE(read_file(file(5)) == whole);
}

TEST_F(Verifying, ForeignFile) {
  if (on_last_rank()) write_text(file(5), "this is no HDF5 file, however long one looks at it");
  EXPECT_CONTAINS(agreed_message(), "shard-00005.h5");
}

TEST_F(Verifying, ForeignHdf5File) {
  if (on_last_rank()) {
    auto const other = hdf5::create(file(5));
    hdf5::write_text(other.get(), "hello", "world");
  }
  EXPECT_CONTAINS(agreed_message(), "shard-00005.h5' has no attribute 'tokenizer_hash'");
}

TEST_F(Verifying, ShardOfAnotherCorpus) {
  auto const other = write_corpus(folder_ / "other", {2000, 2000, 2000}, {.num_train_shards = 6});
  if (on_last_rank()) {
    std::filesystem::copy_file(other.folder / "shard-00005.h5", file(5),
                               std::filesystem::copy_options::overwrite_existing);
  }
  EXPECT_CONTAINS(agreed_message(Verification::quick), "shard-00005.h5' is not the shard that corpus.json describes");
}

TEST_F(Verifying, ShardOfTheOtherSplit) {
  if (on_last_rank()) {
    std::filesystem::copy_file(file(6), file(5), std::filesystem::copy_options::overwrite_existing);
  }
  EXPECT_CONTAINS(agreed_message(), "its split is validation, corpus.json says train");
}

TEST_F(Verifying, ValidationShard) {
  std::filesystem::remove(file(6));
  EXPECT_CONTAINS(agreed_message(), "shard-00006.h5");
}

TEST_F(Verifying, AnotherTokenizer) {
  auto const shard = file(5);
  if (on_last_rank()) {
    // The attribute is the only difference.
    auto const opened = hdf5::open_read_write(shard);
    std::lock_guard const lock(hdf5_mutex());
    check_hdf5(H5Adelete(opened.get(), "tokenizer_hash"), "delete");
    hdf5::write_attribute(opened.get(), "tokenizer_hash", std::string("0123456789abcdef"));
  }
  EXPECT_CONTAINS(agreed_message(), "its tokenizer is 0123456789abcdef, corpus.json says " + corpus_.tokenizer_hash);
}

TEST_F(Verifying, TokenBeyondTheVocabulary) {
  auto corpus = corpus_;
  corpus.vocabulary_size = 256;
  auto const message = message_of<Error>([&] { verify_shard(corpus, corpus.shards[1], Verification::full); });
  EXPECT_CONTAINS(message, "token 256 at position ");
  EXPECT_CONTAINS(message, "shard-00001.h5' is beyond the vocabulary (which has 256 tokens)");
  EXPECT_NO_THROW(verify_shard(corpus_, corpus_.shards[1], Verification::full));
}

TEST_F(Verifying, SmallModel) {
  auto const message = agreed_message(Verification::full, 256);
  EXPECT_CONTAINS(message, "the tokenizer has 257 tokens, the model's vocab_size is 256");
  EXPECT_NO_THROW(open(Verification::full, 300));
}

TEST_F(Verifying, MissingCorpus) {
  if (on_last_rank()) std::filesystem::remove(here() / Corpus::file_name);
  EXPECT_CONTAINS(agreed_message(), "is no corpus (it has no corpus.json)");
}

TEST_F(Verifying, RanksSeeDifferentCorpora) {
  auto text = read_file(here() / Corpus::file_name);
  if (on_last_rank() && comm_.size() > 1) write_text(here() / Corpus::file_name, text + "\n");
  if (comm_.size() > 1) {
    EXPECT_CONTAINS(agreed_message(), "differ between ranks");
  } else {
    EXPECT_NO_THROW(open());
  }
}

TEST_F(Verifying, TooLittleText) {
  auto const message =
      message_of<AgreedError>([&] { open_corpus(comm_, here(), lanes_, 5000, 257, Verification::quick); });
  EXPECT_CONTAINS(message, "has nothing to read");
}

TEST_F(Verifying, LanesThatDoNotDivide) {
  auto const error = [&]() -> int {
    try {
      open_corpus(comm_, here(), {0, 1, 4}, sequence, 257, Verification::quick);
    } catch (AgreedError const& error) {
      EXPECT_CONTAINS(std::string(error.what()), "4 lanes cannot share");
      return error.exit_code();
    }
    return 0;
  }();
  EXPECT_EQ(error, 2);
}

}  // namespace
}  // namespace isotrain::data::test
