// What a reader says about a checkpoint whose contents changed on the disk.

#include <gtest/gtest.h>

#include "lib/io/piece_sums.h"
#include "tests/lib/io/checkpoints.h"

namespace isotrain::io::test {
namespace {

constexpr std::uint64_t blocks = 600;  // pieces of 256, 256 and 88 blocks

/// Where in the file a dataset begins.
std::uint64_t place_of(std::filesystem::path const& path, std::string const& dataset) {
  std::lock_guard const lock(hdf5_mutex());
  auto const file = hdf5::open_read_only(path);
  return H5Dget_offset(hdf5::open_dataset<float>(file.get(), "/flat/" + dataset).get());
}

/// Every rank damages a file of its own.
struct Damage : testing::Test {
  Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
  SharedFolder folder{"damage"};
  std::filesystem::path path = [&] {
    auto const written = write_sample(comm, folder.path(), 1, blocks);
    auto const copy = folder.path() / ("copy." + std::to_string(comm.rank()));
    std::filesystem::copy_file(written, copy);
    return copy;
  }();
};

TEST_F(Damage, OfOneBitIsNamedByDatasetAndPiece) {
  EXPECT_TRUE(CheckpointReader(path).find_damage().empty());
  auto const element = 300 * 4096 + 77;
  for (auto const& name : datasets) {
    auto const at = place_of(path, name) + 4 * element + 2;
    flip_bit(path, at);
    CheckpointReader const reader(path);
    std::vector<float> out(100);
    auto const message = message_of([&] { reader.read(name, element - 50, out); });
    EXPECT_CONTAINS(message, "dataset '/flat/" + name + "' of '" + path.string() +
                                 "' is damaged in piece 1, elements [1048576, 2097152) (its checksum differs)");
    for (auto const& other : datasets) {
      EXPECT_EQ(message_of([&] { reader.read(other, element - 50, out); }) == "no error", other != name);
    }
    auto const damage = reader.find_damage();
    ASSERT_EQ(damage.size(), 1u);
    EXPECT_CONTAINS(damage[0], name);
    flip_bit(path, at);
  }
  EXPECT_TRUE(CheckpointReader(path).find_damage().empty());
}

TEST_F(Damage, IsFoundByEveryRangeThatTouchesThePieceAndByNoOther) {
  flip_bit(path, place_of(path, "master") + 4 * 300 * 4096);
  CheckpointReader const reader(path);
  auto const read = [&](std::uint64_t begin, std::uint64_t end) {
    std::vector<float> out(end - begin);
    return message_of([&] { reader.read("master", begin, out); });
  };
  auto const piece = sum_piece_elements;
  EXPECT_EQ(read(0, piece), "no error");
  EXPECT_EQ(read(2 * piece, 4096 * blocks), "no error");
  EXPECT_CONTAINS(read(0, piece + 1), "damaged in piece 1");
  EXPECT_CONTAINS(read(2 * piece - 1, 2 * piece + 1), "damaged in piece 1");
  EXPECT_CONTAINS(read(0, 4096 * blocks), "damaged in piece 1");
}

TEST_F(Damage, SeveralPiecesAreAllListed) {
  flip_bit(path, place_of(path, "master"));
  flip_bit(path, place_of(path, "master") + 4 * 4096 * blocks - 1);
  flip_bit(path, place_of(path, "adam_v") + 4 * 256 * 4096);
  EXPECT_EQ(CheckpointReader(path).find_damage().size(), 3u);
}

TEST_F(Damage, BySwappedPiecesIsFound) {
  auto bytes = read_bytes(path);
  auto const at = place_of(path, "master");
  std::swap_ranges(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                   bytes.begin() + static_cast<std::ptrdiff_t>(at + (4 << 20)),
                   bytes.begin() + static_cast<std::ptrdiff_t>(at + (4 << 20)));
  write_bytes(path, bytes);
  EXPECT_EQ(CheckpointReader(path).find_damage().size(), 2u);
}

TEST_F(Damage, ByTruncationIsFoundAtOpening) {
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_CONTAINS(message_of([&] { CheckpointReader reader(path); }), "truncated file");
}

TEST_F(Damage, RangesAndDatasetsThatAreNotThereAreErrors) {
  CheckpointReader const reader(path);
  std::vector<float> out(2);
  EXPECT_CONTAINS(message_of([&] { reader.read("master", 4096 * blocks - 1, out); }), "of 'master' (it has 2457600)");
  EXPECT_CONTAINS(message_of([&] { reader.read("muon", 0, out); }), "has no flat dataset 'muon'");
}

}  // namespace
}  // namespace isotrain::io::test
